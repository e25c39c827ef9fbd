"""What the server does for an append, in one statement: the compare, the set, positions, hashes and rows.

A batch is a JSON array of items. The client sends each body in two halves around the number that only the server
knows, the position; the server joins them and hashes. Whoever appends locks the one row of `ends`, so positions have
no gaps and follow the order of commit. Where processes append side by side, that lock is not held while a device is
waited for: an append commits without waiting, and only then waits, together with all others, until the device has it.
A process that found nobody beside it (`alone`) commits and waits in one transaction, which costs less.
"""

from __future__ import annotations

from typing import Final

CHANGE_FACTS: Final = """
CREATE FUNCTION change_facts(change jsonb) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
  DELETE FROM facts USING jsonb_array_elements(change->'removed') AS gone
    WHERE facts.kind = gone->>0 AND facts.name = gone->>1 AND facts.saga = gone->>2 AND facts.no = (gone->>3)::bigint;
  INSERT INTO facts(kind, name, saga, no, value, at)
    SELECT fact->>0, fact->>1, fact->>2, (fact->>3)::bigint, fact->>4, (fact->>5)::bigint
    FROM jsonb_array_elements(change->'added') AS fact
    ON CONFLICT (kind, name, saga, no) DO UPDATE SET value = excluded.value, at = excluded.at;
END $body$"""

APPEND_NOW: Final = """
CREATE FUNCTION append_now(batch jsonb, me text, channel text, level text) RETURNS jsonb LANGUAGE plpgsql AS $body$
DECLARE
  first_pos bigint; last_pos bigint; last_leaf bigint; lease owners%ROWTYPE;
  answers jsonb[] := '{}'; item jsonb; line jsonb; draft jsonb;
  mine sagas%ROWTYPE; other sagas%ROWTYPE;
  opens boolean; fits boolean; about text; number bigint; raw bytea; digest bytea; leaf_no bigint;
BEGIN
  PERFORM set_config('synchronous_commit', coalesce(level, 'off'), true);
  SELECT pos, leaf INTO STRICT first_pos, last_leaf FROM ends FOR UPDATE;
  last_pos := first_pos;
  IF me IS NOT NULL THEN
    SELECT * INTO lease FROM owners WHERE token = me;
    IF NOT FOUND THEN
      RETURN '{"lease": "gone"}';
    ELSIF lease.expires_at <= clock_timestamp() THEN
      RETURN '{"lease": "over"}';
    ELSIF lease.expires_at < clock_timestamp() + make_interval(secs => lease.ttl_s / 2) THEN
      UPDATE owners SET expires_at = clock_timestamp() + make_interval(secs => ttl_s) WHERE token = me;
    END IF;
  END IF;
  FOR item IN SELECT value FROM jsonb_array_elements(batch) LOOP
    line := item->'row';
    opens := (item->>'count')::bigint = 0;
    SELECT * INTO mine FROM sagas WHERE saga = item->>'saga';
    IF opens THEN
      about := line->>12;
      fits := NOT FOUND AND (about IS NULL OR EXISTS (SELECT FROM sagas WHERE saga = about));
      IF fits AND line->>1 IS NOT NULL THEN
        SELECT sagas.* INTO other FROM keys JOIN sagas ON sagas.saga = keys.saga WHERE keys.key = line->>1;
        IF FOUND THEN
          fits := other.state = 'rolled_back' AND other.owner IS NULL
            AND (line->>2)::bigint = other.incarnation + 1;
        ELSE
          fits := (line->>2)::bigint = 1 AND NOT EXISTS (SELECT FROM keys WHERE key = line->>1);
        END IF;
      END IF;
      number := 0;
      digest := decode(repeat('00', 32), 'hex');
    ELSE
      fits := FOUND AND mine.leaf IS NULL AND mine.epoch = (item->>'seen')::bigint
        AND mine.count = (item->>'count')::bigint
        AND (item->>'head' IS NULL OR mine.head = decode(item->>'head', 'hex'));
      about := mine.amends;
      number := mine.count;
      digest := mine.head;
    END IF;
    IF fits AND item ? 'amended' THEN
      SELECT * INTO other FROM sagas WHERE saga = item#>>'{amended,saga}';
      fits := FOUND AND other.epoch = (item#>>'{amended,epoch}')::bigint
        AND other.count = (item#>>'{amended,count}')::bigint
        AND other.amendments = (item#>>'{amended,amendments}')::bigint;
    END IF;
    IF fits IS NOT TRUE THEN
      answers := answers || 'null'::jsonb;
      CONTINUE;
    END IF;
    FOR draft IN SELECT value FROM jsonb_array_elements(item->'drafts') LOOP
      last_pos := last_pos + 1;
      number := number + 1;
      raw := convert_to((draft->>0) || last_pos || (draft->>1), 'UTF8');
      digest := sha256(digest || raw);
      INSERT INTO records(pos, saga, n, body, payload, hash)
        VALUES (last_pos, item->>'saga', number, raw, convert_to(draft->>2, 'UTF8'), digest);
    END LOOP;
    IF about IS NOT NULL THEN
      UPDATE sagas SET amendments = amendments + jsonb_array_length(item->'drafts') WHERE saga = about;
      PERFORM pg_notify(channel, about);
      IF item ? 'amended' THEN
        leaf_no := other.leaf;
        IF leaf_no IS NULL AND (item#>>'{amended,row,11}')::boolean THEN
          last_leaf := last_leaf + 1;
          leaf_no := last_leaf;
        END IF;
        UPDATE sagas SET state = item#>>'{amended,row,3}', owner = item#>>'{amended,row,4}',
          epoch = (item#>>'{amended,row,5}')::bigint, due_at = (item#>>'{amended,row,8}')::bigint,
          work = (item#>>'{amended,row,9}')::bigint, human = (item#>>'{amended,row,10}')::bigint,
          sealed = (item#>>'{amended,row,11}')::boolean, leaf = leaf_no
          WHERE saga = item#>>'{amended,saga}';
        IF item#>'{amended}' ? 'facts' THEN
          PERFORM change_facts(item#>'{amended,facts}');
        END IF;
      END IF;
    END IF;
    IF line IS NULL THEN
      UPDATE sagas SET head = digest, count = number WHERE saga = item->>'saga';
    ELSE
      leaf_no := NULL;
      IF (line->>11)::boolean THEN
        last_leaf := last_leaf + 1;
        leaf_no := last_leaf;
      END IF;
      IF opens THEN
        INSERT INTO sagas(saga, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human,
            sealed, amends, head, count, amendments, leaf)
          VALUES (item->>'saga', line->>0, line->>1, (line->>2)::bigint, line->>3, line->>4, (line->>5)::bigint,
            line->>6, (line->>7)::bigint, (line->>8)::bigint, (line->>9)::bigint, (line->>10)::bigint,
            (line->>11)::boolean, line->>12, digest, number, 0, leaf_no);
        IF line->>1 IS NOT NULL THEN
          INSERT INTO keys(key, saga) VALUES (line->>1, item->>'saga')
            ON CONFLICT (key) DO UPDATE SET saga = excluded.saga;
        END IF;
      ELSE
        UPDATE sagas SET state = line->>3, owner = line->>4, epoch = (line->>5)::bigint,
          due_at = (line->>8)::bigint, work = (line->>9)::bigint, human = (line->>10)::bigint,
          sealed = (line->>11)::boolean, leaf = leaf_no, head = digest, count = number
          WHERE saga = item->>'saga';
      END IF;
    END IF;
    IF item ? 'facts' THEN
      PERFORM change_facts(item->'facts');
    END IF;
    answers := answers || jsonb_build_array(last_pos, encode(digest, 'hex'));
  END LOOP;
  IF last_pos > first_pos THEN
    UPDATE ends SET pos = last_pos, leaf = last_leaf;
  END IF;
  RETURN jsonb_build_object('answers', to_jsonb(answers), 'before', first_pos, 'pos', last_pos,
    'wrote', last_pos > first_pos);
END $body$"""

FLUSH: Final = """
CREATE FUNCTION flush(level text) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM set_config('synchronous_commit', level, true);
  PERFORM pg_logical_emit_message(true, 'agent-saga', '');
END $body$"""

APPEND: Final = """
CREATE PROCEDURE append(batch jsonb, me text, channel text, level text, alone boolean, INOUT answer jsonb)
LANGUAGE plpgsql AS $body$
BEGIN
  answer := append_now(batch, me, channel, CASE WHEN alone THEN level END);
  IF level IS NOT NULL AND NOT alone AND (answer->>'wrote')::boolean THEN
    COMMIT;
    PERFORM flush(level);
  END IF;
END $body$"""

STAY: Final = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
  RAISE EXCEPTION 'records are append-only';
END $body$"""

FUNCTIONS: Final = (CHANGE_FACTS, APPEND_NOW, FLUSH, APPEND, STAY)
