-- agent-saga-supabase: guard rows and images, so that a step and its compensation are committed once each.
-- Run it once, as the owner of the tables; then `select agent_saga_protect('public.orders');` for each table.
create schema if not exists agent_saga;

create table if not exists agent_saga.guard (
    step text primary key,
    state text not null check (state in ('step', 'void', 'restored')),
    nonce text,
    xid xid8 not null default pg_current_xact_id(),
    at timestamptz not null default now()
);
create table if not exists agent_saga.image (
    no bigint generated always as identity primary key,
    step text not null references agent_saga.guard on delete cascade,
    tbl text not null,
    key jsonb not null,
    before jsonb,
    after jsonb
);
create index if not exists image_step on agent_saga.image (step, no);

-- What the request says. Restoring is said by our own function, in its own transaction.
create or replace function agent_saga.current_step() returns text language sql stable as $$
    select case when coalesce(current_setting('agent_saga.restoring', true), '') = ''
        then nullif(current_setting('request.headers', true), '')::json ->> 'x-agent-saga-step' end
$$;

create or replace function agent_saga.columns_of(tbl regclass)
returns table (name text, kind text, is_key boolean, is_generated boolean, is_always boolean) language sql stable as $$
    select a.attname::text, format_type(a.atttypid, a.atttypmod),
        coalesce(a.attnum = any (i.indkey::int2[]), false), a.attgenerated <> '', a.attidentity = 'a'
    from pg_attribute a left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
    where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped order by a.attnum
$$;

-- Why a table cannot be protected: '' where it can. Tables whose rows go or change with its rows count too.
create or replace function agent_saga.problem_of(tbl regclass) returns text language sql stable as $$
    with recursive met(oid) as (
        select tbl::oid
        union
        select c.conrelid from met join pg_constraint c on c.confrelid = met.oid and c.contype = 'f'
        where c.confdeltype in ('c', 'n', 'd') or c.confupdtype in ('c', 'n', 'd')
    )
    select coalesce(string_agg(met.oid::regclass || ' ' || case
        when c.relkind <> 'r' or c.relhasrules or exists (select from pg_inherits where c.oid in (inhparent, inhrelid))
            then 'is no ordinary table'
        when not exists (select from pg_index where indrelid = met.oid and indisprimary) then 'has no primary key'
        when exists (select from pg_trigger where tgrelid = met.oid and not tgisinternal and tgenabled <> 'D'
            and tgname not like 'agent\_saga\_%') then 'has triggers, whose writes cannot be taken back'
        when (select count(*) from pg_trigger where tgrelid = met.oid and tgenabled = 'O'
            and tgname in ('agent_saga_begin', 'agent_saga_capture')) < 2 then 'is not protected'
        end, '; '), '')
    from met join pg_class c on c.oid = met.oid
$$;

-- A row as the text of each value, which its type reads back without loss.
create or replace function agent_saga.image_of(tbl regclass, given jsonb) returns jsonb
language plpgsql stable as $$
declare found jsonb; begin
    execute (select format('select jsonb_object(array[%s], array[%s]::text[]) from %s t where %s',
        string_agg(quote_literal(name), ', '), string_agg(format('t.%I::text', name), ', '), tbl,
        string_agg(format('t.%I = ($1 ->> %L)::%s', name, name, kind), ' and ') filter (where is_key))
        from agent_saga.columns_of(tbl)) into found using given;
    return found;
end $$;

create or replace function agent_saga.begin_step() returns trigger
language plpgsql security definer set search_path = pg_catalog as $$
declare step_id text := agent_saga.current_step(); begin
    if step_id is null then return null; end if;
    insert into agent_saga.guard (step, state) values (step_id, 'step') on conflict do nothing;
    if not exists (select from agent_saga.guard where step = step_id and state = 'step' and xid = pg_current_xact_id())
    then
        raise exception using errcode = 'AS001', message = 'agent-saga step ' || step_id
            || ' has run already, or was given up by a recovery; nothing was written';
    end if;
    return null;
end $$;

create or replace function agent_saga.capture() returns trigger language plpgsql security definer
set search_path = pg_catalog set timezone = 'UTC' set datestyle = 'ISO, MDY' set intervalstyle = 'postgres'
set bytea_output = 'hex' set extra_float_digits = 1 as $$
declare
    step_id text := agent_saga.current_step();
    restoring text := coalesce(current_setting('agent_saga.restoring', true), '');
    target text := format('%I.%I', tg_table_schema, tg_table_name);
    old_image jsonb; new_image jsonb; row_key jsonb; listed text;
begin
    if step_id is null and restoring = '' then return null; end if;
    select string_agg(format('($1).%I::text', name), ', ') into listed from agent_saga.columns_of(tg_relid);
    listed := format('select jsonb_object(array[%s], array[%s]::text[])',
        (select string_agg(quote_literal(name), ', ') from agent_saga.columns_of(tg_relid)), listed);
    if tg_op <> 'INSERT' then execute listed into old_image using old; end if;
    if tg_op <> 'DELETE' then execute listed into new_image using new; end if;
    select jsonb_object_agg(name, coalesce(old_image, new_image) -> name) into row_key
        from agent_saga.columns_of(tg_relid) where is_key;
    if restoring <> '' then
        if not exists (select from agent_saga.image i where i.step = restoring and i.tbl = target and i.key = row_key)
        then
            raise exception using errcode = 'AS002', message = 'a row of others would change with it',
                detail = jsonb_build_object('table', target, 'key', row_key, 'before', null, 'ours', null, 'now', old_image);
        end if;
        return null;
    end if;
    if tg_op = 'UPDATE' and not new_image @> row_key then
        raise exception using errcode = 'AS003', message = 'a step cannot change the primary key of ' || target;
    end if;
    insert into agent_saga.image (step, tbl, key, before, after) values (step_id, target, row_key, old_image, new_image);
    return null;
end $$;

-- Put our triggers on a table, and on those whose rows go or change with its rows if they are given as well.
create or replace function agent_saga_protect(variadic tables regclass[]) returns void language plpgsql as $$
declare tbl regclass; problem text; begin
    foreach tbl in array tables loop
        execute format('create or replace trigger agent_saga_capture after insert or update or delete on %s '
            'for each row execute function agent_saga.capture()', tbl);
        execute format('drop trigger if exists agent_saga_begin on %s', tbl);
        execute format('create trigger agent_saga_begin before insert or update or delete on %s '
            'for each statement execute function agent_saga.begin_step()', tbl);
    end loop;
    foreach tbl in array tables loop
        problem := agent_saga.problem_of(tbl);
        if problem <> '' then raise exception 'cannot be protected: %', problem; end if;
    end loop;
end $$;

create or replace function agent_saga_problem(tbl text) returns text
language sql stable security definer set search_path = pg_catalog as $$
    select case when to_regclass(tbl) is null then tbl || ' does not exist'
        else agent_saga.problem_of(to_regclass(tbl)) end
$$;

-- Whether a step is committed. Where it is not, it cannot be from now on, unless whoever knows the nonce reopens it.
create or replace function agent_saga_probe(step_id text, given_nonce text) returns jsonb
language plpgsql security definer set search_path = pg_catalog as $$
declare known text; begin
    insert into agent_saga.guard as g (step, state, nonce) values (step_id, 'void', given_nonce)
        on conflict (step) do update set nonce = excluded.nonce where g.state = 'void';
    select state into known from agent_saga.guard where step = step_id;
    return jsonb_build_object('landed', known <> 'void');
end $$;

create or replace function agent_saga_reopen(step_id text, given_nonce text) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
begin
    delete from agent_saga.guard where step = step_id and state = 'void' and nonce = given_nonce;
    return found;
end $$;

create or replace function agent_saga_state(step_id text) returns text
language sql stable security definer set search_path = pg_catalog as $$
    select state from agent_saga.guard where step = step_id
$$;

create or replace function agent_saga.write_back(tbl regclass, key jsonb, before jsonb, after jsonb) returns void
language plpgsql as $$
declare names text; vals text; whole text; begin
    select string_agg(format('%I = ($1 ->> %L)::%s', name, name, kind), ' and ') into whole
        from agent_saga.columns_of(tbl) where is_key;
    if before is null then
        execute format('delete from %s where %s', tbl, whole) using key;
        return;
    end if;
    select string_agg(quote_ident(name), ', '), string_agg(format('($2 ->> %L)::%s', name, kind), ', ')
        into names, vals from agent_saga.columns_of(tbl)
        where not is_generated and (after is null or not (is_key or is_always));
    if after is null then
        execute format('insert into %s (%s) overriding system value select %s where $1 is not null', tbl, names, vals)
            using key, before;
    elsif names is not null then
        execute format('update %s set (%s) = row(%s) where %s', tbl, names, vals, whole) using key, before;
    end if;
end $$;

-- Take a step back, in one transaction: lock, compare with what it left, write by key, read back.
create or replace function agent_saga_restore(step_id text) returns text language plpgsql security definer
set search_path = pg_catalog set timezone = 'UTC' set datestyle = 'ISO, MDY' set intervalstyle = 'postgres'
set bytea_output = 'hex' set extra_float_digits = 1 as $$
declare known text; change record; now_image jsonb; todo int[]; left_over int[]; changes jsonb[]; i int; begin
    insert into agent_saga.guard (step, state) values (step_id, 'void') on conflict do nothing;
    select state into known from agent_saga.guard where step = step_id for update;
    if known <> 'step' then return known; end if;
    perform set_config('agent_saga.restoring', step_id, true);
    for change in
        select tbl, key, (array_agg(before order by no))[1] as before,
            (array_agg(after order by no desc))[1] as after, max(no) as last
        from agent_saga.image where step = step_id group by tbl, key order by last desc
    loop
        execute (select format('select 1 from %s where %s for update', change.tbl,
            string_agg(format('%I = ($1 ->> %L)::%s', name, name, kind), ' and '))
            from agent_saga.columns_of(change.tbl::regclass) where is_key) using change.key;
        now_image := agent_saga.image_of(change.tbl::regclass, change.key);
        if now_image is distinct from change.after then
            raise exception using errcode = 'AS002', message = 'somebody changed a row since; nothing was written',
                detail = jsonb_build_object('table', change.tbl, 'key', change.key, 'before', change.before,
                    'ours', change.after, 'now', now_image);
        end if;
        if change.before is distinct from change.after then
            changes := changes || to_jsonb(change);
            todo := todo || cardinality(changes);
        end if;
    end loop;
    -- Rows that refer to each other come back in any order that their constraints allow.
    while cardinality(todo) > 0 loop
        left_over := '{}';
        foreach i in array todo loop
            begin
                perform agent_saga.write_back((changes[i] ->> 'tbl')::regclass, changes[i] -> 'key',
                    nullif(changes[i] -> 'before', 'null'), nullif(changes[i] -> 'after', 'null'));
            exception when integrity_constraint_violation then
                left_over := left_over || i;
            end;
        end loop;
        if cardinality(left_over) = cardinality(todo) then
            raise exception using errcode = 'AS002',
                message = 'the database refuses it, because of what others wrote since; nothing was written',
                detail = (changes[todo[1]] - 'last' - 'tbl' - 'after') || jsonb_build_object(
                    'table', changes[todo[1]] -> 'tbl', 'ours', changes[todo[1]] -> 'after', 'now', null);
        end if;
        todo := left_over;
    end loop;
    for i in 1 .. coalesce(cardinality(changes), 0) loop
        now_image := agent_saga.image_of((changes[i] ->> 'tbl')::regclass, changes[i] -> 'key');
        if now_image is distinct from nullif(changes[i] -> 'before', 'null') then
            raise exception using errcode = 'AS004', message = 'what was written back reads differently';
        end if;
    end loop;
    update agent_saga.guard set state = 'restored' where step = step_id;
    return 'step';
end $$;

revoke all on schema agent_saga from public;
revoke all on function agent_saga_protect(regclass[]), agent_saga_problem(text), agent_saga_probe(text, text),
    agent_saga_reopen(text, text), agent_saga_state(text), agent_saga_restore(text) from public;
do $$ declare role_name text; begin
    -- Supabase grants functions of `public` to its web roles by default privileges: only the service may call these.
    for role_name in select rolname from pg_roles where rolname in ('anon', 'authenticated') loop
        execute format('revoke all on function agent_saga_protect(regclass[]), agent_saga_problem(text), '
            'agent_saga_probe(text, text), agent_saga_reopen(text, text), agent_saga_state(text), '
            'agent_saga_restore(text) from %I', role_name);
    end loop;
    if exists (select from pg_roles where rolname = 'service_role') then
        grant execute on function agent_saga_problem(text), agent_saga_probe(text, text),
            agent_saga_reopen(text, text), agent_saga_state(text), agent_saga_restore(text) to service_role;
    end if;
end $$;
