"""`prove_rollback`: the user's own workflow is broken at each place, and the world is compared with the reports."""

from __future__ import annotations

import asyncio
import inspect
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from agent_saga.errors import UsageError
from agent_saga.machine.report import report_of
from agent_saga.runtime.clock import SystemClock, use_clock
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.ops import Op, adrive, drive, is_async
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.rehearsal import rehearsal, use_rehearsal
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga.testing.proving.faults import (
    CALL_FAULTS,
    COMPENSATION_FAULTS,
    INJECTED,
    Fault,
    InjectedInterrupt,
    quiet_threads,
)
from agent_saga.testing.proving.judge import Execution, comparable, judge
from agent_saga.testing.proving.proof import Broken, Finding, RollbackProof
from agent_saga.testing.proving.watch import UNKNOWN, Ask, Watch, differ

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator

    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.writer import Writer
    from agent_saga.testing.proving.faults import Place
    from agent_saga.testing.proving.watch import ScopeSeen

EXECUTIONS_MAX: Final = 2000


@overload
def prove_rollback(
    scenario: Callable[[], Coroutine[Any, Any, Any]],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    handled: Iterable[str] = (),
    executions_max: int = EXECUTIONS_MAX,
) -> Awaitable[RollbackProof]: ...
@overload
def prove_rollback(
    scenario: Callable[[], Any],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    handled: Iterable[str] = (),
    executions_max: int = EXECUTIONS_MAX,
) -> RollbackProof: ...
def prove_rollback(
    scenario: Callable[[], Any],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    handled: Iterable[str] = (),
    executions_max: int = EXECUTIONS_MAX,
) -> RollbackProof | Awaitable[RollbackProof]:
    """Break a workflow before and after each effect, in each compensation and from outside, and compare the world.

    The scenario runs once unbroken, to count its calls; then once for each call and each way to break it, and once
    for each compensation of each rollback and each way to break that. What a broken rollback leaves is finished by
    recovery. Around each saga, nested scope, call and compensation the world is looked at.

    Args:
        scenario: runs the workflow, with its own kits and tools; sync or async. It should do the same each time.
        snapshot: returns the world as a value that can be compared with `==`; without what no compensation could
            restore (ids, times).
        reset: brings the world back to where the scenario begins.
        handled: tools without which the workflow is meant to go on: a saga may commit although they failed.
        executions_max: stop after so many executions; the bound says so.

    Returns:
        What was found; to be awaited when the scenario is async.

    Raises:
        UsageError: it runs inside a saga or inside itself, `reset` does not bring the world back, or `executions_max`
            is too small.
        Exception: what `snapshot` or `reset` raised.

    Durability: each execution has a fresh log: in memory for kits whose log is `memory:`, else in a temporary file.
        The kits' own logs are not touched.

    Concurrency: it takes the place of the clock and stands beside the engine of the whole process; nothing else may
        use agent-saga meanwhile.
    """
    if current_saga_var.get() is not None or rehearsal() is not None:
        raise UsageError("prove_rollback must not run inside a saga, nor inside another rehearsal")
    if executions_max < 1:
        raise UsageError("executions_max must be at least 1")
    prover = _Prover(scenario, snapshot, reset, frozenset(handled), executions_max)
    return adrive(prover.prove()) if prover.is_async else drive(prover.prove())


class _ProofClock(SystemClock):
    """The machine's clock, without delays between attempts, and with the same ids in each run."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - ids of a test.

    def entropy(self, size: int) -> bytes:
        """See Clock.entropy."""
        return self._random.randbytes(size)

    @staticmethod
    def jitter() -> float:
        """See Clock.jitter."""
        return 0.0


class _Run(Op):
    """Run the scenario to its end; returns what left it."""

    __slots__ = ("scenario", "watch")

    def __init__(self, scenario: Callable[[], Any], watch: Watch) -> None:
        self.scenario, self.watch = scenario, watch

    def block(self) -> BaseException | None:
        """See Op.block."""
        try:
            with quiet_threads():
                result = self.scenario()
        except BaseException as error:  # noqa: BLE001 - looked at by `_told`, which raises what is not the scenario's.
            return self._told(error)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise UsageError(
                "the scenario returned something to be awaited, and nothing of it ran: pass the async function itself"
            )
        return None

    async def wait(self) -> BaseException | None:
        """See Op.wait."""
        task = self.watch.task = asyncio.ensure_future(self.scenario())
        try:
            with quiet_threads():
                await asyncio.wait([task])
        except asyncio.CancelledError:  # The test itself is cancelled.
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled():
            return asyncio.CancelledError()
        error = task.exception()
        return None if error is None else self._told(error)

    @staticmethod
    def _told(error: BaseException) -> BaseException:
        if isinstance(error, (Exception, *INJECTED)) or not isinstance(error, KeyboardInterrupt | SystemExit):
            return error
        raise error


class _Prover:
    """One `prove_rollback`."""

    def __init__(
        self,
        scenario: Callable[[], Any],
        snapshot: Callable[[], Any],
        reset: Callable[[], Any],
        handled: frozenset[str],
        executions_max: int,
    ) -> None:
        self.scenario, self.snapshot, self.reset = scenario, snapshot, reset
        self.handled, self.executions_max = handled, executions_max
        self.is_async = is_async(scenario)
        self.broken: list[Broken] = []
        self.findings: dict[tuple[str, str, str], Finding] = {}
        self.start: Any = UNKNOWN
        self.not_compared = self.out_of_reach = 0
        self.stopped = False

    def prove(self) -> Generator[Op, Any, RollbackProof]:
        """Run all executions."""
        clock_before = use_clock(_ProofClock())
        try:
            with tempfile.TemporaryDirectory(prefix="agent-saga-proof-") as folder:
                yield from self._all(Path(folder))
        finally:
            use_clock(clock_before)
        return RollbackProof(
            executions=len(self.broken),
            broken=tuple(self.broken),
            findings=tuple(self._telling()),
            bound=self._bound(),
        )

    def _all(self, folder: Path) -> Generator[Op, Any, None]:
        unbroken = yield from self._execute(folder, ())
        self._check_sight(unbroken, self.broken[0].raised)
        calls = [event.place for event in unbroken.events if event.place.of == "call" and event.step is not None]
        yield from self._in_compensations(folder, (), unbroken)
        for place in calls:
            for how in CALL_FAULTS:
                fault = Fault(how=how, at=place)
                watch = yield from self._execute(folder, (fault,))
                if how == "fails_next":
                    yield from self._in_compensations(folder, (fault,), watch)

    def _in_compensations(self, folder: Path, because: tuple[Fault, ...], seen: Watch) -> Generator[Op, Any, None]:
        places: list[Place] = [event.place for event in seen.events if event.place.of == "compensation"]
        for place in places:
            for how in COMPENSATION_FAULTS:
                yield from self._execute(folder, (*because, Fault(how=how, at=place)))

    # -- one execution ------------------------------------------------------------------------------------------

    def _execute(self, folder: Path, faults: tuple[Fault, ...]) -> Generator[Op, Any, Watch]:
        number = len(self.broken) + 1
        watch = Watch(snapshot=self.snapshot, faults=faults, folder=folder / str(number))
        if number > self.executions_max:
            self.stopped = True
            return watch
        watch.folder.mkdir()
        yield Ask(self.reset)
        self._check_reset((yield from watch.look()), watch)
        use_rehearsal(watch)
        try:
            error = yield _Run(self.scenario, watch)
            watch.recovering = True
            yield from self._recover(watch)
            reports = {saga_id: report for writer in watch.writers() for saga_id, report in _reports(writer)}
        finally:
            use_rehearsal(None)
            watch.close()
        if watch.failure is not None:
            raise watch.failure
        self._judge(watch, reports, error)
        return watch

    def _recover(self, watch: Watch) -> Generator[Op, Any, None]:
        """Finish what the run left, as `agent-saga recover` would, and look at the world again."""
        for writer in watch.writers():
            for row in [row for row in writer.store.rows(Query(unsealed=True)) if row.row.state != "suspended"]:
                try:
                    yield from sweep(writer, saga_id=row.saga_id)
                except InjectedInterrupt:  # Each fault strikes once.
                    yield from sweep(writer, saga_id=row.saga_id)
        if not watch.scopes:
            return
        last = max(watch.scopes, key=lambda scope: scope.ended)
        if last.saga.scope == 0 and last.ended:
            last.after = yield from watch.look()
            last.ended = max([last.ended, *(event.ended for event in watch.events)])
            loaded = load(last.saga.live.writer.store, last.saga.id)
            if loaded is not None:
                last.report = report_of(loaded.view)

    def _judge(self, watch: Watch, reports: dict[str, RollbackReport], error: BaseException | None) -> None:
        what = " and ".join(fault.describe(is_async=self.is_async) for fault in watch.faults) or "unbroken"
        self.broken.append(
            Broken(
                what=what,
                reached=set(watch.faults) <= watch.struck | watch.out_of_reach,
                sagas=tuple(_ending(scope) for scope in sorted(watch.scopes, key=lambda scope: scope.ended)),
                raised=None if error is None else type(error).__name__,
            )
        )
        self.out_of_reach += bool(watch.out_of_reach)
        self.not_compared += sum(not comparable(watch.events, scope) for scope in watch.scopes)
        run = Execution(what=what, events=watch.events, scopes=watch.scopes, reports=reports, handled=self.handled)
        for finding in judge(run):
            self._add(finding)

    def _telling(self) -> Iterator[Finding]:
        """Yield the findings, without suspicions of whom another finding has found out."""
        named = {f.subject for f in self.findings.values() if f.kind in {"lying_compensation", "not_idempotent"}}
        for finding in self.findings.values():
            if finding.kind != "world_differs" or not any(name in finding.text for name in named):
                yield finding

    def _add(self, finding: Finding) -> None:
        key = (finding.kind, finding.severity, finding.subject)
        known = self.findings.get(key)
        if known is None:
            self.findings[key] = finding
        elif finding.where[0] not in known.where:
            self.findings[key] = replace(known, where=known.where + finding.where)

    # -- can this prove anything? -------------------------------------------------------------------------------

    def _check_reset(self, world: Any, watch: Watch) -> None:
        if watch.failure is not None:
            raise watch.failure
        if self.start is UNKNOWN:
            self.start = world
        elif differ(self.start, world):
            raise UsageError(
                f"reset() does not bring the world back after {self.broken[-1].what!r}: it was {self.start!r} before "
                f"the first run, and is {world!r} now. Reset all that snapshot() shows, or leave it out of snapshot()"
            )

    def _check_sight(self, unbroken: Watch, raised: str | None) -> None:
        """A proof that looked at nothing proves nothing."""
        calls = [event for event in unbroken.events if event.place.of == "call" and event.step is not None]
        effects = [event for event in calls if event.ran]
        if not effects:
            text = f"the unbroken run made {len(calls)} calls of tools with an effect, and none returned"
            failed = [event for event in calls if event.error is not None]
            text += f"; {failed[0].tool!r} raised {failed[0].error!r}" if failed else ""
            text += f"; the scenario raised {raised}" if raised else ""
            text += ". Call wrapped tools inside a saga in the scenario"
            finding = Finding(
                kind="nothing_to_prove", severity="violation", subject="scenario", text=text, where=("unbroken",)
            )
            self._add(finding)
        elif not any(event.changed for event in effects):
            text = f"{len(effects)} calls with an effect ran, and it returned equal values before and after each"
            where = ("unbroken",)
            self._add(Finding(kind="blind_snapshot", severity="violation", subject="snapshot", text=text, where=where))

    def _bound(self) -> str:
        stop = "cancellation" if self.is_async else "Ctrl-C"
        unreached = sum(not one.reached for one in self.broken)
        ways, ways_back = len(CALL_FAULTS), len(COMPENSATION_FAULTS)
        parts = ["the unbroken run raised " + self.broken[0].raised] if self.broken[0].raised else []
        parts += [
            f"each call broken in {ways} ways and each compensation of each rollback in {ways_back}, {stop} included",
            "one fault at a time, and in compensations one more",
            "the process does not die here (the crash runner of pytest-agent-saga kills it)",
        ]
        if self.handled:
            parts.append(f"failures of {', '.join(sorted(self.handled))} are taken to be handled by the workflow")
        if self.not_compared:
            parts.append(f"{self.not_compared} scopes ran beside other calls, and their worlds were not compared")
        if self.out_of_reach:
            parts.append(f"{self.out_of_reach} calls run in threads of the workflow, which Ctrl-C does not reach")
        if unreached:
            parts.append(f"{unreached} executions did not come to the place to be broken: the scenario varies")
        if self.stopped:
            parts.append(f"stopped after executions_max={self.executions_max}")
        return "; ".join(parts)


def _reports(writer: Writer) -> Generator[tuple[str, RollbackReport], None, None]:
    """Yield what a log says of each of its sagas."""
    after = None
    while page := writer.store.rows(Query(after=after)):
        for row in page:
            loaded = load(writer.store, row.saga_id)
            if loaded is not None:
                yield row.saga_id, report_of(loaded.view)
        after = page[-1].saga_id


def _ending(scope: ScopeSeen) -> str:
    report = scope.report
    if report is None:
        return f"{scope.name}: {'not ended' if scope.ended == 0 else 'without a report'}"
    how = report.outcome.replace("_", " ")
    if report.outcome == "rolled_back":
        how += ", clean" if report.clean else ", partial"
    return f"{scope.name}: {how}"
