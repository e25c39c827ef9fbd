"""What a recovery would do, without doing it: `agent-saga recover --dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog, HandlerUnavailable, KeyUnavailable
from agent_saga.machine.plan import Action, leftovers, next_action, rollback_order
from agent_saga.runtime.clock import clock
from agent_saga.runtime.recover import candidates, verdict_on
from agent_saga.runtime.registry import compensator_for, function_for
from agent_saga.store.reader import load
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from agent_saga.cli.terminal import Output
    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.store.port import LogStore, StoredRow


def saga_plans(store: LogStore, saga_id: str | None) -> list[dict[str, Any]]:
    """Return what a sweep would do with each unsealed saga, as plain data."""
    now_ns = clock().time_ns()
    plans = []
    for row in list(candidates(store, saga_id)):
        try:
            plans.append(_plan(store, row, named=saga_id is not None, now_ns=now_ns))
        except KeyUnavailable as error:
            plans.append(_fields(row, "locked", damage=str(error)))
        except CorruptLog as error:
            if error.saga_id is None:
                raise
            plans.append(_fields(row, "damaged", damage=str(error)))
    return plans


def _plan(store: LogStore, row: StoredRow, *, named: bool, now_ns: int) -> dict[str, Any]:
    why = verdict_on(store, row, force=named, now_ns=now_ns)
    if why != "recover":
        return _fields(row, why)
    check_readable(store, row.saga_id, what="it would not be recovered")
    loaded = load(store, row.saga_id)
    steps = [] if loaded is None else _steps(loaded.view)
    stuck = loaded is not None and loaded.view.ended and steps and all(step["missing"] for step in steps)
    return _fields(row, "stuck" if stuck else "would_recover", steps=steps)


def _fields(
    row: StoredRow, action: str, *, steps: list[dict[str, Any]] | None = None, damage: str | None = None
) -> dict[str, Any]:
    return {
        "saga": row.saga_id,
        "name": row.row.name,
        "state": row.row.state,
        "action": action,
        "damage": damage,
        "steps": steps or [],
    }


def _steps(view: SagaView) -> list[dict[str, Any]]:
    order = list(reversed(leftovers(view))) if view.ended else rollback_order(view)
    planned = []
    for step in order:
        action = next_action(step)
        if action is not Action.NONE:
            what, missing = _words(step, action)
            planned.append(
                {"step": step.no, "tool": step.tool, "state": step.state.value, "action": what, "missing": missing}
            )
    return planned


def _words(step: StepView, action: Action) -> tuple[str, str]:
    """Return what would be done, and what that lacks here."""
    recipe = step.recipe
    try:
        match action:
            case Action.PROBE:
                function_for(step.probe or "")
                return f"ask the probe {step.probe!r}", ""
            case Action.VERIFY if recipe is not None:
                function_for(recipe.verify or "")
                return f"ask the verifier {recipe.verify!r}", ""
            case Action.COMPENSATE if recipe is not None:
                compensator_for(recipe.name, recipe.version)
                return f"compensate with {recipe.name!r}", ""
            case Action.ORPHAN:
                return "report it as an orphan", "it stands and has no compensation"
            case _:
                return "leave it to a human", "no retry can settle it"
    except HandlerUnavailable as error:
        return action.name.lower(), str(error)


def print_plans(out: Output, plans: list[dict[str, Any]]) -> None:
    """Print the plans, and that nothing was done."""
    for plan in plans:
        out.line(f"saga {plan['saga']} {visible(plan['name'])} ({visible(plan['state'])}): {_action(plan)}")
        for step in plan["steps"]:
            state = step["state"].replace("_", " ")
            missing = f": {visible(step['missing'], length_max=300)}" if step["missing"] else ""
            out.line(f"  step {step['step']} {visible(step['tool'])}, {state}: {step['action']}{missing}")
    out.line("dry run: nothing was run, nothing was recorded" if plans else "nothing to recover")


def _action(plan: dict[str, Any]) -> str:
    if plan["damage"] is not None:
        return f"{plan['action']}: {visible(plan['damage'], length_max=300)}"
    words = {
        "would_recover": "would be recovered",
        "stuck": "nothing can be done here",
        "live": "its process lives",
        "later": "tried again later",
        "resumable": "waits for a resume",
        "quarantined": "is quarantined, and left as it is",
    }
    return words.get(plan["action"], str(plan["action"]))
