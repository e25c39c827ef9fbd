"""A kit on a log in PostgreSQL, from outside: commands, approvals, resources, forks, verification by other means."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from agent_saga import AgentKit, Ask, compensator
from agent_saga.audit.leaves import root
from agent_saga.errors import GateRefused
from agent_saga.runtime.operators import act, decide_approval, lift, pending
from agent_saga.store.open import open_log
from agent_saga.store.port import Announces
from agent_saga.store.schema import APPLICATION_ID, TABLES
from agent_saga.store.verify import verify
from agent_saga_postgres import PostgresLog
from pytest_agent_saga.conformance.sagas import Scribe, dump, everything

ROOT = Path(__file__).resolve().parents[4]
world = []


@compensator("pg.take_back", idempotent=True)
def take_back(item: str):
    world.append(f"undo {item}")


def make(url, *policies, **options):
    kit = AgentKit(url, policies=policies, **options)

    def put(item: str):
        world.append(f"do {item}")
        return {"id": item}

    return kit, kit.wrap(put, effect="compensable", compensate=take_back.bind(item="result.id"))


class Asks:
    """A policy that wants somebody's word on each call."""

    def decide(self, call, saga):
        return Ask("look at it")


@pytest.fixture(autouse=True)
def clean():
    world.clear()


def command(*words, **environment):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "agent_saga", *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


def test_a_saga_commits_and_another_rolls_back(log_url):
    """PG-50: the engine on this log: a commit, a rollback, a key that replays; the log verifies."""
    kit, put = make(log_url)
    for _ in range(2):
        with kit.transaction("order", key="42"):
            put(item="a")
    with pytest.raises(ZeroDivisionError), kit.transaction("other"):
        put(item="b")
        raise ZeroDivisionError
    kit.close()
    assert world == ["do a", "do b", "undo b"]
    log = open_log(log_url, create=False)
    assert isinstance(log, PostgresLog)
    assert verify(log).sagas == 2
    log.close()


def test_commands_find_the_log_by_its_url(log_url):
    """PG-51: verify, export and sagas work, and print the log's place without its password."""
    kit, put = make(log_url)
    with kit.transaction("order"):
        put(item="a")
    kit.close()
    url = log_url.replace("//postgres@", "//postgres:s3cret@")
    verified, exported, listed = (
        command("verify", "--log", url),
        command("export", AGENT_SAGA_LOG=url),
        command("sagas", "--log", url),
    )
    assert [done.returncode for done in (verified, exported, listed)] == [0, 0, 0]
    assert "no damage found" in verified.stdout
    assert len(exported.stdout.splitlines()) == 4
    assert "s3cret" not in "".join(done.stdout + done.stderr for done in (verified, exported, listed))


def test_commands_of_a_log_that_is_not_there(log_url):
    """PG-52: no log, no server, no URL: exit code 3, each with a reason."""
    assert command("verify", "--log", log_url).returncode == 3
    assert command("verify", "--log", "postgresql://127.0.0.1:1/x").returncode == 3
    assert command("verify", "--log", "postgresql://a:b%zz@h/x").returncode == 3


def test_an_independent_verifier_accepts_the_log(log_url, saga_postgres_url, tmp_path):
    """PG-53: copied table by table into a file, the log passes the verifier that shares no code with ours."""
    log = open_log(log_url, create=True)
    everything(log)
    log.close()
    copy = tmp_path / "copy.db"
    with psycopg.connect(saga_postgres_url) as source, sqlite3.connect(copy) as target:
        target.execute(f"PRAGMA application_id={APPLICATION_ID}")
        for statement in TABLES:
            target.execute(statement)
        for table in ("meta", "records", "sagas", "keys", "facts"):
            columns = [name for _, name, *_ in target.execute(f"PRAGMA table_info({table})")]
            rows = source.execute(f"SELECT {', '.join(columns)} FROM agent_saga.{table}").fetchall()
            target.executemany(f"INSERT INTO {table} VALUES({', '.join('?' * len(columns))})", rows)
    target.close()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "verify_independently.py"), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "undamaged")
    with_ours = open_log(str(copy), create=False, allow_fs=True)
    again = open_log(log_url, create=False)
    assert dump(with_ours) == dump(again)
    assert root(with_ours) == root(again)
    with_ours.close()
    again.close()


@pytest.mark.parametrize("name", ["a\0b", "\x1b0", "\x1b", "ünïcode \U0001f600", "quo\"te'\\", "%s {} $1"])
def test_any_name_and_key(name, log_url):
    """PG-54: what a file can hold as a name, this log can, NUL included, and gives back as it was."""
    log = open_log(log_url, create=True)
    scribe = Scribe(log, 1)
    scribe.put(scribe.open_item(key=name))
    assert log.row_of_key(name).row.key == name
    assert log.row(scribe.id).row.key == name
    assert log.row_of_key(name + "x") is None
    verify(log)
    log.close()


def test_a_resource_is_held_across_kits(log_url):
    """PG-55: of two processes' sagas that need one resource, the second is told who holds it."""
    kit, _ = make(log_url)
    other, _ = make(log_url + "&application_name=other")
    lock = {"effect": "compensable", "compensate": take_back.bind(item="kwargs.item"), "resources": ["account:{item}"]}
    first = kit.wrap(lambda item: None, name="pay", **lock)
    second = other.wrap(lambda item: None, name="pay", **lock)
    assert kit.writer() is not other.writer()
    with kit.transaction("one") as saga:
        first(item="7")
        with pytest.raises(GateRefused, match=saga.id), other.transaction("two", independent=True):
            second(item="7")
    kit.close()
    other.close()


def test_a_word_from_another_process_arrives_at_once(log_url):
    """PG-56: a call that waits for an approval hears of it; it does not look again and again."""
    kit, put = make(log_url, Asks(), approver="log")
    store = kit.writer().store
    assert isinstance(store, Announces)
    said = []

    def approve():
        other, _ = make(log_url + "&application_name=approver")
        waits = threading.Event()
        while not (asked := pending(other.writer())):
            waits.wait(0.02)
        said.append(asked[0].id)
        decide_approval(other.writer(), asked[0].id, "approved", by="ann")
        other.close()

    thread = threading.Thread(target=approve)
    thread.start()
    with kit.transaction("asks"):
        put(item="a")
    thread.join()
    kit.close()
    assert (world, len(said)) == (["do a"], 1)


def test_news_is_of_one_saga(log_url):
    """PG-57: a future is done when its saga is amended, and not before."""
    log, other = open_log(log_url, create=True), open_log(log_url, create=True)
    act(_writer(other), "halt", "tool:x", by="ann")
    halted = other.halts()[0].saga_id
    assert log.news(halted).result(30) is None  # Whoever begins to listen looks once.
    heard, not_heard = log.news(halted), log.news("another")
    lift(_writer(other), "tool:x", by="ann")
    assert heard.result(30) is None
    assert not not_heard.done()
    other.close()
    log.close()
    assert not_heard.done()


def _writer(store):
    from concurrent.futures import ThreadPoolExecutor

    from agent_saga.runtime.writer import Writer

    return Writer(store, ThreadPoolExecutor(1))


def test_a_halt_counts_when_the_command_has_returned(log_url):
    """PG-58: whoever asks after the halt is told, however often he asked just before."""
    log, other = open_log(log_url, create=True), open_log(log_url, create=True)
    Scribe(log, 1).open()
    for number in range(5):
        assert log.halts() == []
        act(_writer(other), "halt", f"tool:{number}", by="ann")
        assert [fact.name for fact in log.halts()] == [f"tool:{number}"]
        lift(_writer(other), f"tool:{number}", by="ann")
        assert log.halts() == []
    log.close()
    other.close()


def test_a_forked_child_opens_its_own(log_url):
    """PG-59: a fork shares no connection and no lease: both processes go on, and end, undisturbed."""
    log = open_log(log_url, create=True)
    Scribe(log, 1, owner=log.owner()).open()
    mine = log.owner()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Scribe(log, 2, owner=log.owner()).open().step().end()
            code = 0 if log.owner() != mine else 2
            log.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    Scribe(log, 3, owner=log.owner()).open().step().end()
    assert log.owner() == mine
    assert log.prove_dead(mine) is None
    assert verify(log).sagas == 3
    log.close()


def test_the_package_that_is_missing_is_named(monkeypatch):
    """PG-60: without the package, or with one that cannot be loaded, the command that installs it is named."""
    import importlib.metadata

    from agent_saga.errors import LogUnusable

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    with pytest.raises(LogUnusable, match="pip install agent-saga-postgres"):
        open_log("postgresql://a:secret@h/x", create=True)

    class Broken:
        def load(self):
            raise ImportError("libpq is missing")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [Broken()])
    with pytest.raises(LogUnusable, match="agent-saga-postgres cannot be loaded"):
        open_log("postgresql://a:secret@h/x", create=True)
