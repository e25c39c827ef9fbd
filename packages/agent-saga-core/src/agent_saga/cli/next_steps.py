"""Work items, and the exact command that does something about each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.terminal import moment, visible
from agent_saga.machine.plan import leftovers, needs_human
from agent_saga.machine.report import step_reason
from agent_saga.machine.states import STEP_TRANSITIONS, StepState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.machine.view import SagaView, StepView

MEANINGS: Final = {
    "happened": "the effect happened: the next recovery compensates it",
    "did-not-happen": "there is no effect",
    "compensated-by-hand": "somebody compensated it",
    "accept": "the effect stays as it is",
}
"""What the words of `settle` say, in the order in which they are offered."""
_FIRST_WORD: Final = {StepState.IN_DOUBT: "happened", StepState.CONFLICTED: "happened"}
"""The word of the printed command, `accept` elsewhere: pasted unread, it hides no effect that stands."""
_STATES: Final = {
    "standing": "is not compensated yet",
    "orphaned": "stands, an orphan",
    "in_doubt": "is in doubt",
    "compensating": "may be compensated or not",
    "conflicted": "is conflicted",
    "compensation_failed": "could not be compensated",
}
EVIDENCE: Final = "what you saw"
VALUE: Final = "VALUE"
"""Stands where only a person knows what the call returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """What is left of one step.

    Attributes:
        state: of its effect; `orphaned` when it stands and has no compensation.
        human: no retry can settle it.
        reason: why it is left.
        next: the exact command.
        retry: for a human: the command that tries the compensation again, where there is one that failed.
        words: for a human, what `settle --as` can say about it, and what that means.
    """

    saga_id: str
    step: int
    tool: str
    state: str
    human: bool
    reason: str
    next_at: int | None
    next: str
    retry: str | None
    words: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        names = ("step", "tool", "state", "human", "reason", "next_at", "next", "retry", "words")
        return {name: getattr(self, name) for name in names}


def work_items(
    view: SagaView,
    command_line: Callable[..., str],
    *,
    notes: Mapping[int, str] | None = None,
    imports: tuple[str, ...] = (),
) -> list[WorkItem]:
    """Return the work items of a saga, each with its command; none before it has ended.

    Args:
        view: the saga.
        command_line: makes a command for its log, as `Session.command_line`.
        notes: what a recovery found out about steps beyond the records.
        imports: what `--import` named.
    """
    left = leftovers(view) if view.ended else []
    return [_item(view, step, command_line, (notes or {}).get(step.no), imports) for step in left]


def _item(
    view: SagaView, step: StepView, command_line: Callable[..., str], note: str | None, imports: tuple[str, ...]
) -> WorkItem:
    orphan = step.state is StepState.STANDING and step.compensation is None
    human = needs_human(step)
    again = recover_command(view.id, command_line, imports)
    return WorkItem(
        saga_id=view.id,
        step=step.no,
        tool=step.tool,
        state="orphaned" if orphan else step.state.value,
        human=human,
        reason=note or _why(step, orphan=orphan),
        next_at=step.next_at,
        next=settle_command(step, command_line) if human else again,
        retry=again if human and step.state is StepState.COMPENSATION_FAILED else None,
        words=fitting_words(step) if human else {},
    )


def _why(step: StepView, *, orphan: bool) -> str:
    if step.settled_by is not None and step.state is StepState.STANDING and not orphan:
        return ""  # The reason is then the human's word, which does not say why the step is left.
    return step_reason(step) or ("it has no compensation" if orphan else "")


def fitting_words(step: StepView) -> dict[str, str]:
    """Return the words that a human may say about a step, with their meaning."""
    words = {word: meaning for word, meaning in MEANINGS.items() if (step.state, word) in STEP_TRANSITIONS}
    if "happened" in words and step.recipe is None and step.compensation is None:
        words["happened"] = "the effect happened: it has no compensation, so it stays listed until it is settled"
    return words


def settle_command(step: StepView, command_line: Callable[..., str]) -> str:
    """Return the command by which a human settles a step."""
    word = _FIRST_WORD.get(step.state, "accept")
    words = ["settle", step.saga_id, str(step.no), "--as", word, "--evidence", EVIDENCE, "--by", _person()]
    if word == "happened" and (result := needed_result(step)) is not None:
        words += ["--result", json.dumps(result)]
    return command_line(*words)


def recover_command(saga_id: str, command_line: Callable[..., str], imports: tuple[str, ...] = ()) -> str:
    """Return the command that tries one saga again now."""
    return command_line("recover", "--saga", saga_id, *(word for name in imports for word in ("--import", name)))


def needed_result(step: StepView) -> Any:
    """Return the shape of the result from which the step's compensation would be bound, or None when none is needed."""
    recipe = step.recipe
    if step.compensation is not None or recipe is None or recipe.bind is None:
        return None
    shape: Any = None
    for path in recipe.bind.values():
        root, *parts = path.split(".")
        if root == "result":
            shape = _with_path(shape, parts)
    return shape


def _with_path(shape: Any, parts: list[str]) -> Any:
    if not parts:
        return VALUE if shape is None else shape
    head, *rest = parts
    if head.isdigit():
        items = list(shape) if isinstance(shape, list) else []
        items += [None] * (int(head) + 1 - len(items))
        items[int(head)] = _with_path(items[int(head)], rest)
        return items
    fields = dict(shape) if isinstance(shape, dict) else {}
    return fields | {head: _with_path(fields.get(head), rest)}


def _person() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # No login name and no password entry, as in many containers.
        return "NAME"


def lines_of(item: WorkItem) -> list[str]:
    """Return a work item for people: what is left, why, and the command."""
    when = f"from {moment(item.next_at)} on" if item.next_at is not None else "by the next recovery"
    who = "needs a human" if item.human else f"to be done {when}"
    why = f": {visible(item.reason, length_max=300)}" if item.reason else ""
    lines = [
        f"step {item.step} {visible(item.tool)} {_STATES.get(item.state, item.state)}, {who}{why}",
        f"  next: {item.next}",
    ]
    lines += [f"    --as {word:<20} {meaning}" for word, meaning in item.words.items()]
    lines += [f"  or, once its compensation can work: {item.retry}"] if item.retry else []
    return lines
