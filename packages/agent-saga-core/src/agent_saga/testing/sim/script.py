"""What a simulated saga does: a scenario, its spelling as a token, and the program that runs it on the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import SagaRolledBack, SagaSuspended
from agent_saga.model.effects import Allow, Refuse
from agent_saga.runtime import ending
from agent_saga.runtime.opening import Opening, open_saga
from agent_saga.runtime.ops import Call
from agent_saga.runtime.saga import Limits, Saga
from agent_saga.runtime.scope import scope_number
from agent_saga.runtime.step import ToolCall, perform

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.model.call import ProposedCall
    from agent_saga.model.effects import Decision
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


class Boom(Exception):
    """What a simulated program raises by itself."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call: how its tool is declared, what the tool does, and what its compensator does.

    Attributes:
        decl: one of `DECLS`: what the compensator allows, and whether there is a probe.
        act: one of `ACTS`; `+` landed, `-` did not, `doubt` without an answer, `late` with one that comes later.
        undo: one of `UNDOS`; `once` and `thrice` fail so often and then work.
    """

    decl: str = "keyed"
    act: str = "ok"
    undo: str = "ok"

    def __str__(self) -> str:
        return f"{self.decl}:{self.act}:{self.undo}"


def is_honest(step: Step) -> bool:
    """Tell whether a tool is declared as it is: one whose requests travel says for how long, where that is asked."""
    return step.act != "travel" or step.decl not in {"probe", "absent"}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One saga.

    Attributes:
        steps: in order; a step that raises ends the scope unless the mode says otherwise.
        end: how the scope ends when no step ended it.
        mode: `catch` goes on after an error, `retry` makes the call again, `nested` puts all but the first step into
            a nested scope whose error is caught, `adapter` runs the steps as an adapter and swallows errors,
            `refuse` has a policy that refuses the last step, `key` gives the saga a business key.
        fault: commit of the process and what happens to it; see `SimLog.faults`.
        late: after how many operations the answer of a `late` call arrives.
    """

    steps: tuple[Step, ...]
    end: str = "commit"
    mode: str = "plain"
    fault: tuple[int, str | float] | None = None
    late: int = 0

    def __str__(self) -> str:
        """Return the token, which `parse` reads."""
        parts = [",".join(map(str, self.steps)), self.end, self.mode]
        if self.fault is not None:
            parts.append(f"fault={self.fault[0]}:{self.fault[1]}")
        if self.late:
            parts.append(f"late={self.late}")
        return "/".join(parts)


def parse(token: str) -> Scenario:
    """Return the scenario that `token` spells."""
    steps, end, mode, *options = token.split("/")
    named = dict(option.split("=", 1) for option in options)
    fault: tuple[int, str | float] | None = None
    if "fault" in named:
        number, _, what = named["fault"].partition(":")
        fault = int(number), what if what in {"lost", "kept"} else float(what)
    parsed = tuple(Step(*step.split(":")) for step in steps.split(",") if step)
    return Scenario(parsed, end, mode, fault, int(named.get("late", 0)))


class RefuseItem:
    """A policy that refuses one tool."""

    def __init__(self, item: str) -> None:
        self._item = item

    def decide(self, call: ProposedCall, saga: Any) -> Decision:
        """See Policy.decide."""
        return Refuse("simulated") if call.kwargs.get("item") == self._item else Allow()


LIMITS: Final = Limits(drain_s=5.0, rollback_timeout_s=3600.0, suspend_ttl_s=86_400.0)


class Specs(dict[str, "Step"]):
    """The steps by the items that their tools act on; each incarnation of a key acts on items of its own."""

    def __missing__(self, item: str) -> Step:
        return self[item.partition("~")[0]]


def items_of(scenario: Scenario, letter: str) -> dict[str, Step]:
    """Return the steps by the items that their tools act on."""
    return {f"{letter}{number}": step for number, step in enumerate(scenario.steps, start=1)}


def program(process: Process, scenario: Scenario, letter: str = "A") -> Generator[Op, Any, Saga]:
    """Run a scenario as one saga of a process; the same steps as `Transaction` makes around a user's block."""
    items = items_of(scenario, letter)
    policies = (RefuseItem(list(items)[-1]),) if scenario.mode == "refuse" else ()
    saga = yield from enter(
        process,
        letter,
        policies=policies,
        key=letter if scenario.mode in {"key", "resume"} else None,
        on_crash="resume" if scenario.mode == "resume" else "roll_back",
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
    try:
        yield from ending.end(saga, error)
    except GeneratorExit:
        raise
    except BaseException:
        ending.release_if_open(saga, "its scope could not be ended")
        raise
    finally:
        process.writer.leave(saga.live)
        if not saga.live.flights:
            saga.live.forget_values()
        process.stage.judge.told(saga)
    if error is not None:
        raise error


def _body(process: Process, saga: Saga, scenario: Scenario, items: list[str]) -> Generator[Op, Any, None]:
    if scenario.mode == "nested":
        yield from _nested(process, saga, items)
    else:
        for item in items:
            yield from _one(process, saga, item, scenario.mode)
    if scenario.end == "raise":
        raise Boom
    if scenario.end == "suspend":
        raise SagaSuspended("until somebody says so")
    if scenario.end == "ask":
        saga.roll_back("asked")


def _one(process: Process, saga: Saga, item: str, mode: str) -> Generator[Op, Any, None]:
    try:
        yield from perform(saga, call_of(process, item, adapter="sim" if mode == "adapter" else None))
    except Exception:
        if mode not in {"catch", "retry", "adapter"}:
            raise
        if mode == "retry":
            yield from perform(saga, call_of(process, item))


def _nested(process: Process, saga: Saga, items: list[str]) -> Generator[Op, Any, None]:
    first, *rest = items
    yield from perform(saga, call_of(process, first))
    number = scope_number(saga.live, 0, "inner")
    inner = Saga(saga.live, scope=number, limits=LIMITS, policies=(), environment=process.environment)
    error: Exception | None = None
    try:
        for item in rest:
            yield from perform(inner, call_of(process, item))
    except Exception as raised:  # noqa: BLE001 - the inner scope gets it.
        error = raised
    try:
        yield from ending.end(inner, error)
    except SagaRolledBack:
        return


def call_of(process: Process, item: str, *, adapter: str | None = None) -> ToolCall:
    """Return a call of an item's tool, as a wrapper or an adapter makes it."""
    declaration, fn = process.stage.tools.tool(item, process.stage.specs[item].decl)
    kwargs = {"item": item}

    def run(key: str | None) -> Call:
        return Call(fn, (), kwargs if key is None else {**kwargs, "idempotency_key": key})

    return ToolCall(declaration=declaration, kwargs=kwargs, run=run, adapter=adapter)
