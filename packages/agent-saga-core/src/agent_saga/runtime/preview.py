"""A preview: a plan of calls through gate and declarations, without any effect, record or reservation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused, StoreError, UndeclaredTool, UsageError
from agent_saga.model.effects import Allow, Ask, Effect, Refuse
from agent_saga.model.paths import PathMissing, resolve
from agent_saga.model.report import StepReport
from agent_saga.model.requirements import Free, Within, total
from agent_saga.runtime import halts
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.decision import decide
from agent_saga.runtime.declaration import encode_kwargs
from agent_saga.runtime.gate import IrreversibleAsks
from agent_saga.runtime.ops import Call, is_async
from agent_saga.runtime.previewed import Preview, PreviewedCall, Reservation, Undo
from agent_saga.runtime.proposal import identity_of_call, proposed
from agent_saga.runtime.registry import Binding
from agent_saga.runtime.spending import left_of
from agent_saga.runtime.step import ToolCall
from agent_saga.runtime.tool import visible_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from decimal import Decimal

    from agent_saga.model.call import Policy, ProposedCall
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.scope import ScopeEnvironment

CALLS_MAX: Final = 10_000


@dataclass(slots=True)
class _Look:
    """What the gate says of one call."""

    refusals: list[str] = field(default_factory=list)
    questions: list[tuple[str, str]] = field(default_factory=list)
    requires: list[Within] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    waited: bool = False


class StandIn:
    """What an effectful call of a plan returns when the preview was not told: nobody knows, so it is no value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self._name}.{name}")

    def __getitem__(self, name: object) -> StandIn:
        return StandIn(f"{self._name}.{name}")

    def __iter__(self) -> Any:
        return iter(())

    def __repr__(self) -> str:
        return f"<{self._name}, unknown in a preview>"


class PlannedSaga:
    """A saga as policies see it in a preview: what stands, and then what the plan would have done.

    Attributes:
        previews: nothing may be learned from it.
    """

    previews: Final = True

    def __init__(
        self, environment: ScopeEnvironment, *, name: str, tags: tuple[str, ...], policies: tuple[Policy, ...]
    ) -> None:
        around = current_saga_var.get()
        self.base: Saga | None = around if around is not None and around.environment is environment else None
        self.environment = environment
        self.id = "preview" if self.base is None else self.base.id
        self.name = name if self.base is None else self.base.name
        self.tags = tuple(dict.fromkeys((*(() if self.base is None else self.base.tags), *tags)))
        self.policies = (environment.policies if self.base is None else self.base.policies) + policies
        self.plan = self
        self.sync_in_loop = False
        self.scope = 0
        self.report = None
        self.results: Mapping[str, Any] = {}
        self.looked: list[PreviewedCall] = []
        self._steps: list[StepReport] = []
        self._places: list[tuple[str, StepReport]] = []
        self._identities: set[bytes] = set()
        self._spent: dict[str, Decimal] = {}
        self._base_steps = 0 if self.base is None else len(self.base.steps())

    def steps(self, after: int = 0) -> tuple[StepReport, ...]:
        """See SagaFacts.steps."""
        before = () if self.base is None else self.base.steps(after)
        return (*before, *self._steps[max(0, after - self._base_steps) :])

    def step(self, step_id: str) -> StepReport:
        """See SagaFacts.step."""
        planned = next((step for step in self._steps if step.step_id == step_id), None)
        if planned is None and self.base is not None:
            return self.base.step(step_id)
        if planned is None:
            raise UsageError(f"{step_id!r} is no step of this preview")
        return planned

    def places(self) -> tuple[tuple[str, StepReport], ...]:
        """See SagaFacts.places."""
        before = () if self.base is None else self.base.places()
        return (*before, *reversed(self._places))

    # -- calls that a plan makes ---------------------------------------------------------------------------------

    def call(self, call: ToolCall) -> Generator[Op, Any, Any]:
        """Look at a call that a plan makes, and answer it without its effect. Read-only tools run.

        Raises:
            GateRefused: it would be refused.
        """
        looked = yield from self.look(call.declaration, call.kwargs, adapter=call.adapter)
        if call.declaration.read_only:
            return (yield call.run(None))
        if looked.decision == "refuse":
            raise GateRefused(f"{looked.tool!r} would be refused: {'; '.join(looked.reasons)}")
        if looked.tool not in self.results:
            return StandIn(f"{looked.tool}.result")
        result = self.results[looked.tool]
        return result(dict(call.kwargs)) if callable(result) else result

    def look(
        self, declaration: Declaration, kwargs: Mapping[str, Any], *, adapter: str | None = None
    ) -> Generator[Op, Any, PreviewedCall]:
        """Look at one call, which counts as made for those after it unless it would be refused.

        Raises:
            UsageError: the plan has too many calls.
        """
        if len(self.looked) >= CALLS_MAX:
            raise UsageError(f"a preview looks at {CALLS_MAX} calls at most")
        given, flaw = _bound(declaration, kwargs)
        call = ToolCall(declaration=declaration, kwargs=given, run=_not_to_be_run, adapter=adapter)
        call.encoded = encode_kwargs(declaration, given)
        identity = None if declaration.read_only else identity_of_call(declaration, call.encoded)
        facts = proposed(call, repeats=identity is not None and self._stands(identity))
        look = _Look(refusals=[] if flaw is None else [flaw])
        if not declaration.read_only and flaw is None:
            yield from self._ask(declaration, facts, look)
        seen = PreviewedCall.of(
            len(self.looked) + 1,
            facts,
            call.encoded,
            refusals=look.refusals,
            questions=[reason for _, reason in look.questions],
            reserves=tuple(Reservation(budget=one.budget, amount=one.amount) for one in look.requires),
            resources=tuple(look.names),
            undo=_undo(declaration, facts, given),
        )
        self.looked.append(seen)
        if seen.decision != "refuse" and not declaration.read_only:
            self._made(seen, facts, identity, look)
        return seen

    def _ask(self, declaration: Declaration, call: ProposedCall, look: _Look) -> Generator[Op, Any, None]:
        if declaration.compensate is None and declaration.effect in {Effect.REVERSIBLE, Effect.COMPENSABLE}:
            look.refusals.append(f"it is declared {declaration.effect.value} and has no compensator")
        look.refusals += self._stops(call.tool)
        for policy in self.policies:
            name = type(policy).__name__
            match (yield from decide(policy, call, self, look)):
                case Refuse(reason):
                    look.refusals.append(f"{reason} ({name})")
                case Ask(reason=reason, requires=requires):
                    look.questions.append((name, f"{reason} ({name})"))
                    _note(requires, look)
                case Allow(requires=requires):
                    _note(requires, look)
        look.questions = [one for one in look.questions if one[0] != IrreversibleAsks.__name__] or look.questions
        try:
            look.refusals += self._unmet(declaration, call, look)
        except (StoreError, OSError) as error:
            look.refusals.append(f"what is spent and held cannot be read ({error})")

    def _stops(self, tool: str) -> list[str]:
        """Return why the call, or the saga that it would be made in, is stopped."""
        store = self.environment.writer().store
        stop = halts.covering(store, saga_id=self.id, tags=self.tags, tool=tool)
        if stop is None and self.base is None:
            try:
                halts.check_drain(store, self.name, self.tags)
            except GateRefused as drained:
                stop = str(drained)
        return [] if stop is None else [stop]

    def _unmet(self, declaration: Declaration, call: ProposedCall, look: _Look) -> list[str]:
        """Return what the log would refuse now: budgets that have not enough left, resources that others hold."""
        store, found = self.environment.writer().store, []
        for wanted in look.requires:
            left = left_of(store, wanted)
            taken = self._spent.get(wanted.budget)
            if left is not None and taken is not None:
                left = total(left, -taken)
            if left is None:
                found.append(f"what was spent of budget {wanted.budget!r} cannot be read: run agent-saga verify")
            elif wanted.amount > left:
                rest = f"has {max(left, 0 * left):f} left of {wanted.limit:f}, and {wanted.amount:f} is asked"
                found.append(f"budget {wanted.budget!r} {rest}")
        try:
            look.names += [template.format_map(dict(call.kwargs)) for template in declaration.resources]
        except Exception as error:  # noqa: BLE001 - the arguments' own methods may fail.
            found.append(f"a resource cannot be named: {type(error).__name__}")
        for name in sorted(set(look.names)):
            holders = [fact.saga_id for fact in store.facts("resource", name) if fact.saga_id != self.id]
            found += [f"resource {name!r} is held by saga {holder!r} until that is sealed" for holder in holders]
        return found

    def _stands(self, identity: bytes) -> bool:
        if self.base is None or identity in self._identities:
            return identity in self._identities
        live = self.base.live
        with live.lock:
            return any(live.view.steps[no].state == "standing" for no in live.by_identity.get(identity, ()))

    def _made(self, seen: PreviewedCall, call: ProposedCall, identity: bytes | None, look: _Look) -> None:
        step = StepReport(
            step_id=f"{self.id}:{self._base_steps + len(self._steps) + 1}",
            tool=seen.tool,
            effect=seen.effect,
            kwargs=dict(call.kwargs),
            key="",
            state="standing",
            attempts=0,
            reason="planned",
            result=None,
        )
        self._steps.append(step)
        if call.lives_in is not None:
            self._places.append((call.lives_in, step))
        if identity is not None:
            self._identities.add(identity)
        for one in look.requires:
            for name in (one.budget, *one.also):
                known = self._spent.get(name)
                self._spent[name] = one.amount if known is None else total(known, one.amount)


def _note(requires: Iterable[Any], look: _Look) -> None:
    for one in requires:
        if isinstance(one, Free):
            look.names.extend(one.names)
        else:
            look.requires.append(one)


def _bound(declaration: Declaration, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the arguments as the call would have them, defaults included, and why they do not fit the tool."""
    given = {name: value for name, value in kwargs.items() if name != declaration.key_param}
    if declaration.source is None:
        return given, None
    try:
        signature = visible_signature(declaration.source, declaration.key_param)
        bound = signature.bind(**given)
    except TypeError as error:
        return given, f"its arguments do not fit: {error}"
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        elif kind is not inspect.Parameter.VAR_POSITIONAL or value:
            named[name] = value
    return named, None


def _undo(declaration: Declaration, call: ProposedCall, kwargs: Mapping[str, Any]) -> Undo:
    """Return what would take the call back."""
    if declaration.read_only:
        return Undo(possible=True, sentence="nothing to take back")
    if declaration.effect is Effect.IRREVERSIBLE:
        return Undo(possible=False, sentence="it cannot be taken back")
    binding = declaration.compensate
    if binding is None:
        return Undo(possible=False, sentence="no compensator is declared")
    if not isinstance(binding, Binding):
        return Undo(possible=None, sentence="what takes it back is decided from its result")
    roots, wanted = {"kwargs": kwargs, "key": ""}, binding.bind or {}
    for path in wanted.values():
        if path.startswith("kwargs."):
            try:
                resolve(path, roots)
            except PathMissing as error:
                return Undo(possible=False, sentence=f"its compensation could not be bound: {error}")
    how = "restores it exactly" if declaration.effect is Effect.REVERSIBLE else "offsets it"
    until = "" if call.valid_for_s is None else f", for {float(call.valid_for_s):g} s after it ran"
    return Undo(
        possible=call.valid_for_s is None or call.valid_for_s > 0,
        sentence=f"{call.compensator} {how}{until}",
        compensator=call.compensator,
        valid_for_s=call.valid_for_s,
        lives_in=call.lives_in,
    )


def _not_to_be_run(_key: str | None) -> Call:
    raise UsageError("a preview ran a tool")


# -- plans -----------------------------------------------------------------------------------------------------------


def preview(planned: PlannedSaga, plan: object, results: Mapping[str, Any]) -> Generator[Op, Any, Preview]:
    """Return what the gate would say of each call of a plan.

    Args:
        planned: as whom the calls are made.
        plan: calls, or a function that makes them.
        results: what effectful tools return to the function: values, or functions of the arguments; by tool.

    Raises:
        UsageError: it is no plan.
    """
    planned.results = results
    stopped: str | None = None
    if callable(plan):
        stopped = yield from _run(planned, plan)
    else:
        for item in _calls(plan):
            yield from _planned_call(planned, item)
    return Preview(calls=tuple(planned.looked), stopped=stopped)


def _run(planned: PlannedSaga, plan: Callable[[], Any]) -> Generator[Op, Any, str | None]:
    """Run a function whose effectful calls only look as if they were made; return why it ended early."""
    token = current_saga_var.set(planned)  # type: ignore[arg-type]  # Wrapped tools ask it for `plan`, and no more.
    try:
        if is_async(plan):
            yield Call(plan, (), {})
        else:
            plan()
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's own function; the preview tells how far it came.
        return f"{type(error).__name__}: {error}"
    finally:
        current_saga_var.reset(token)
    return None


def _calls(plan: object) -> Iterable[Any]:
    if isinstance(plan, str | bytes | dict) or not hasattr(plan, "__iter__"):
        raise UsageError(f"a plan is a list of (tool, arguments), or a function; it is {plan!r}")
    return plan


def _planned_call(planned: PlannedSaga, item: Any) -> Generator[Op, Any, None]:
    if isinstance(item, dict) and "tool" in item:
        tool, kwargs = item["tool"], item.get("kwargs", {})
    elif isinstance(item, list | tuple) and len(item) == 2:  # noqa: PLR2004 - a pair.
        tool, kwargs = item
    else:
        raise UsageError(f"a call of a plan is (tool, arguments) or {{'tool': ..., 'kwargs': ...}}; it is {item!r}")
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise UsageError(f"the arguments of {tool!r} must be given by name, as a dict; they are {kwargs!r}")
    declaration = getattr(tool, "__agent_saga__", None)
    if declaration is None and isinstance(tool, str):
        declaration = planned.environment.declarations.find(tool)
        if declaration is None:
            planned.looked.append(_undeclared(planned, tool, kwargs))
            return
    if declaration is None:
        raise UsageError(f"{tool!r} is no tool: give its declared name, or what kit.wrap returned")
    yield from planned.look(declaration, kwargs)


def _undeclared(planned: PlannedSaga, tool: str, kwargs: dict[str, Any]) -> PreviewedCall:
    try:
        planned.environment.declarations.require([tool])
    except UndeclaredTool as error:
        return PreviewedCall.undeclared(len(planned.looked) + 1, tool, kwargs, str(error))
    raise UsageError(f"tool {tool!r} was declared meanwhile; preview the plan again")
