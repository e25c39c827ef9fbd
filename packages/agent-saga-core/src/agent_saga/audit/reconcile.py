"""Does the log tell the truth? The registered probes and verifiers are asked about each effect; nothing is changed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import HandlerUnavailable, RecordsPruned
from agent_saga.machine.states import StepState
from agent_saga.model.effects import Landed, NotLanded
from agent_saga.model.ids import compensation_key
from agent_saga.model.values import decode, is_plain
from agent_saga.runtime.ops import Invoke, drive
from agent_saga.runtime.registry import function_for
from agent_saga.store.reader import load
from agent_saga.store.verify import all_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.ops import Op
    from agent_saga.store.port import LogStore

ASK_S_MAX: Final = 30.0
_STANDS: Final = frozenset({StepState.STANDING, StepState.ACCEPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the outside world says about one effect.

    Attributes:
        verdict: `confirmed`, `drift` (it says otherwise) or `unverifiable` (nobody could be asked, or could tell).
        state: what the log says of the step.
    """

    saga_id: str
    step: int
    tool: str
    state: str
    verdict: str
    reason: str


def reconcile(store: LogStore, *, saga_id: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each effect of a log, or of one saga; read-only steps have none.

    Args:
        store: the log; nothing is appended to it.
        saga_id: only this saga.

    Raises:
        CorruptLog: a saga is damaged; nothing past it is asked about.
    """
    ids = [saga_id] if saga_id is not None else [row.saga_id for row in all_rows(store) if row.row.amends is None]
    for one in ids:
        try:
            loaded = load(store, one)
        except RecordsPruned as error:
            yield Finding(saga_id=one, step=0, tool="", state="pruned", verdict="unverifiable", reason=str(error))
            continue
        for step in () if loaded is None else loaded.view.steps.values():
            if not step.read_only:
                verdict, reason = _judge(step)
                yield Finding(
                    saga_id=one, step=step.no, tool=step.tool, state=step.state.value, verdict=verdict, reason=reason
                )


def _judge(step: StepView) -> tuple[str, str]:
    if step.state is StepState.COMPENSATED:
        return _ask_verifier(step)
    if step.state in _STANDS or step.state is StepState.ABSENT:
        return _ask_probe(step)
    return "unverifiable", f"the log itself does not know: the step is {step.state.value.replace('_', ' ')}"


def _ask_probe(step: StepView) -> tuple[str, str]:
    if step.probe is None:
        return "unverifiable", "the tool declares no probe"
    answer, problem = _asked(step.probe, {"key": step.key, "kwargs": _values(step.kwargs)}, step.kwargs)
    if problem or not isinstance(answer, Landed | NotLanded):
        return "unverifiable", problem or f"{step.probe} cannot tell: {answer!r}"
    if isinstance(answer, Landed) == (step.state in _STANDS):
        return "confirmed", f"{step.probe} says the same"
    return "drift", f"{step.probe} says that it {'landed' if isinstance(answer, Landed) else 'did not land'}"


def _ask_verifier(step: StepView) -> tuple[str, str]:
    recipe = step.recipe
    if recipe is None or recipe.verify is None:
        return "unverifiable", "its compensator has no verify"
    kwargs = step.compensation or {}
    keyed = (
        {} if recipe.key_param is None else {recipe.key_param: compensation_key(step.saga_id, step.no, step.generation)}
    )
    answer, problem = _asked(recipe.verify, _values(kwargs), kwargs, keyed)
    if problem or not isinstance(answer, bool):
        return "unverifiable", problem or f"{recipe.verify} returned {answer!r}, which is no answer"
    if answer:
        return "confirmed", f"{recipe.verify} says that it is compensated"
    return "drift", f"{recipe.verify} says that it is not compensated"


def _values(texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: decode(text) for name, text in texts.items()}


def _asked(
    name: str, given: dict[str, Any], texts: Mapping[str, str], keyed: Mapping[str, str] | None = None
) -> tuple[Any, str]:
    """Return an answer, or why there is none; `keyed` is given to whoever takes it."""
    lost = [value for value, text in texts.items() if not is_plain(text)]
    if lost:
        return None, f"{', '.join(lost)} is not in the log as it was, so {name} cannot be asked"
    try:
        fn = function_for(name)
        takes = inspect.signature(fn).parameters
        given |= {parameter: key for parameter, key in (keyed or {}).items() if parameter in takes}
        return drive(_invoke(fn, given)), ""
    except HandlerUnavailable as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - whoever fails to answer has answered nothing.
        return None, f"{name}: {type(error).__name__}: {error}"


def _invoke(fn: Callable[..., Any], given: dict[str, Any]) -> Generator[Op, Any, Any]:
    return (yield Invoke(fn, given, limit_s=ASK_S_MAX))
