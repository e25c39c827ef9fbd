"""The log's schema: made with the first record, brought up to date once, and every change of it noticed."""

import dataclasses
import threading

import psycopg
import pytest

from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.errors import CorruptLog, LogFailed, LogMissing, LogUnusable
from agent_saga.store.open import open_log
from agent_saga.store.verify import verify
from agent_saga_postgres import schema
from agent_saga_postgres.link import Link
from agent_saga_postgres.schema import MIGRATIONS, Migration, look, migrate
from agent_saga_postgres.target import parse
from pytest_agent_saga.conformance.sagas import Scribe, everything


@pytest.fixture
def admin(saga_postgres_url):
    with psycopg.connect(saga_postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = agent_saga")
        yield connection


@pytest.fixture
def log(log_url):
    made = open_log(log_url, create=True)
    yield made
    made.close()


def schemas(admin):
    return {name for (name,) in admin.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^info|^public'")}


def test_nothing_is_made_before_the_first_record(log, admin):
    """PG-30: a log that is only read makes nothing, and reads as empty."""
    assert (log.tail(), log.halts(), log.row("x")) == ([], [], None)
    assert schemas(admin) == set()
    Scribe(log, 1).open()
    assert schemas(admin) == {"agent_saga"}


def test_a_log_that_is_missing(log_url):
    """PG-31: commands do not make logs."""
    with pytest.raises(LogMissing):
        open_log(log_url, create=False)


def test_a_schema_of_somebody_else_is_left_alone(log, admin, log_url):
    """PG-32: a schema with other tables is no log and does not become one; an empty one does."""
    admin.execute("CREATE SCHEMA agent_saga; CREATE TABLE agent_saga.customers(id int)")
    with pytest.raises(LogUnusable, match="holds other tables"):
        open_log(log_url, create=False)
    with pytest.raises(LogUnusable, match="holds other tables"):
        Scribe(log, 1).open()
    admin.execute("DROP TABLE agent_saga.customers")
    log.close()
    fresh = open_log(log_url, create=True)
    Scribe(fresh, 1).open()
    fresh.close()


def test_processes_that_make_the_log_at_once(log_url, admin):
    """PG-33: several first appends at the same time make one log."""
    logs = [open_log(log_url, create=True) for _ in range(4)]
    barrier, errors = threading.Barrier(4), []

    def first(number):
        barrier.wait()
        try:
            Scribe(logs[number], number + 1).open()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=first, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert verify(logs[0]).sagas == 4
    for log in logs:
        log.close()


def test_an_older_schema_is_brought_up_to_date(log, log_url, admin, monkeypatch):
    """PG-34: a newer version of the package changes the tables once, in one transaction, and keeps what is there."""
    Scribe(log, 1).open()
    later = (
        *MIGRATIONS,
        Migration(version=schema.VERSION + 1, statements=("ALTER TABLE owners ADD COLUMN note text",)),
    )
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    link = Link(parse(log_url))
    assert look(link.run, "agent_saga", "x").behind
    migrate(link, "agent_saga", migrations=later)
    migrate(link, "agent_saga", migrations=later)
    found = look(link.run, "agent_saga", "x")
    link.close()
    assert not found.behind
    assert admin.execute("SELECT count(*) FROM records").fetchone() == (1,)


def test_a_migration_that_fails_changes_nothing(log, log_url, admin):
    """PG-35: tables and version are as before, and the log works on."""
    Scribe(log, 1).open()
    broken = Migration(version=99, statements=("ALTER TABLE owners ADD COLUMN note text", "SELECT 1/0"))
    link = Link(parse(log_url))
    with pytest.raises(Exception, match="division by zero"):
        migrate(link, "agent_saga", migrations=(*MIGRATIONS, broken))
    link.close()
    assert admin.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() == (str(schema.VERSION),)
    Scribe(log, 2).open()
    verify(log)


def test_a_newer_schema_is_refused(log, log_url, admin):
    """PG-36: tables of a version that is not known are neither read nor written."""
    Scribe(log, 1).open()
    log.close()
    admin.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(LogUnusable, match="version 99"):
        open_log(log_url, create=False)
    other = open_log(log_url, create=True)
    with pytest.raises(LogUnusable, match="version 99"):
        Scribe(other, 2).open()
    other.close()


def test_records_are_append_only(log, admin):
    """PG-37: another program's UPDATE, DELETE or TRUNCATE of records is refused by the database."""
    Scribe(log, 1).open()
    for statement in ("UPDATE records SET n = 2", "DELETE FROM records", "TRUNCATE records"):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            admin.execute(statement)


FREELY = "ALTER TABLE records DISABLE TRIGGER records_stay; {}; ALTER TABLE records ENABLE TRIGGER records_stay"
DAMAGE = [
    FREELY.format("UPDATE records SET body = body || '\\x20' WHERE pos = 3"),
    FREELY.format("UPDATE records SET payload = '\\x7b7d' WHERE payload IS NOT NULL"),
    FREELY.format("UPDATE records SET hash = sha256('x') WHERE pos = 3"),
    FREELY.format("DELETE FROM records WHERE pos = (SELECT max(pos) FROM records)"),
    FREELY.format("DELETE FROM records WHERE pos = 5"),
    FREELY.format("UPDATE records SET pos = 100000 WHERE pos = 5"),
    "UPDATE sagas SET state = 'committed', owner = NULL, sealed = true WHERE state = 'open'",
    "UPDATE sagas SET count = count - 1 WHERE leaf IS NULL",
    "UPDATE sagas SET leaf = leaf + 100 WHERE leaf = 1",
    "UPDATE sagas SET amendments = 0 WHERE amendments > 0",
    "DELETE FROM sagas WHERE leaf = 1",
    "DELETE FROM keys",
    "UPDATE keys SET saga = 'x'",
    "DELETE FROM facts WHERE kind = 'resource'",
    "UPDATE facts SET value = '0' WHERE kind IN ('spend', 'total')",
    "INSERT INTO facts VALUES('halt', '*', 'x', 0, '', 0)",
    "UPDATE ends SET pos = pos + 1",
    "UPDATE ends SET leaf = leaf - 1",
    "DELETE FROM ends",
    "DROP TRIGGER records_stay ON records",
    "ALTER TABLE records DISABLE TRIGGER records_stay",
    "DROP INDEX records_by_saga",
    "ALTER TABLE sagas ADD COLUMN extra text",
    "CREATE RULE quiet AS ON INSERT TO facts DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION change_facts(change jsonb) RETURNS void LANGUAGE sql AS 'SELECT'",
]


@pytest.mark.parametrize("statement", DAMAGE)
def test_each_change_by_hand_is_found(statement, log, log_url, admin):
    """PG-38: records, rows, keys, facts, leaves, the end of the log and its schema: `verify` names what is wrong."""
    everything(log)
    verify(log)
    admin.execute(statement)
    other = open_log(log_url, create=False)
    with pytest.raises(CorruptLog):
        verify(other)
    other.close()


def test_a_server_that_may_lose_what_is_durable_is_named(log):
    """PG-39: fsync=off, as this test server has it, is said by `verify`."""
    everything(log)
    assert any("fsync=off" in line for line in verify(log).unchecked)


def test_a_role_that_may_not_write(log, log_url, admin):
    """PG-40: who may only read can read and verify, and an append fails closed with the server's reason."""
    everything(log)
    admin.execute("DROP ROLE IF EXISTS saga_reader")
    admin.execute("CREATE ROLE saga_reader LOGIN; GRANT USAGE ON SCHEMA agent_saga TO saga_reader")
    admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA agent_saga TO saga_reader")
    other = open_log(log_url.replace("//postgres@", "//saga_reader@"), create=False)
    verify(other)
    with pytest.raises(LogFailed, match="permission denied"):
        Scribe(other, 500).open()
    other.close()
    admin.execute("DROP OWNED BY saga_reader; DROP ROLE saga_reader")


def test_nothing_of_what_was_removed_is_in_the_tables_file(log, admin):
    """PG-42: after a redaction and a pruning the file of the table holds none of the bytes; before, it did."""
    everything(log)
    scribe = Scribe(log, 700).open()
    options = {"step": 1, "tool": "charge", "version": 1, "effect": "irreversible", "key": f"{scribe.id}:1"}
    scribe.write(scribe.fact("intent", {"kwargs.card": '"4000-0012"', "kwargs.name": '"ann-7f3a"'}, **options))
    scribe.write(scribe.fact("outcome", {"result": "1"}, step=1, state="succeeded"), row=False).end()

    def in_file(text):
        admin.execute("CHECKPOINT")
        ((data,),) = admin.execute("SELECT pg_read_binary_file(pg_relation_filepath('records'))")
        return text in bytes(data)

    assert in_file(b"4000-0012")
    redact(log, scribe.id, "kwargs.card", by="ann")
    assert (in_file(b"4000-0012"), in_file(b"ann-7f3a")) == (False, True)
    prune(log, before_ns=2**62, by="ann", payloads_only=True)
    assert not in_file(b"ann-7f3a")
    verify(log)


def test_a_table_that_cannot_be_written_anew_now(log_url, saga_postgres_url):
    """PG-43: a transaction that could still see what was removed: told to ask again."""
    log = open_log(log_url.replace("wait_s=20", "wait_s=1"), create=True)
    everything(log)
    with psycopg.connect(saga_postgres_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM agent_saga.records")
        with pytest.raises(LogUnusable, match="cannot be read any more, and its bytes may still be"):
            prune(log, before_ns=2**62, by="ann", payloads_only=True)
    Scribe(log, 701).open()
    assert prune(log, before_ns=2**62, by="ann", payloads_only=True).records < 10
    verify(log)
    log.close()


def test_who_does_not_own_the_tables_removes_nothing(log, log_url, admin):
    """PG-44: a role that writes the log cannot remove from it: its pruning fails, and all is as it was."""
    everything(log)
    admin.execute("DROP ROLE IF EXISTS saga_writer")
    admin.execute("CREATE ROLE saga_writer LOGIN; GRANT USAGE ON SCHEMA agent_saga TO saga_writer")
    admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA agent_saga TO saga_writer")
    before = log.tail()
    other = open_log(log_url.replace("//postgres@", "//saga_writer@"), create=False)
    with pytest.raises(LogFailed, match="must be owner"):
        prune(other, before_ns=2**62, by="ann")
    other.close()
    assert log.tail() == before
    verify(log)
    admin.execute("DROP OWNED BY saga_writer; DROP ROLE saga_writer")


def test_a_migration_is_frozen():
    """PG-41: what a version of the schema is does not change behind its number."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        MIGRATIONS[0].version = 2
