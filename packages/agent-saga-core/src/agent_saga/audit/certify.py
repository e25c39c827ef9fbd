"""Is every effect in a log accounted for? What was found, what was fine, and what could not be checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.audit import tree
from agent_saga.audit.anchor import check_anchor
from agent_saga.audit.leaves import Leaves, origin_of
from agent_saga.errors import CorruptLog, HandlerUnavailable
from agent_saga.machine.plan import leftovers
from agent_saga.machine.report import bucket_of, step_reason
from agent_saga.machine.states import SagaState
from agent_saga.model.report import BUCKETS
from agent_saga.runtime.registry import compensator_for
from agent_saga.store.reader import load
from agent_saga.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.audit.note import Checkpoint
    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.store.port import LogStore, StoredRow

_STANDING: Final = {
    "in_doubt": "in doubt: its effect may stand",
    "conflicted": "a conflict: its effect stands, changed by somebody else since",
    "failed": "its compensation keeps failing: its effect stands",
    "orphaned": "an orphan: its effect stands and has no compensation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not accounted for.

    Attributes:
        kind: `in_doubt`, `conflicted`, `failed`, `orphaned`, `open`, `overdue`, `dead`, `quarantined`, `handler` or
            `empty`.
        step: the number of the step, or None for the saga as a whole.
    """

    kind: str
    saga_id: str | None
    step: int | None
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        return {"kind": self.kind, "saga": self.saga_id, "step": self.step, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a log accounts for.

    Attributes:
        log: the log's origin.
        at: when, in nanoseconds since 1970, by this machine's clock.
        size, root: leaves of the log's tree, and its root as hex: what the certificate is about.
        effects: how many effects are in each bucket.
        findings: what is not accounted for; the log is certified when there is nothing.
        checked, not_checked: a line each.
    """

    log: str
    at: int
    sagas: int
    records: int
    size: int
    root: str
    effects: dict[str, int]
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def certified(self) -> bool:
        """Whether every effect is accounted for, as far as `checked` says."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        names = ("log", "at", "sagas", "records", "size", "root", "effects")
        return {
            **{name: getattr(self, name) for name in names},
            "certified": self.certified,
            "findings": [finding.to_dict() for finding in self.findings],
            "checked": list(self.checked),
            "not_checked": list(self.not_checked),
        }


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, dict[str, int], dict[str, int], list[Finding], bytes]).decode


class _Accounts:
    """Gathers what the sagas of a log account for, one after another."""

    def __init__(self, store: LogStore, *, now: int, handlers: bool) -> None:
        self._store, self._now, self._handlers = store, now, handlers
        self._frozen = {fact.name.removeprefix("saga:") for fact in store.facts("quarantine")}
        self.effects: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.doubts: Counter[str] = Counter()
        self.leaves = Leaves()
        self.sagas = 0

    def take(self) -> bytes:
        """See Visitor.take."""
        taken = _encode((self.sagas, self.effects, self.doubts, self.findings, self.leaves.packed()))
        self.sagas, self.effects, self.doubts, self.findings = 0, Counter(), Counter(), []
        self.leaves = Leaves()
        return taken

    def merge(self, taken: bytes) -> None:
        """See Visitor.merge."""
        sagas, effects, doubts, findings, leaves = _decode(taken)
        self.sagas += sagas
        self.effects.update(effects)
        self.doubts.update(doubts)
        self.findings += findings
        self.leaves.unpack(leaves)

    def add(self, stored: StoredRow, view: SagaView | None) -> None:
        """See Visitor.add."""
        self.leaves.add(stored)
        if view is None:
            self.doubts["sagas were pruned: that their effects were accounted for is their row's word"] += 1
            return
        if stored.row.amends is not None:  # Its steps are those of the saga that it amends.
            return
        self.sagas += 1
        if not view.ended:
            self._open(view)
        for step in view.steps.values():
            self._step(view, step)
        self._reachable(view)

    def _find(self, kind: str, view: SagaView, text: str, step: StepView | None = None) -> None:
        self.findings.append(Finding(kind=kind, saga_id=view.id, step=None if step is None else step.no, text=text))

    def _open(self, view: SagaView) -> None:
        state = view.state.value.replace("_", " ")
        due = view.expires_at if view.state is SagaState.SUSPENDED else view.deadline_at
        if view.id in self._frozen:
            self._find("quarantined", view, f"{state}, and frozen by a quarantine")
        elif due is not None and due <= self._now:
            self._find("overdue", view, f"{state}, and past its deadline")
        elif view.state is SagaState.SUSPENDED:
            self.doubts["sagas are suspended: their effects stand until they go on or end"] += 1
        elif view.owner is None:
            self._find("open", view, f"{state}, and nobody owns it: agent-saga recover finishes it")
        elif (proof := self._store.prove_dead(view.owner)) is not None:
            proof.close()
            self._find("dead", view, f"{state}, and its process is dead: agent-saga recover finishes it")
        else:
            self.doubts["sagas are open, and their processes live"] += 1

    def _step(self, view: SagaView, step: StepView) -> None:
        bucket = bucket_of(view, step)
        if bucket is None:
            if step.assumed and not step.read_only:
                self.doubts["failed calls are taken to have had no effect, by the public table only"] += 1
            return
        if not view.ended and bucket in {"kept", "in_doubt"}:
            self.effects["open"] += 1
            return
        self.effects[bucket] += 1
        if bucket in _STANDING:
            reason = step_reason(step)
            self._find(bucket, view, f"{step.tool}: {_STANDING[bucket]}{f' ({reason})' if reason else ''}", step)
        elif bucket == "compensated" and step.verified is not True:
            self.doubts["compensations are confirmed by their compensator's word alone, not by a read-back"] += 1
        elif bucket == "kept" and step.settled_by is not None:
            self.doubts["effects are settled by a human's word"] += 1

    def _reachable(self, view: SagaView) -> None:
        """Look at whether what may still have to be compensated can be, by the handlers that are loaded."""
        pending = leftovers(view) if view.ended else [step for step in view.steps.values() if not step.read_only]
        for step in pending:
            if step.recipe is None or bucket_of(view, step) in {None, "compensated"}:
                continue
            if not self._handlers:
                self.doubts[
                    "compensations may still be needed, and no handlers were loaded: name them by --import"
                ] += 1
                continue
            try:
                compensator_for(step.recipe.name, step.recipe.version)
            except HandlerUnavailable as error:
                self._find("handler", view, f"{step.tool}: {error}", step)


def certify(
    store: LogStore,
    *,
    saga_id: str | None = None,
    anchor: Checkpoint | None = None,
    handlers: bool = False,
    progress: Callable[[int, int], None] | None = None,
    processes: int = 1,
) -> Certificate:
    """Look at every effect in a log, or of one saga.

    Args:
        store: the log.
        saga_id: only this saga, with what amends it; the rest of the log is then not checked.
        anchor: a checkpoint of the log that was kept elsewhere.
        handlers: the modules with the compensators are loaded, so missing ones are findings.
        progress: called with records done and records in all, now and then.
        processes: see `store.verify.verify`.

    Raises:
        CorruptLog: the log is damaged, or is no extension of the anchor; nothing in it is certified.
    """
    accounts = _Accounts(store, now=time_ns(), handlers=handlers)
    if saga_id is None:
        report = verify(store, progress=progress, visitor=accounts, processes=processes)
        records, checked, unchecked = report.records, list(report.checked), list(report.unchecked)
    else:
        loaded = load(store, saga_id)
        if loaded is None:
            raise CorruptLog("it is not in the log", saga_id=saga_id)
        accounts.add(loaded.row, loaded.view)
        records, checked = loaded.row.count + loaded.row.amendments, ["chain, payloads and row of this saga"]
        unchecked = ["all other sagas of the log, its keys, facts and leaves"]
    leaves = accounts.leaves.in_order() if saga_id is None else []
    if anchor is not None and saga_id is None:
        checked += check_anchor(store, anchor, leaves)
    else:
        unchecked.append("a rewrite of the whole log: give a checkpoint that was kept elsewhere (--anchor)")
    if not accounts.sagas:
        accounts.findings.append(Finding(kind="empty", saga_id=None, step=None, text="the log holds no saga"))
    return Certificate(
        log=origin_of(store),
        at=time_ns(),
        sagas=accounts.sagas,
        records=records,
        size=len(leaves),
        root=tree.root_of(leaves).hex(),
        effects={bucket: accounts.effects[bucket] for bucket in (*BUCKETS, "open")},
        findings=tuple(accounts.findings),
        checked=tuple(checked),
        not_checked=(*unchecked, *_lines(accounts.doubts)),
    )


def _lines(doubts: Counter[str]) -> Iterator[str]:
    return (f"{count} {text}" for text, count in doubts.items())


def certify_rollback_safety(log: str, *, saga_id: str | None = None, handlers: bool = True) -> Certificate:
    """Certify a log that no command needs to be run for: in a test, or as a gate of a pipeline.

    Args:
        log: its path or URL.
        saga_id: only this saga.
        handlers: the compensators of this program are loaded, so one that is missing is a finding.

    Raises:
        LogMissing, LogUnusable: there is no log.
        CorruptLog: it is damaged.
    """
    from agent_saga.store.open import open_log

    store = open_log(log, create=False)
    try:
        return certify(store, saga_id=saga_id, handlers=handlers)
    finally:
        store.close()
