"""What is drawn of a saga: read with every check, folded as recovery folds it, with damage as a part of the picture."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_saga.cli.reports import call
from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog
from agent_saga.machine.report import bucket_of, is_confirmed, step_reason
from agent_saga.machine.states import SagaState
from agent_saga.model.records import fields_of
from agent_saga.model.values import decode
from agent_saga.store.reader import check_record, complete_row, history
from agent_saga.store.removed import Removed
from agent_saga.store.together import quick_fold
from agent_saga_visuals.crop import counted, cropped
from agent_saga_visuals.looks import LEFT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import LogStore
    from agent_saga.store.reader import Checked

_LINE_MAX = 120
_LONG = 2000
"""Records from which a saga is folded without its values, which are read again for the steps that are drawn."""


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
        nodes: its steps; of very many the ends, those whose effect is left, and between them what stands for the rest.
        told: how many steps are in each state, drawn or not, in words.
        records: how many were read and checked.
        damage: what is wrong with its records, or None: then every record was checked.
    """

    saga_id: str
    name: str
    verdict: str
    cause: str
    nodes: tuple[Node, ...]
    told: str
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
    row = store.row(saga_id)
    if row is not None and isinstance(row.count, int) and row.count >= _LONG:
        with contextlib.suppress(CorruptLog):  # It is read again, and drawn up to where it is damaged.
            view = None if complete_row(store, saga_id) is None else quick_fold(store, row)
            if view is not None:
                return _drawn(view, row.count, values=_Values(store, view))
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
        saga_id=saga_id,
        name="",
        verdict="nothing can be read",
        cause="",
        nodes=(),
        told="no steps",
        records=0,
        damage=damage,
    )


def _drawn(view: SagaView, read: int, damage: str | None = None, *, values: _Values | None = None) -> Picture:
    states = {step.no: state_of(view, step) for step in view.steps.values()}
    nodes: list[Node] = []
    for no in cropped(states):
        if isinstance(no, list):
            nodes.append(_more(no, states))
            continue
        step = view.steps[no]
        nodes.append(_node(step, states[no], step.kwargs if values is None else values.kwargs_of(step)))
    return Picture(
        saga_id=view.id,
        name=visible(view.name),
        verdict=_verdict(view, set(states.values()))
        if damage is None
        else f"damaged; up to record {read}: {_verdict(view, set(states.values()))}",
        cause=visible(view.cause, length_max=None),
        nodes=tuple(nodes),
        told=counted(list(states.values())) or "no steps",
        records=read,
        damage=None if damage is None else visible(damage, length_max=_LINE_MAX),
    )


def _verdict(view: SagaView, states: set[str]) -> str:
    if not view.ended:
        return view.state.value.replace("_", " ")
    if view.state is SagaState.COMMITTED:
        return "committed" if not states & LEFT else "committed, with effects that are not settled"
    if states - {"compensated", "absent", "read_only"}:
        return "rolled back, partial"
    return "rolled back, clean" + (" and verified" if all(map(is_confirmed, view.steps.values())) else "")


def state_of(view: SagaView, step: StepView) -> str:
    """Return where a step's effect stands, as a key of `looks.LOOKS`."""
    if step.read_only:
        return "read_only"
    bucket = bucket_of(view, step)
    if bucket is None:
        return "absent"
    return "standing" if bucket == "kept" and not view.ended else bucket


def _node(step: StepView, state: str, texts: Mapping[str, str]) -> Node:
    kwargs: dict[str, Any] = {name: decode(text) for name, text in texts.items()}
    return Node(
        no=step.no,
        tool=visible(step.tool),
        call=visible(call(step.tool, kwargs), length_max=_LINE_MAX),
        state=state,
        note="" if state in {"kept", "standing"} else visible(step_reason(step), length_max=None),
        attempts=step.compensation_attempts,
        verified=step.verified,
    )


def _more(hidden: list[int], states: Mapping[int, str]) -> Node:
    words = counted([states[no] for no in hidden])
    return Node(
        no=hidden[0],
        tool="",
        call=f"to {hidden[-1]}: {len(hidden)} steps",
        state="more",
        note=words,
        attempts=0,
        verified=None,
    )


class _Values:
    """Reads the arguments of steps again, whose saga was folded without them."""

    def __init__(self, store: LogStore, view: SagaView) -> None:
        self._store, self._saga_id, self._removed = store, view.id, Removed.of(store, view.id)

    def kwargs_of(self, step: StepView) -> dict[str, str]:
        """Return the arguments of one step.

        Raises:
            CorruptLog: the record was changed since the saga was read.
        """
        before, stored = self._store.records(self._saga_id, after_n=step.intent_n - 2, limit=2)
        _, _, values = check_record(stored, before.hash, step.intent_n, self._removed)
        return {name.removeprefix("kwargs."): text for name, text in values.items() if name.startswith("kwargs.")}


_QUIET = frozenset({"kind", "v", "saga", "n", "pos", "at", "values", "owner", "key", "recipe", "digest", "version"})


def _said(record: AnyRecord) -> str:
    """Return a record in one line: its kind and the fields that a person asks for."""
    told = fields_of(record)
    fields = [
        f"{name}={value}" for name, value in told.items() if name not in _QUIET and value not in (None, "", [], False)
    ]
    return visible(f"{told['kind'].replace('_', ' ')} {' '.join(fields)}".strip(), length_max=_LINE_MAX)
