"""What `verify` asks of the database: is the log's schema as it was made, and do its tables agree?"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from agent_saga_postgres.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga_postgres.link import Rows

_OBJECTS: Final = """
SELECT 'table ' || c.relname || ' ' || string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, ', ' ORDER BY a.attnum)
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' GROUP BY c.relname
UNION ALL
SELECT 'index ' || replace(pg_get_indexdef(i.indexrelid), quote_ident(current_schema()) || '.', '')
    || CASE WHEN i.indisvalid AND i.indisready THEN '' ELSE ' (not valid)' END
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = current_schema()::regnamespace
UNION ALL
SELECT 'trigger ' || t.tgname || ' ' || t.tgenabled::text || ' ' || t.tgtype || ' ' || p.proname
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
  WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'function ' || p.proname || ' ' || encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex')
  FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
UNION ALL
SELECT 'rule ' || r.rulename FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
  WHERE c.relnamespace = current_schema()::regnamespace
ORDER BY 1
"""
_TABLES: Final = {
    "ends": "one boolean not null, pos bigint not null, leaf bigint not null",
    "facts": "kind text not null, name text not null, saga text not null, no bigint not null, value text not null, "
    "at bigint not null",
    "keys": "key text not null, saga text not null",
    "meta": "name text not null, value text not null",
    "owners": "token text not null, host text not null, pid bigint not null, ttl_s double precision not null, "
    "since timestamp with time zone not null, expires_at timestamp with time zone not null",
    "records": "pos bigint not null, saga text not null, n bigint not null, body bytea not null, payload bytea, "
    "hash bytea not null",
    "sagas": "saga text not null, name text not null, key text, incarnation bigint not null, state text not null, "
    "owner text, epoch bigint not null, on_crash text not null, opened_at bigint not null, due_at bigint, "
    "work bigint not null, human bigint not null, sealed boolean not null, amends text, head bytea not null, "
    "count bigint not null, amendments bigint not null, leaf bigint",
}
_INDEXES: Final = (
    "INDEX facts_by_saga ON facts USING btree (saga)",
    "INDEX sagas_amending ON sagas USING btree (amends) WHERE (amends IS NOT NULL)",
    "INDEX sagas_for_humans ON sagas USING btree (saga) WHERE (human > 0)",
    "INDEX sagas_unsealed ON sagas USING btree (saga) WHERE (NOT sealed)",
    "UNIQUE INDEX ends_pkey ON ends USING btree (one)",
    "UNIQUE INDEX facts_pkey ON facts USING btree (kind, name, saga, no)",
    "UNIQUE INDEX keys_pkey ON keys USING btree (key)",
    "UNIQUE INDEX meta_pkey ON meta USING btree (name)",
    "UNIQUE INDEX owners_pkey ON owners USING btree (token)",
    "UNIQUE INDEX records_by_saga ON records USING btree (saga, n)",
    "UNIQUE INDEX records_pkey ON records USING btree (pos)",
    "UNIQUE INDEX sagas_by_leaf ON sagas USING btree (leaf) WHERE (leaf IS NOT NULL)",
    "UNIQUE INDEX sagas_pkey ON sagas USING btree (saga)",
)


def _source(statement: str) -> str:
    """Return the line for a function, from the statement that makes it."""
    head, source, _ = statement.split("$body$")
    name = head.partition("(")[0].split()[-1]
    return f"function {name} {hashlib.sha256(source.encode()).hexdigest()}"


EXPECTED: Final = frozenset(
    (
        *(f"table {name} {columns}" for name, columns in _TABLES.items()),
        *(f"index CREATE {index}" for index in _INDEXES),
        *map(_source, FUNCTIONS),
        "trigger records_stay O 58 refuse_change",
    )
)
_STRAYS: Final = (
    (
        (
            "SELECT keys.key FROM keys LEFT JOIN sagas ON sagas.saga = keys.saga "
            "WHERE sagas.key IS DISTINCT FROM keys.key LIMIT 1"
        ),
        "key {!r} is not the key of the saga that it names",
    ),
    (
        (
            "SELECT facts.kind || ' ' || facts.name FROM facts LEFT JOIN sagas ON sagas.saga = facts.saga "
            "WHERE sagas.saga IS NULL AND facts.kind <> 'total' LIMIT 1"
        ),
        "the fact {!r} is of a saga that is not in the log",
    ),
)
_END: Final = (
    "SELECT ends.pos, (SELECT coalesce(max(pos), 0) FROM records), ends.leaf, "
    "(SELECT coalesce(max(leaf), 0) FROM sagas) FROM ends"
)


def objects(run: Callable[..., Rows]) -> list[str]:
    """Return a line for each table, index, trigger, function and rule of the schema."""
    return [str(line) for (line,) in run(_OBJECTS)]


def damage(run: Callable[..., Rows], *, schema: bool) -> Iterator[str]:
    """Yield what differs from a log as it was made.

    Args:
        run: runs a query and returns its rows; each call has a snapshot of its own, so the log may grow meanwhile.
        schema: look at the schema itself, too.
    """
    for line in sorted(set(objects(run)) ^ EXPECTED) if schema else ():
        yield f"the schema differs at: {' '.join(line.split()[:3])}"
    for sql, text in _STRAYS:
        for (value,) in run(sql):
            yield text.format(value)
    rows = run(_END)
    if len(rows) != 1:
        yield f"the table of the log's end has {len(rows)} rows and must have one"
        return
    pos, last, leaf, last_leaf = rows[0]
    if (pos, leaf) != (last, last_leaf):
        yield f"it ends at position {last} and leaf {last_leaf}, and had come to {pos} and {leaf}: its end is missing"
