"""What a simulated saga does: a scenario, its spelling as a token, and the program that runs it on the engine."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import SagaRolledBack, SagaSuspended
from agent_saga.runtime import ending
from agent_saga.runtime.opening import Opening, open_saga
from agent_saga.runtime.ops import Call
from agent_saga.runtime.saga import Limits, Saga
from agent_saga.runtime.scope import scope_number
from agent_saga.runtime.step import ToolCall, perform
from agent_saga.testing.sim import policies
from agent_saga.testing.sim.world import Refused

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.runtime.ops import Op
    from agent_saga.testing.sim.stage import Process

ACTS: Final = ("ok", "fail", "doubt+", "doubt-", "late+", "late-", "travel")
UNDOS: Final = ("ok", "fail", "once", "thrice", "conflict", "doubt+", "doubt-")
DECLS: Final = (
    "keyed",
    "idem",
    "plain",
    "look",
    "keylook",
    "absent",
    "probe",
    "travel",
    "slow",
    "blind",
    "keytool",
    "callable",
    "final",
)
ENDS: Final = ("commit", "raise", "ask", "suspend")
MODES: Final = ("plain", "catch", "retry", "nested", "adapter", "refuse", "key", "resume")
MORE_ACTS: Final = ("again-", "okfail", "stream", "stream!", "stream~")
MORE_UNDOS: Final = ("hidden", "deaf+", "deaf-", "lie", "already")
MORE_DECLS: Final = ("unbound", "retried", "far", "farslow", "held", "named", "mumbling")
MORE_MODES: Final = ("again", "less", "lost", "deep", "apart", "open", "frozen", *policies.MODES)
"""What families of their own explore, and no product of all with all."""
STREAMS: Final = frozenset({"stream", "stream!", "stream~"})


class Boom(Exception):
    """What a simulated program raises by itself."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call: how its tool is declared, what the tool does, and what its compensator does.

    Attributes:
        decl: one of `DECLS`: what the compensator allows, and whether there is a probe.
        act: one of `ACTS`; `+` landed, `-` did not, `doubt` without an answer, `late` with one that comes later. Of
            `MORE_ACTS`: `again-` lands without an answer and fails when it is repeated, `okfail` fails when it is
            repeated; a stream is exhausted, fails (`!`) or is left open (`~`) after its first item.
        undo: one of `UNDOS`; `once` and `thrice` fail so often and then work. Of `MORE_UNDOS`: `hidden` is not seen by
            the first look, `deaf` cannot be looked at and has no answer at first, `lie` returns and does nothing at
            first, `already` has no answer at first and finds nothing to do when it is repeated.
    """

    decl: str = "keyed"
    act: str = "ok"
    undo: str = "ok"

    def __str__(self) -> str:
        return f"{self.decl}:{self.act}:{self.undo}"


def is_honest(step: Step) -> bool:
    """Tell whether a tool is declared as it is: one whose requests travel says for how long, where that is asked.

    A compensator that returns and did nothing is only promised to be noticed where somebody looks.
    """
    if step.undo in {"hidden", "deaf+", "deaf-", "lie"} and step.decl not in {"look", "keylook"}:
        return False
    return step.act != "travel" or step.decl not in {"probe", "absent", "mumbling"}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One saga.

    Attributes:
        steps: in order; a step that raises ends the scope unless the mode says otherwise.
        end: how the scope ends when no step ended it.
        mode: `catch` goes on after an error, `retry` makes the call again, `nested` puts all but the first step into
            a nested scope whose error is caught, `adapter` runs the steps as an adapter and swallows errors,
            `refuse` has a policy that refuses the last step, `key` gives the saga a business key, `resume` goes on
            with it after a death. Several are joined with `+`. Of `MORE_MODES`: `again` opens the key again after a
            death, `less` makes one call only when it is resumed, `lost` is never resumed, `deep` has a scope in a
            scope, `apart` an independent saga, `open` leaves a scope inside it open, `frozen` is quarantined after
            a death; the gate's are in `policies`.
        fault: commit of the process and what happens to it; see `SimLog.faults`.
        late: after how many operations the answer of a `late` call arrives.
        fault_later: the same as `fault`, for the first process that recovers.
    """

    steps: tuple[Step, ...]
    end: str = "commit"
    mode: str = "plain"
    fault: tuple[int, str | float] | None = None
    late: int = 0
    fault_later: tuple[int, str | float] | None = None

    def has(self, mode: str) -> bool:
        """Tell whether a mode is one of its modes."""
        return mode in self.mode.split("+")

    @property
    def resumes(self) -> bool:
        """Whether the program runs again after a death."""
        return self.has("resume") or self.has("again") or policies.waits_for_words(self.mode)

    def __str__(self) -> str:
        """Return the token, which `parse` reads."""
        parts = [",".join(map(str, self.steps)), self.end, self.mode]
        if self.fault is not None:
            parts.append(f"fault={self.fault[0]}:{self.fault[1]}")
        if self.late:
            parts.append(f"late={self.late}")
        if self.fault_later is not None:
            parts.append(f"later={self.fault_later[0]}:{self.fault_later[1]}")
        return "/".join(parts)


def parse(token: str) -> Scenario:
    """Return the scenario that `token` spells."""
    steps, end, mode, *options = token.split("/")
    named = dict(option.split("=", 1) for option in options)
    parsed = tuple(Step(*step.split(":")) for step in steps.split(",") if step)
    late = int(named.get("late", 0))
    return Scenario(parsed, end, mode, _fault(named.get("fault")), late, _fault(named.get("later")))


def _fault(text: str | None) -> tuple[int, str | float] | None:
    if text is None:
        return None
    number, _, what = text.partition(":")
    return int(number), what if what in {"lost", "kept"} else float(what)


LIMITS: Final = Limits(drain_s=5.0, rollback_timeout_s=3600.0, suspend_ttl_s=86_400.0)


class Specs(dict[str, "Step"]):
    """The steps by the items that their tools act on; each incarnation of a key acts on items of its own."""

    def __missing__(self, item: str) -> Step:
        return self[item.partition("~")[0]]


def items_of(scenario: Scenario, letter: str) -> dict[str, Step]:
    """Return the steps by the items that their tools act on."""
    return {f"{letter}{number}": step for number, step in enumerate(scenario.steps, start=1)}


def program(
    process: Process, scenario: Scenario, letter: str = "A", *, more: tuple[Any, ...] = ()
) -> Generator[Op, Any, Saga]:
    """Run a scenario as one saga of a process; the same steps as `Transaction` makes around a user's block.

    Args:
        process: where it runs.
        scenario: what it does.
        letter: the saga's name, and the first letter of the items that its tools act on.
        more: policies besides those of its modes.
    """
    items = items_of(scenario, letter)
    resumes = scenario.has("resume") or scenario.has("lost") or policies.waits_for_words(scenario.mode)
    saga = yield from enter(
        process,
        letter,
        policies=policies.of(process, scenario.mode, list(items)) + more,
        key=letter if scenario.has("key") or scenario.has("again") or resumes else None,
        on_crash="resume" if resumes else "roll_back",
    )
    error: BaseException | None = None
    try:
        again = saga.live.view.incarnation
        mine = list(items) if again == 1 else [f"{item}~{again}" for item in items]
        yield from _body(process, saga, scenario, mine)
    except GeneratorExit:
        raise
    except BaseException as raised:  # noqa: BLE001 - the scope gets it, as `__exit__` does.
        error = raised
    yield from leave(process, saga, error)
    return saga


def enter(
    process: Process, name: str, *, policies: tuple[Any, ...] = (), key: str | None = None, on_crash: Any = "roll_back"
) -> Generator[Op, Any, Saga]:
    """Open a saga."""
    opening = Opening(name=name, limits=LIMITS, key=key, on_crash=on_crash)
    live = yield from open_saga(process.writer, opening)
    process.writer.enter(live)
    return Saga(live, scope=0, limits=LIMITS, policies=policies, environment=process.environment)


def leave(process: Process, saga: Saga, error: BaseException | None) -> Generator[Op, Any, None]:
    """End a saga as `Transaction.__exit__` does; what left the scope goes on."""
    told = error
    process.ending = True
    try:
        yield from ending.end(saga, error)
    except GeneratorExit:
        raise
    except BaseException as raised:
        told = raised
        ending.release_if_open(saga, "its scope could not be ended")
        raise
    finally:
        process.ending = False
        process.writer.leave(saga.live)
        if not saga.live.flights:
            saga.live.forget_values()
        process.stage.judge.told(saga, left=error, told=told)
    if error is not None:
        raise error


def _body(process: Process, saga: Saga, scenario: Scenario, items: list[str]) -> Generator[Op, Any, None]:
    if scenario.has("less") and process.stage.resumed:
        items = items[:1]
    if scenario.has("nested"):
        yield from _one(process, saga, items[0], scenario.mode)
        yield from _nested(process, saga, items[1:])
    elif scenario.has("deep"):
        yield from _deep(process, saga, items)
    elif scenario.has("apart"):
        yield from _apart(process, saga, items)
    else:
        for item in items:
            yield from _one(process, saga, item, scenario.mode)
    if scenario.has("open"):
        inner(process, saga, 0)
    if scenario.end == "raise":
        raise Boom
    if scenario.end == "suspend":
        raise SagaSuspended("until somebody says so")
    if scenario.end == "ask":
        saga.roll_back("asked")


def _one(process: Process, saga: Saga, item: str, mode: str) -> Generator[Op, Any, None]:
    adapter = "sim" if "adapter" in mode else None
    try:
        yield from make(process, saga, item, adapter=adapter)
    except Exception:
        if not any(known in mode for known in ("catch", "retry", "adapter")):
            raise
        if "retry" in mode:
            yield from make(process, saga, item)
    if process.stage.specs[item].act == "okfail" and adapter is not None:
        with contextlib.suppress(Refused):
            yield from make(process, saga, item, adapter=adapter)


def make(process: Process, saga: Saga, item: str, *, adapter: str | None = None) -> Generator[Op, Any, None]:
    """Make one call, and take what it streams."""
    result = yield from perform(saga, call_of(process, item, adapter=adapter))
    act = process.stage.specs[item].act
    if act == "stream~":
        process.streams.append(result)
        next(result)
    elif act in STREAMS:
        for _ in result:
            pass


def inner(process: Process, saga: Saga, parent: int) -> Saga:
    """Open a nested scope."""
    number = scope_number(saga.live, parent, "inner")
    return Saga(saga.live, scope=number, limits=LIMITS, policies=saga.policies, environment=process.environment)


def leave_inner(process: Process, scope: Saga, error: Exception | None) -> Generator[Op, Any, None]:
    """End a nested scope, whose error is caught."""
    try:
        yield from ending.end(scope, error)
    except SagaRolledBack:
        return
    finally:
        process.stage.judge.told_inner(scope)


def _nested(process: Process, saga: Saga, items: list[str]) -> Generator[Op, Any, None]:
    scope = inner(process, saga, 0)
    error: Exception | None = None
    try:
        for item in items:
            yield from make(process, scope, item)
    except Exception as raised:  # noqa: BLE001 - the inner scope gets it.
        error = raised
    yield from leave_inner(process, scope, error)


def _deep(process: Process, saga: Saga, items: list[str]) -> Generator[Op, Any, None]:
    """The last step runs in a scope whose inner scope has ended; its error is caught outside of both."""
    first, *rest = items
    yield from make(process, saga, first)
    scope = inner(process, saga, 0)
    error: Exception | None = None
    try:
        yield from _nested_through(process, saga, scope, rest[:-1])
        yield from make(process, scope, rest[-1])
    except Exception as raised:  # noqa: BLE001 - the inner scope gets it.
        error = raised
    yield from leave_inner(process, scope, error)


def _nested_through(process: Process, saga: Saga, outer: Saga, items: list[str]) -> Generator[Op, Any, None]:
    innermost = inner(process, saga, outer.scope)
    error: Exception | None = None
    try:
        for item in items:
            yield from make(process, innermost, item)
    except Exception as raised:  # noqa: BLE001 - the scope gets it first.
        error = raised
    yield from leave_inner(process, innermost, error)
    if error is not None:
        raise error


def _apart(process: Process, saga: Saga, items: list[str]) -> Generator[Op, Any, None]:
    """All but the first step run in an independent saga; its error is caught."""
    first, *rest = items
    yield from make(process, saga, first)
    other = yield from enter(process, "independent")
    error: Exception | None = None
    try:
        for item in rest:
            yield from make(process, other, item)
    except Exception as raised:  # noqa: BLE001 - the other saga gets it.
        error = raised
    with contextlib.suppress(Exception):
        yield from leave(process, other, error)


def call_of(process: Process, item: str, *, adapter: str | None = None) -> ToolCall:
    """Return a call of an item's tool, as a wrapper or an adapter makes it."""
    spec = process.stage.specs[item]
    declaration, fn = process.stage.tools.tool(item, spec.decl, streams=spec.act in STREAMS)
    kwargs = {"item": item}

    def run(key: str | None) -> Call:
        return Call(fn, (), kwargs if key is None else {**kwargs, "idempotency_key": key})

    return ToolCall(declaration=declaration, kwargs=kwargs, run=run, adapter=adapter)
