"""Merging the logs of devices that worked apart. Rule ids: MG-n."""

import contextlib
import importlib.util
import itertools
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga.audit.leaves import checkpoint_of
from agent_saga.audit.merge import History, Source, longest
from agent_saga.audit.merge_write import merge_into
from agent_saga.audit.proof import check_proof, prove
from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.cli.app import cli
from agent_saga.errors import CorruptLog, UsageError
from agent_saga.store.port import Query
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows, verify
from pytest_agent_saga.conformance.sagas import (
    Scribe,
    committed,
    everything,
    partial,
    rolled_back,
    saga_id,
    settle,
)

SCRIPT = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
NOW = 10**19


def independent(path):
    """Return what the verifier says that knows only the format's page."""
    spec = importlib.util.spec_from_file_location("verify_independently", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.main(str(path))
    except SystemExit as stop:
        return stop.code
    return 0


def held(path):
    """Return everything that a log holds, but what belongs to the file: sagas, records, facts, keys, what it says."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = ("meta", "records", "sagas", "keys", "facts")
        return [db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3" if table == "facts" else f"SELECT * FROM {table}"
                           " ORDER BY 1").fetchall() for table in tables]  # fmt: skip


def merged(out, *paths):
    """Merge logs, and what earlier merges kept apart; return the paths of all that came out, and what was said."""
    every = [one for path in paths for one in (path, *sorted(path.parent.glob(f"{path.name}-diverged-?")))]
    logs = [SqliteLog(path, create=False) for path in every]
    try:
        for log in logs:
            verify(log)
        done = merge_into([Source(log, path.name) for log, path in zip(logs, every, strict=True)], out)
    finally:
        for log in logs:
            log.close()
    files = [out, *(out.with_name(f"{out.name}-diverged-{number}") for number in range(1, done.apart + 1))]
    for file in files:
        assert independent(file) == 0
    return files, done


@contextlib.contextmanager
def opened(path, *, create=False):
    log = SqliteLog(path, create=create)
    try:
        yield log
    finally:
        log.close()


@given(
    sets=st.lists(st.lists(st.text("ab", min_size=1, max_size=4), max_size=6), min_size=3, max_size=3),
)
def test_a_union_of_histories_has_no_order(sets):
    """MG-1: what stays of histories is the same in any order and grouping, and merging twice changes nothing."""

    def union(*groups):
        found = [
            History(saga_id="s", source=number, hashes=tuple(one.encode() for one in text))
            for number, text in enumerate(itertools.chain(*groups))
        ]
        return ["".join(part.decode() for part in one.hashes) for one in longest(found)]

    one, two, three = sets
    whole = union(one, two, three)
    for order in itertools.permutations(sets):
        assert union(*order) == whole
    assert union(union(one, two), three) == whole == union(one, union(two, three))
    assert union(whole, whole) == whole
    assert all(any(kept.startswith(text) for kept in whole) for text in [*one, *two, *three])


def work(log, chance, number):
    """Do something in a log, as a device does: new sagas, or going on with what is there."""
    numbers = itertools.count(number)
    for _ in range(chance.randrange(1, 4)):
        match chance.randrange(5):
            case 0:
                committed(log, next(numbers))
            case 1:
                rolled_back(log, next(numbers))
            case 2:
                key = f"key-{chance.randrange(3)}"
                if log.row_of_key(key) is None:
                    rolled_back(log, next(numbers), key=key)
            case 3:
                partial(log, one := next(numbers))
                if chance.random() < 0.5:
                    settle(log, next(numbers), saga_id(one))
            case _:
                waiting = [row for row in log.rows(Query(needs_human=True)) if row.row.work]
                if waiting:
                    settle(log, next(numbers), waiting[0].saga_id)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_devices_merge_to_one_history_in_any_order(seed, tmp_path_factory):
    """MG-2: of copies that worked on apart, every order and grouping gives the same logs, and each of them verifies."""
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("devices")
    with opened(folder / "base.db", create=True) as log:
        committed(log, 1)
        partial(log, 2)
        work(log, chance, 10)
    devices = [folder / f"device-{number}.db" for number in range(3)]
    for number, path in enumerate(devices):
        if number < 2 or chance.random() < 0.5:
            shutil.copy(folder / "base.db", path)
        with opened(path, create=True) as log:
            committed(log, 100 * (number + 1) + 90)
            work(log, chance, 100 * (number + 1))
    one, two, three = devices
    whole, done = merged(folder / "whole.db", one, two, three)
    told = {(each.saga_id, each.reason) for each in done.diverged}
    first, _ = merged(folder / "first.db", three, one)
    last, _ = merged(folder / "last.db", two, three)
    for name, paths in (
        ("other.db", (three, two, one)),
        ("left.db", (first[0], two)),
        ("right.db", (one, last[0])),
        ("twice.db", (whole[0], whole[0])),
    ):
        again, said = merged(folder / name, *paths)
        assert [held(path) for path in again] == [held(path) for path in whole]
        assert {(each.saga_id, each.reason) for each in said.diverged} == told


def test_the_longer_history_stays(tmp_path):
    """MG-3: a log and a later copy of it merge to the later one; records, rows, facts and proofs are as they were."""
    with opened(tmp_path / "early.db", create=True) as log:
        everything(log)
    shutil.copy(tmp_path / "early.db", tmp_path / "late.db")
    with opened(tmp_path / "late.db") as log:
        committed(log, 500)
        redact(log, saga_id(1), "kwargs", by="ann")
        prune(log, before_ns=NOW, by="ann", payloads_only=True)
    files, done = merged(tmp_path / "out.db", tmp_path / "early.db", tmp_path / "late.db")
    assert (done.diverged, len(files), len(done.logs)) == ((), 1, 1)
    with opened(files[0]) as out, opened(tmp_path / "late.db") as late:
        chains = {row.saga_id: out.records(row.saga_id) for row in all_rows(out)}
        assert chains.keys() == {row.saga_id for row in all_rows(late)}
        for one, records in chains.items():
            assert [(r.n, r.body, r.payload, r.hash) for r in records] == [
                (r.n, r.body, r.payload, r.hash) for r in late.records(one)
            ]
            assert sorted(out.facts_of(one)) == sorted(late.facts_of(one))
        assert sorted(out.facts("total")) == sorted(late.facts("total"))
        proven = check_proof(prove(out, saga_id(500)), verifier=None, checkpoint=checkpoint_of(out).text())
        assert proven.view.state == "committed"


def test_two_devices_that_both_worked_on_one_saga_have_diverged(tmp_path):
    """MG-4: neither history is chosen: both are kept apart, the exit code is 1, and merging on keeps saying so."""
    with opened(tmp_path / "a.db", create=True) as log:
        partial(log, 2)
        committed(log, 1)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    for name, number in (("a.db", 100), ("b.db", 200)):
        with opened(tmp_path / name) as log:
            settle(log, number, saga_id(2))
    words = ["merge", str(tmp_path / "a.db"), str(tmp_path / "b.db"), "--out", str(tmp_path / "out.db")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1
    assert f"saga {saga_id(2)}: its histories part after" in done.output
    with opened(tmp_path / "out.db") as log:
        assert [row.saga_id for row in all_rows(log)] == [saga_id(1)]
    for number in (1, 2):
        with opened(tmp_path / f"out.db-diverged-{number}") as log:
            assert verify(log).sagas == 2
    files, again = merged(tmp_path / "again.db", tmp_path / "out.db", tmp_path / "a.db")
    assert [one.saga_id for one in again.diverged] == [saga_id(2)]
    assert len(files) == 3


def test_a_key_that_two_devices_opened_has_diverged(tmp_path):
    """MG-5: two sagas of one incarnation of a key are kept apart: which of them is order 42, nobody can tell."""
    for name, number in (("a.db", 1), ("b.db", 2)):
        with opened(tmp_path / name, create=True) as log:
            committed(log, number, key="order-42")
            committed(log, number + 10)
    files, done = merged(tmp_path / "out.db", tmp_path / "a.db", tmp_path / "b.db")
    assert {one.saga_id for one in done.diverged} == {saga_id(1), saga_id(2)}
    with opened(files[0]) as log:
        assert {row.saga_id for row in all_rows(log)} == {saga_id(11), saga_id(12)}
    assert len(files) == 3


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET pos = -pos; UPDATE records SET pos = 1 - pos - (SELECT min(pos) FROM records)",
        "UPDATE records SET pos = 99 WHERE pos = 1; UPDATE records SET pos = 1 WHERE pos = 2; "  # noqa: ISC004
        "UPDATE records SET pos = 2 WHERE pos = 99",
        "UPDATE meta SET value = replace(value, '\"last\":', '\"last\":1') WHERE name = 'merged'",
        "UPDATE meta SET value = replace(value, '\"skipped\":0', '\"skipped\":1') WHERE name = 'merged'",
        "UPDATE meta SET value = '{}' WHERE name = 'merged'",
        "DELETE FROM meta WHERE name = 'merged'",
        "DELETE FROM records WHERE saga = (SELECT saga FROM sagas WHERE amends IS NULL ORDER BY 1 LIMIT 1)",
    ],
)
def test_a_doctored_merge_is_noticed(tmp_path, sql):
    """MG-6: the order of a merged log follows from its chains, so nobody can choose another one."""
    with opened(tmp_path / "a.db", create=True) as log:
        committed(log, 1)
        committed(log, 3)
    with opened(tmp_path / "b.db", create=True) as log:
        committed(log, 2)
        partial(log, 4)
        settle(log, 5, saga_id(4))
    (out,), _ = merged(tmp_path / "out.db", tmp_path / "a.db", tmp_path / "b.db")
    with contextlib.closing(sqlite3.connect(out)) as db, db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for statement in sql.split("; "):
            db.execute(statement)
        for _, statement in triggers:
            db.execute(statement)
    with pytest.raises(CorruptLog), opened(out) as log:
        verify(log)
    with contextlib.suppress(KeyError, TypeError):  # It may as well stop at what makes no sense.
        assert independent(out) == 1


PROGRAM = """
import os, sys
from pathlib import Path
from agent_saga import AgentKit, compensator

@compensator("merge.refund", version=1, idempotent=True)
def refund(charge_id):
    with Path(sys.argv[-1] if "agent-saga" not in sys.argv[0] else os.environ["WORLD"]).open("a") as world:
        world.write(f"refund {charge_id}\\n")

if __name__ == "__main__":
    kit = AgentKit(log=sys.argv[1])
    charge = kit.wrap(lambda amount: {"id": f"ch_{amount}"}, name="charge", effect="compensable",
                      compensate=refund.bind(charge_id="result.id"))
    with kit.transaction("order", tags=[sys.argv[2]]):
        charge(amount=int(sys.argv[2]))
        os._exit(9)
"""


def test_recovery_works_on_a_merged_log(tmp_path, monkeypatch):
    """MG-7: sagas of devices whose processes died are finished in the merged log, which verifies and merges again."""
    program, world = tmp_path / "merge_program.py", tmp_path / "world"
    program.write_text(PROGRAM)
    for name, amount in (("a.db", "7"), ("b.db", "8")):
        died = subprocess.run([sys.executable, str(program), str(tmp_path / name), amount], check=False, timeout=60)
        assert died.returncode == 9
    (out,), done = merged(tmp_path / "out.db", tmp_path / "a.db", tmp_path / "b.db")
    assert (done.sagas, len(done.logs)) == (2, 2)
    words = [sys.executable, "-m", "agent_saga", "recover", "--import", str(program), "--log", str(out)]
    monkeypatch.setenv("WORLD", str(world))
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sorted(world.read_text().splitlines()) == ["refund ch_7", "refund ch_8"]
    assert independent(out) == 0
    with opened(out) as log:
        report = verify(log)
        assert prune(log, before_ns=NOW, by="ann").sagas == 2
        verify(log)
    assert report.sagas == 2
    with pytest.raises(UsageError, match="pruned"):
        merged(tmp_path / "again.db", out, tmp_path / "a.db")


def test_what_was_recovered_goes_on_from_its_device(tmp_path):
    """MG-8: a merged log that went on merges with the logs that it came from, and with others."""
    with opened(tmp_path / "a.db", create=True) as log:
        Scribe(log, 1).open().step()
    with opened(tmp_path / "b.db", create=True) as log:
        for number in range(2, 9):
            committed(log, number)
    (out,), _ = merged(tmp_path / "out.db", tmp_path / "a.db", tmp_path / "b.db")
    with opened(out) as log:
        committed(log, 20)
        (row,) = log.rows(Query(unsealed=True))
        assert row.saga_id == saga_id(1)
    (again,), done = merged(tmp_path / "again.db", out, tmp_path / "b.db", tmp_path / "a.db")
    assert len(done.logs) == 3
    with opened(again) as log:
        assert verify(log).sagas == 9
    with pytest.raises(UsageError, match="exists already"):
        merged(tmp_path / "again.db", out)
