"""Act III: a worker is killed between an effect and its outcome; other processes recover, twice."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.demo import tools
from agent_saga.demo.program import program
from agent_saga.demo.stage import LOG, DemoFailed, Played, check
from agent_saga.demo.worker import LANDED
from agent_saga.machine.report import report_of
from agent_saga.spi import read_records
from agent_saga.store.port import Query
from agent_saga.store.reader import load

if TYPE_CHECKING:
    from agent_saga.demo.stage import Stage
    from agent_saga.demo.world import Attempt
    from agent_saga.model.report import RollbackReport

PROCESS_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The worker's end.

    Attributes:
        pid: its process.
        signal: what ended it, as its parent was told.
        records: the kinds of the records that it left in the log, in order.
        lock_before, lock_after: its lock as another owner of a descriptor sees it: `held` or `free`.
    """

    pid: int
    signal: int
    records: list[str]
    lock_before: str
    lock_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One run of `agent-saga recover`, in a process of its own.

    Attributes:
        command: as it was run, in the stage's folder.
        attempts: the requests that the world received from it.
        records: the kinds of the records that it added to the saga, in order.
    """

    command: str
    exit_code: int
    attempts: list[Attempt]
    records: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActThree:
    """What the third act left.

    Attributes:
        key: the idempotency key in the intent.
        probed: what the probe answered, as the log has it; empty when it was not asked.
        recovered_after_s: from the kill until the recovering process was done.
    """

    saga_id: str
    key: str
    killed: Killed
    probed: dict[str, Any]
    recovered_after_s: float
    recoveries: list[Recovery]
    played: Played


def killed_in_the_middle(stage: Stage) -> ActThree:
    """Kill a worker whose first effect has landed and whose outcome is not written; recover, and recover again.

    Raises:
        DemoFailed: the recovery did not find the charge, did not give it back once, or something is left.
    """
    before = len(stage.world.attempts())
    saga_id, killed, killed_at = _kill_worker(stage, "cat")
    first = _recover(stage, saga_id)
    recovered_after_s = time.monotonic() - killed_at
    again = _recover(stage, saga_id)

    records = list(read_records(str(stage.log), saga_id))
    act = ActThree(
        saga_id=saga_id,
        key=next(record["key"] for record in records if record["kind"] == "intent"),
        killed=killed,
        probed=next((record for record in records if record["kind"] == "probed"), {}),
        recovered_after_s=round(recovered_after_s, 3),
        recoveries=[first, again],
        played=Played.by("cat", stage.world, after=before, report=_report(stage, saga_id)),
    )
    _check(act)
    return act


def _check(act: ActThree) -> None:
    first, again = act.recoveries
    killed, report = act.killed, act.played.report
    received = [(attempt.tool, attempt.effect) for attempt in act.played.attempts]
    check(killed.signal == signal.SIGKILL, f"the worker ended by {killed.signal}, not by SIGKILL")
    check(killed.records == ["saga_opened", "intent"], f"the worker left {killed.records} in the log")
    check(killed.lock_before == "held", "the lock of the living worker was free")
    check(killed.lock_after == "free", "the lock of the dead worker was held")
    check(act.probed.get("answer") == "landed", f"the probe should find the charge, not answer {act.probed}")
    check(received == [("charge", True), ("refund", True)], f"the world should get one charge, one refund: {received}")
    check(act.played.attempts[0].key == act.key, "the charge should carry the intent's key")
    check(report is not None and report.clean, f"Act III should be clean, not {report}")
    check(not act.played.standing, f"Act III should leave nothing, not {act.played.standing}")
    check(len(first.attempts) == 1, f"the first recovery should give the charge back once: {first}")
    check(not again.attempts and not again.records, f"the second recovery should do nothing: {again}")


def _kill_worker(stage: Stage, customer: str) -> tuple[str, Killed, float]:
    """Start a worker, wait until its first effect is in the world, and kill it; return its saga too, and the time."""
    command = [sys.executable, "-m", "agent_saga.demo.worker", str(stage.log), customer]
    with subprocess.Popen(  # noqa: S603 - this Python, our module.
        command,
        cwd=stage.folder,
        env=_environment(stage),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stderr is not None
            if worker.stdout.readline().strip() != LANDED:
                worker.kill()
                raise DemoFailed(f"the worker ended before it was killed: {worker.stderr.read().strip()}")
            saga_id, owner = _open_saga(stage)
            lock_before = _lock(stage, owner)
            check(len(stage.world.standing(customer)) == 1, "the worker's charge should be in the world")
            worker.send_signal(signal.SIGKILL)
            killed_at = time.monotonic()
        finally:
            worker.kill()
    killed = Killed(
        pid=worker.pid,
        signal=-worker.returncode,
        records=_kinds(stage, saga_id),
        lock_before=lock_before,
        lock_after=_lock(stage, owner),
    )
    return saga_id, killed, killed_at


def _recover(stage: Stage, saga_id: str) -> Recovery:
    attempts, records = len(stage.world.attempts()), len(_kinds(stage, saga_id))
    arguments = ["recover", "--log", LOG, "--import", tools.__name__]
    done = subprocess.run(  # noqa: S603 - our own program.
        [*program(), *arguments],
        cwd=stage.folder,
        env=_environment(stage),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
    )
    check(done.returncode == 0, f"recover exited {done.returncode}: {done.stdout}{done.stderr}".strip())
    return Recovery(
        command=shlex.join(["agent-saga", *arguments]),
        exit_code=done.returncode,
        attempts=stage.world.attempts(after=attempts),
        records=_kinds(stage, saga_id)[records:],
    )


def _environment(stage: Stage) -> dict[str, str]:
    return {**os.environ, tools.WORLD: str(stage.world.path)}


# -- reading back -------------------------------------------------------------------------------------------------


def _kinds(stage: Stage, saga_id: str) -> list[str]:
    return [record["kind"] for record in read_records(str(stage.log), saga_id)]


def _report(stage: Stage, saga_id: str) -> RollbackReport | None:
    with stage.reading() as store:
        loaded = load(store, saga_id)
    return None if loaded is None else report_of(loaded.view)


def _open_saga(stage: Stage) -> tuple[str, str]:
    """Return the only saga that is not sealed, and its owner."""
    with stage.reading() as store:
        rows = store.rows(Query(unsealed=True))
    check(len(rows) == 1 and rows[0].row.owner, f"the worker should own the only open saga: {rows}")
    return rows[0].saga_id, str(rows[0].row.owner)


def _lock(stage: Stage, owner: str) -> str:
    """Try to get the lock that an owner holds for life."""
    with stage.reading() as store:
        proof = store.prove_dead(owner)
        if proof is None:
            return "held"
        proof.close()
        return "free"
