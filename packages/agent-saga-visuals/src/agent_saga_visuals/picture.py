"""What is drawn of a saga: read with every check, folded as recovery folds it, with damage as a part of the picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_saga.cli.reports import call
from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog
from agent_saga.machine.report import bucket_of, report_of, step_reason
from agent_saga.model.records import fields_of
from agent_saga.model.values import decode
from agent_saga.store.reader import complete_row, history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import LogStore
    from agent_saga.store.reader import Checked

_LINE_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step.

    Attributes:
        state: a key of `looks.LOOKS`.
        call: the call, shortened.
        note: why it stands so, or "".
        attempts: attempts to compensate it.
        verified: what the read-back after the compensation said, or None.
    """

    no: int
    tool: str
    call: str
    state: str
    note: str
    attempts: int
    verified: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One saga.

    Attributes:
        verdict: how it ended, in words; only what was read, when the log is damaged.
        damage: what is wrong with its records, or None: then every record was checked.
        records: how many were read and checked.
    """

    saga_id: str
    name: str
    verdict: str
    cause: str
    nodes: tuple[Node, ...]
    records: int
    damage: str | None = None

    @property
    def title(self) -> str:
        """What the picture shows, in one line."""
        return f"saga {self.saga_id} {self.name}: {self.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A saga after one record.

    Attributes:
        n, pos: number of the record in its saga, and position in the log.
        at: when it was written, in nanoseconds since 1970.
        said: the record in one line.
        amends: it belongs to a saga that amends this one.
    """

    n: int
    pos: int
    at: int
    said: str
    amends: bool
    picture: Picture


def picture_of(store: LogStore, saga_id: str) -> Picture:
    """Return the picture of one saga as its newest record leaves it. Damage is in the picture, not raised."""
    return changes(store, saga_id, told=False)[0]


def changes(store: LogStore, saga_id: str, *, told: bool = True) -> tuple[Picture, list[tuple[int, str]]]:
    """Return the picture of one saga, and how it came to be: (step, its new state), in order.

    Args:
        store: the log.
        saga_id: the saga.
        told: gather the changes; else there are none.
    """
    view: SagaView | None = None
    read, damage = 0, None
    states: dict[int, str] = {}
    found: list[tuple[int, str]] = []
    try:
        for checked, view in _records(store, saga_id):
            read += 1
            for step in _touched(view, checked[1]) if told else ():
                state = state_of(view, step)
                if states.get(step.no) != state:
                    states[step.no] = state
                    found.append((step.no, state))
    except CorruptLog as error:
        damage = str(error)
    return (_blank(saga_id, damage) if view is None else _drawn(view, read, damage)), found


def _touched(view: SagaView, record: AnyRecord) -> Iterable[StepView]:
    """Return the steps whose state a record may have changed."""
    no = getattr(record, "step", None)
    if no is None:
        return view.steps.values()
    return [view.steps[no]] if no in view.steps else []


def frames(store: LogStore, saga_id: str) -> Iterator[Frame]:
    """Yield the saga after each of its records, amendments included; the last one carries damage, if there is any."""
    pending: Frame | None = None
    damage: str | None = None
    try:
        for read, (checked, view) in enumerate(_records(store, saga_id), start=1):
            if pending is not None:
                yield pending
            pending = _frame(saga_id, checked[1], _drawn(view, read))
    except CorruptLog as error:
        damage = visible(error, length_max=_LINE_MAX)
    if pending is None:
        pending = Frame(n=0, pos=0, at=0, said="nothing can be read", amends=False, picture=_blank(saga_id, damage))
    yield pending if damage is None else replace(pending, picture=replace(pending.picture, damage=damage))


def _records(store: LogStore, saga_id: str) -> Iterator[tuple[Checked, SagaView]]:
    row = complete_row(store, saga_id)
    if row is None:
        raise CorruptLog("it has no row", saga_id=saga_id)
    yield from history(store, row)


def _frame(saga_id: str, record: AnyRecord, picture: Picture) -> Frame:
    amends = record.saga != saga_id
    return Frame(n=record.n, pos=record.pos, at=record.at, said=_said(record), amends=amends, picture=picture)


def _blank(saga_id: str, damage: str | None) -> Picture:
    damage = visible(damage or "it has no record that can be read", length_max=_LINE_MAX)
    return Picture(
        saga_id=saga_id, name="", verdict="nothing can be read", cause="", nodes=(), records=0, damage=damage
    )


def _drawn(view: SagaView, read: int, damage: str | None = None) -> Picture:
    return Picture(
        saga_id=view.id,
        name=visible(view.name),
        verdict=_verdict(view) if damage is None else f"damaged; up to record {read}: {_verdict(view)}",
        cause=visible(view.cause, length_max=None),
        nodes=tuple(_node(view, step) for step in view.steps.values()),
        records=read,
        damage=None if damage is None else visible(damage, length_max=_LINE_MAX),
    )


def _verdict(view: SagaView) -> str:
    if not view.ended:
        return view.state.value.replace("_", " ")
    report = report_of(view)
    if report.outcome != "rolled_back":
        return "committed" if not report.left else "committed, with effects that are not settled"
    return "rolled back, " + ("clean" if report.clean else "partial") + (" and verified" if report.verified else "")


def state_of(view: SagaView, step: StepView) -> str:
    """Return where a step's effect stands, as a key of `looks.LOOKS`."""
    if step.read_only:
        return "read_only"
    bucket = bucket_of(view, step)
    if bucket is None:
        return "absent"
    return "standing" if bucket == "kept" and not view.ended else bucket


def _node(view: SagaView, step: StepView) -> Node:
    kwargs: dict[str, Any] = {name: decode(text) for name, text in step.kwargs.items()}
    state = state_of(view, step)
    return Node(
        no=step.no,
        tool=visible(step.tool),
        call=visible(call(step.tool, kwargs), length_max=_LINE_MAX),
        state=state,
        note="" if state in {"kept", "standing"} else visible(step_reason(step), length_max=None),
        attempts=step.compensation_attempts,
        verified=step.verified,
    )


_QUIET = frozenset({"kind", "v", "saga", "n", "pos", "at", "values", "owner", "key", "recipe", "digest", "version"})


def _said(record: AnyRecord) -> str:
    """Return a record in one line: its kind and the fields that a person asks for."""
    told = fields_of(record)
    fields = [
        f"{name}={value}" for name, value in told.items() if name not in _QUIET and value not in (None, "", [], False)
    ]
    return visible(f"{told['kind'].replace('_', ' ')} {' '.join(fields)}".strip(), length_max=_LINE_MAX)
