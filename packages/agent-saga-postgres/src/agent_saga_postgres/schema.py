"""The tables of a log in PostgreSQL, how a schema becomes a log, and what is checked of it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.errors import LogUnusable
from agent_saga.model.records import FORMAT, FORMAT_MINOR
from agent_saga_postgres.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_saga_postgres.link import Link, Rows

SERVER_VERSION_MIN: Final = 140_000
"""The oldest major version that still gets fixes."""

TABLES: Final = (
    'CREATE TABLE meta(name text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
    """CREATE TABLE ends(one boolean PRIMARY KEY DEFAULT true CHECK (one), pos bigint NOT NULL, leaf bigint NOT NULL)
  WITH (fillfactor = 10, autovacuum_vacuum_cost_delay = 0)""",
    """CREATE TABLE records(pos bigint PRIMARY KEY, saga text COLLATE "C" NOT NULL, n bigint NOT NULL,
  body bytea NOT NULL, payload bytea, hash bytea NOT NULL)""",
    "CREATE UNIQUE INDEX records_by_saga ON records(saga, n)",
    """CREATE TABLE sagas(saga text COLLATE "C" PRIMARY KEY, name text COLLATE "C" NOT NULL, key text COLLATE "C",
  incarnation bigint NOT NULL, state text NOT NULL, owner text COLLATE "C", epoch bigint NOT NULL,
  on_crash text NOT NULL, opened_at bigint NOT NULL, due_at bigint, work bigint NOT NULL, human bigint NOT NULL,
  sealed boolean NOT NULL, amends text COLLATE "C", head bytea NOT NULL, count bigint NOT NULL,
  amendments bigint NOT NULL, leaf bigint) WITH (fillfactor = 70)""",
    "CREATE INDEX sagas_unsealed ON sagas(saga) WHERE NOT sealed",
    "CREATE INDEX sagas_for_humans ON sagas(saga) WHERE human > 0",
    "CREATE INDEX sagas_amending ON sagas(amends) WHERE amends IS NOT NULL",
    "CREATE UNIQUE INDEX sagas_by_leaf ON sagas(leaf) WHERE leaf IS NOT NULL",
    'CREATE TABLE keys(key text COLLATE "C" PRIMARY KEY, saga text COLLATE "C" NOT NULL)',
    """CREATE TABLE facts(kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  saga text COLLATE "C" NOT NULL, no bigint NOT NULL, value text NOT NULL, at bigint NOT NULL,
  PRIMARY KEY(kind, name, saga, no))""",
    "CREATE INDEX facts_by_saga ON facts(saga)",
    """CREATE TABLE owners(token text COLLATE "C" PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL,
  ttl_s double precision NOT NULL, since timestamptz NOT NULL, expires_at timestamptz NOT NULL)
  WITH (fillfactor = 50)""",
)
TRIGGERS: Final = (
    "CREATE TRIGGER records_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON records EXECUTE FUNCTION refuse_change()",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A step from one version of the schema to the next.

    Attributes:
        version: the version after it.
        statements: run in order, in one transaction with all others and with the version's number.
    """

    version: int
    statements: Sequence[str]


MIGRATIONS: Final = (
    Migration(version=1, statements=(*TABLES, *FUNCTIONS, *TRIGGERS, "INSERT INTO ends VALUES(true, 0, 0)")),
)
VERSION: Final = MIGRATIONS[-1].version


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a schema holds.

    Attributes:
        log: id of the log.
        level: the `synchronous_commit` that makes a commit durable here.
        behind: its tables are of an older version, which the next writer brings up to date.
    """

    log: str
    level: str
    behind: bool


def look(run: Callable[..., Rows], schema: str, location: str) -> Found | None:
    """Return the log in a schema, or None when there is none yet.

    Raises:
        LogUnusable: the server or the schema cannot be, or is not, a log that this version can use.
    """
    ((version, encoding, commit, there, meta),) = run(
        "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), "
        "current_setting('synchronous_commit'), "
        "(SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident($1))), "
        "to_regclass(quote_ident($1) || '.meta') IS NOT NULL",
        schema,
    )
    if version < SERVER_VERSION_MIN or encoding != "UTF8":
        raise LogUnusable(f"{location}: a log needs PostgreSQL 14 or newer and a database in UTF8, not {encoding}")
    if not meta:
        if there:
            raise LogUnusable(
                f"{location}: the schema {schema!r} holds other tables, and no log of agent-saga; name another one "
                "with ?schema=NAME"
            )
        return None
    found: dict[str, str] = dict(run("SELECT name, value FROM meta"))
    if found.get("format") != str(FORMAT) or "log" not in found or not found.get("schema", "").isdecimal():
        raise LogUnusable(f"{location}: the schema {schema!r} is no log of format {FORMAT} of agent-saga")
    if int(found["schema"]) > VERSION:
        raise LogUnusable(
            f"{location} has version {found['schema']} of the tables, and this version of agent-saga-postgres knows "
            f"{VERSION}: use the version that made them, or a newer one"
        )
    # `off` and `local` may be set for the whole server; what we call durable is on this server's device at least.
    return Found(log=found["log"], level="on" if commit == "off" else commit, behind=int(found["schema"]) < VERSION)


def migrate(link: Link, schema: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make a schema a log of the newest version, in one transaction; processes that do so at once wait in line."""
    link.run_script("BEGIN")
    try:
        link.run("SELECT pg_advisory_xact_lock(hashtextextended('agent-saga ' || $1, 0))", schema)
        name = _quoted(schema)
        if not link.run("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
            link.run_script(f"CREATE SCHEMA {name}")
        made = link.run("SELECT to_regclass(quote_ident($1) || '.meta') IS NOT NULL", schema)[0][0]
        before = int(link.run("SELECT value FROM meta WHERE name = 'schema'")[0][0]) if made else 0
        for migration in migrations:
            if migration.version > before:
                for statement in migration.statements:
                    link.run_script(statement)
        if not made:
            meta = {"format": str(FORMAT), "minor": str(FORMAT_MINOR), "log": secrets.token_hex(16), "schema": "0"}
            for key, value in meta.items():
                link.run("INSERT INTO meta VALUES($1, $2)", key, value)
        link.run("UPDATE meta SET value = $1 WHERE name = 'schema'", str(migrations[-1].version))
        link.run_script("COMMIT")
    except BaseException:
        if link.open:
            link.close()  # Ends the transaction, whatever state it is in.
        raise


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
