"""A saga in this process: its view, its place in the log, and the calls that run now."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import CorruptLog, ForeignSaga, InvariantViolation, LogFailed, OwnerReplaced, SagaClosed
from agent_saga.machine import fold
from agent_saga.machine.gate import undo_refused
from agent_saga.machine.row import row_of
from agent_saga.machine.states import SagaState, TransitionError
from agent_saga.model import records as r
from agent_saga.model.values import encode, is_plain, redacted, storable_text
from agent_saga.runtime.clock import clock
from agent_saga.runtime.facts import KnownFacts
from agent_saga.runtime.interrupts import QuietLock
from agent_saga.runtime.ops import Commit
from agent_saga.runtime.withheld import into_values, leaves, withhold
from agent_saga.store.port import Amended, Committed, Draft, Item, Taken
from agent_saga.store.reader import checked_records

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from agent_saga.machine.row import Row
    from agent_saga.machine.view import SagaView
    from agent_saga.model.requirements import Requirement
    from agent_saga.runtime.lookback import Lookback
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.writer import Ticket, Writer

_QUIET: Final = frozenset(
    {
        r.ApprovalRequested,
        r.ApprovalDecided,
        r.ApprovalConsumed,
        r.Reserved,
        r.OperatorAction,
        r.Intent,
        r.Outcome,
        r.Decided,
        r.ScopeOpened,
        r.ScopeEnded,
        r.Replayed,
        r.Probed,
        r.Waived,
    }
)
"""Kinds that do not change the derived row of a saga that has not ended."""
_NO_VALUES: Final[dict[str, str]] = {}
_FREE_TEXTS: Final = frozenset({"reason", "cause", "error", "call_id", "call_scope"})
"""Fields whose text comes from exceptions, handlers and frameworks: it may be anything."""


class Flight:
    """A call that runs now.

    Attributes:
        done: set when the step has its outcome, or its late outcome. Made for the first one who asks: few do.
        given_up: the saga no longer waits for it; its answer is a late outcome.
        close: closes the stream that the call is (a sync or async function), or None.
    """

    __slots__ = ("_done", "_landed", "close", "given_up", "step", "thread")

    def __init__(self, step: int) -> None:
        self.step = step
        self._done: concurrent.futures.Future[None] | None = None
        self._landed = False
        self.given_up = False
        self.close: Callable[[], Any] | None = None
        self.thread = threading.get_ident()

    @property
    def done(self) -> concurrent.futures.Future[None]:
        """See the class."""
        with _done_lock:
            if self._done is None:
                self._done = concurrent.futures.Future()
                if self._landed:
                    self._done.set_result(None)
            return self._done

    def land(self) -> None:
        """Mark the call as ended; a second time changes nothing."""
        with _done_lock:
            waited_for = None if self._landed else self._done
            self._landed = True
        if waited_for is not None:
            waited_for.set_result(None)


_done_lock: Final = threading.Lock()
"""Held for a few instructions by whoever looks at, or ends, the call of a flight."""


class LiveSaga:
    """A saga that this process owns, or owned.

    Attributes:
        id: the id under which it writes: the saga's own, or that of the amendment.

    Every change goes through `emit`: the record is folded into the view and queued for the log under one lock, so
    the order in the log is the order in which the view changed.
    """

    def __init__(self, writer: Writer, view: SagaView, *, count: int, epoch: int) -> None:
        self.writer = writer
        self.view = view
        self.id = view.id
        self.epoch = epoch
        self.lock = QuietLock()
        self.pid = os.getpid()
        self.flights: dict[int, Flight] = {}
        self.closing: set[int] = set()
        self.ending: set[int] = set()
        self.open_scopes: set[int] = set()
        self.settling: dict[int, concurrent.futures.Future[None]] = {}
        self.closed = False
        self.replaced = False
        self.doomed: str | None = None
        self.frozen: str | None = None
        self.objects: dict[int, Any] = {}
        self.bound_objects: dict[int, dict[str, Any]] = {}
        self.binders: dict[int, Callable[[Any], Any]] = {}
        self.notes: dict[int, str] = {}
        self.withheld: set[str] = set()
        self.landings = 0
        self.end_waits = True  # For the device. Who ends many sagas may wait for it once, before telling anybody.
        self.revived: list[int] = []
        self.lookback: Lookback | None = None
        self.when_idle: Callable[[], None] | None = None
        self.committed_key = False
        self.resumed = False
        self.reentered: set[int] = set()
        self.paused: dict[str, str] = {}
        self.asked_for: set[str] = set()
        self.pauses: list[BaseException] = []
        self.unclaimed: set[int] = set()
        self.attempt_claims: dict[tuple[str | None, int], set[int]] = {}
        self.by_identity: dict[bytes, list[int]] = {}
        self.index_identities()
        self._count = count
        self._row: Row | None = None
        self._facts = KnownFacts(view)
        self._waiting: list[Draft] = []
        self._last: Ticket | None = None

    # -- opening ------------------------------------------------------------------------------------------------

    @classmethod
    def opening(cls, writer: Writer, record: r.SagaOpened) -> LiveSaga:
        """Return a new saga whose first record waits for the first thing worth writing."""
        live = cls(writer, fold.begin(record), count=0, epoch=record.epoch)
        live._waiting.append(Draft(body=record))
        return live

    def index_identities(self) -> None:
        """Index the steps of the view by the identity of their call."""
        for step in self.view.steps.values():
            identity = None if step.read_only else step.identity
            if identity is not None:
                self.by_identity.setdefault(identity, []).append(step.no)

    @property
    def in_log(self) -> bool:
        """Whether the saga has been given to the log."""
        return self._count > 0

    @property
    def count(self) -> int:
        """Records given to the log so far."""
        return self._count

    # -- writing ------------------------------------------------------------------------------------------------

    def emit(
        self,
        make: Callable[..., r.Record],
        values: Mapping[str, str] | None = None,
        *,
        durable: bool = False,
        hold: bool = False,
        requires: tuple[Requirement, ...] = (),
        **fields: Any,
    ) -> Ticket | None:
        """Fold a new record and queue it.

        Args:
            make: the record's class.
            values: value texts for the payload.
            durable: the commit must survive loss of power.
            hold: keep it until the next record that is not held (nothing waits for it).
            requires: what the log must check while committing.
            fields: of the body.

        Raises:
            InvariantViolation: the record cannot follow; nothing was written.
        """
        with self.lock:
            return self.emit_locked(make, values, durable=durable, hold=hold, requires=requires, **fields)

    def emit_locked(
        self,
        make: Callable[..., r.Record],
        values: Mapping[str, str] | None = None,
        *,
        durable: bool = False,
        hold: bool = False,
        requires: tuple[Requirement, ...] = (),
        **fields: Any,
    ) -> Ticket | None:
        """As `emit`; the caller holds the saga's lock."""
        if self.withheld or self.writer.sealed:
            values = dict(values or _NO_VALUES)
            withhold(self.withheld, fields, values, _FREE_TEXTS)
            if self.writer.sealed:
                into_values(make, fields, values)
        if not _FREE_TEXTS.isdisjoint(fields):
            for name in _FREE_TEXTS & fields.keys():
                if fields[name]:
                    fields[name] = storable_text(fields[name])
        now = clock()
        if values:
            commitments, payload = r.seal_values(values, now.entropy(16 * len(values)))
        else:
            commitments, payload, values = {}, None, _NO_VALUES
        body = make(v=r.FORMAT, saga=self.id, n=0, pos=0, at=now.time_ns(), values=commitments, **fields)
        draft = Draft(body=body, payload=payload)  # type: ignore[arg-type]
        self._fold(body, values)
        self._waiting.append(draft)
        return None if hold else self._put(body, durable=durable, requires=requires)

    def _fold(self, body: r.Record, texts: Mapping[str, str]) -> None:
        try:
            fold.apply(self.view, body, texts)
        except TransitionError as error:
            raise InvariantViolation(f"saga {self.id!r}: {error}; please report this") from error

    def _put(self, body: r.Record, *, durable: bool, requires: tuple[Requirement, ...] = ()) -> Ticket:
        drafts = self._waiting
        opened = drafts[0].body
        if type(opened) is r.SagaOpened and not opened.owner:
            # Nothing is opened before the first record: only now does this process need to show that it lives.
            opened.owner = self.writer.store.owner()
            self.view.owner = opened.owner if self.view.owner is not None else None
        view = self.view
        row = None
        if self._row is None or type(body) not in _QUIET or view.ended:
            row = row_of(view)
            row = None if row == self._row else row
        item = Item(
            saga_id=self.id,
            epoch=self.epoch,
            count=self._count,
            drafts=drafts,
            row=row,
            claims=type(opened) is r.Claimed,
            requires=requires,
            facts=None if view.gate is None else self._facts.change(view, drafts, requires),
        )
        # INVARIANT: what was folded waits until it is queued, whatever is raised before (RecursionError, say).
        self._last = self.writer.put(item, durable=durable)
        self._waiting, self._row = [], row or self._row
        self._count += len(drafts)
        return self._last

    def refused(self, no: int, reason: str, approvals: tuple[str, ...]) -> None:
        """Take back an intent that the log refused; the log keeps it, marked as refused, and it has no effect."""
        with self.undoing():
            fold.refuse(self.view, no, reason)
            undo_refused(self.view, no, approvals)

    @contextlib.contextmanager
    def undoing(self) -> Iterator[None]:
        """Take something back, in the view, that the log refused."""
        with self.lock, self._facts.corrected(self.view):
            yield

    def refresh(self) -> None:
        """Fold what others have stated about this saga since: words on its approvals.

        Raises:
            CorruptLog: the log is damaged.
        """
        with self.lock:
            if not self.in_log or self.view.amended == self.amendments_in_log():
                return
            store = self.writer.store
            stated = [known for other in store.amendments(self.view.id) for known in checked_records(store, other)]
            stated.sort(key=lambda known: known[0].pos)
            with self._facts.corrected(self.view):
                for _, record, values in stated[self.view.amended :]:
                    try:
                        fold.amend(self.view, record, values)
                    except TransitionError as error:
                        raise CorruptLog(str(error), saga_id=record.saga, n=record.n) from error

    def amendments_in_log(self) -> int:
        """Return how many records of other sagas amend this one."""
        row = self.writer.store.row(self.view.id)
        return 0 if row is None else row.amendments

    def put_held(self, *, durable: bool, requires: tuple[Requirement, ...] = ()) -> Ticket | None:
        """Queue what was held, as one item."""
        with self.lock:
            return self._put(self._waiting[-1].body, durable=durable, requires=requires) if self._waiting else None

    def write_opening(self) -> Ticket:
        """Queue the first record now, durably: the saga's key must be held before anything else happens."""
        with self.lock:
            return self._put(self._waiting[-1].body, durable=True)

    def wait_for(self, ticket: Ticket) -> Commit:
        """Return the operation that waits for a ticket and gives the store's verdict."""
        return Commit(self.writer, ticket)

    def flush_held(self) -> None:
        """Queue the records that were held, so that the background commit takes them."""
        with self.lock:
            if self._waiting:
                self._put(self._waiting[-1].body, durable=False)
                self.writer.note_work()

    def committed(self, ticket: Ticket | None, *, now: bool = False) -> Generator[Op, Any, None]:
        """Wait until a record is in the log.

        Args:
            ticket: what `emit` returned.
            now: block even in an event loop; for places where nothing may be awaited.

        Raises:
            LogFailed: the commit failed.
            OwnerReplaced: another process owns the saga.
        """
        if ticket is None:
            return
        verdict = self.writer.wait(ticket) if now else (yield Commit(self.writer, ticket))
        self.check_verdict(verdict)

    def commit_now(self, ticket: Ticket | None) -> None:
        """Block until a record is in the log; see `committed`."""
        if ticket is not None:
            self.check_verdict(self.writer.wait(ticket))

    def check_verdict(self, verdict: object) -> None:
        """Raise what a store's verdict means for the owner."""
        if isinstance(verdict, Committed):
            return
        self.replaced = True
        if isinstance(verdict, Taken):
            raise OwnerReplaced(f"saga {self.id!r}: its key is held by saga {verdict.saga_id!r}; nothing was written")
        raise OwnerReplaced(
            f"saga {self.id!r} is owned by another process now ({getattr(verdict, 'reason', verdict)}); this process "
            "may append nothing to it, and what its last call did is settled by the new owner"
        )

    # -- what may happen now ------------------------------------------------------------------------------------

    def check_accepts(self, scope: int, tool: str) -> None:
        """Raise when no step may start in `scope` now; the message can be read by a model."""
        if self.pid != os.getpid():
            self.check_owned(tool)
        if self.writer.failed is not None:
            raise LogFailed(f"{tool!r} did not run: {self.writer.failed}") from self.writer.failed
        if self.replaced:
            raise OwnerReplaced(f"saga {self.id!r} is owned by another process now; {tool!r} did not run")
        if self.doomed is not None:
            raise SagaClosed(f"saga {self.id!r} is going to roll back ({self.doomed}); {tool!r} did not run")
        if self.closed or self.view.state is not SagaState.OPEN:
            raise SagaClosed(
                f"saga {self.id!r} is {self.view.state.value}; {tool!r} did not run. Open a new saga for it"
            )
        if self.closing and any(self.view.is_within(scope, closing) for closing in self.closing):
            raise SagaClosed(f"saga {self.id!r} is ending or rolling back; {tool!r} did not run")

    @property
    def is_owned_here(self) -> bool:
        """Whether this is the process that opened or claimed the saga."""
        return self.pid == os.getpid()

    def check_owned(self, tool: str) -> None:
        """Raise in a process that is not the saga's own: after a fork, or in a worker."""
        if not self.is_owned_here:
            raise ForeignSaga(
                f"saga {self.id!r} belongs to process {self.pid}; {tool!r} did not run in process {os.getpid()}. "
                "Open a saga of its own in the worker (`independent=True`), or call the tool in the owner"
            )

    def running(self, scope: int) -> list[Flight]:
        """Return the calls of a scope that run now."""
        with self.lock:
            return [f for f in self.flights.values() if self.view.is_within(self.view.steps[f.step].scope, scope)]

    def is_ending_around(self, scope: int) -> bool:
        """Tell whether the saga, or a scope around this one, has ended or is being ended."""
        with self.lock:
            outer = [ending for ending in self.ending if ending != scope]
            return self.closed or any(self.view.is_within(scope, ending) for ending in outer)

    def open_inside(self, scope: int) -> list[int]:
        """Return the scopes within this one that were not left yet."""
        with self.lock:
            return [no for no in sorted(self.open_scopes) if no != scope and self.view.is_within(no, scope)]

    def land(self, flight: Flight) -> None:
        """Mark a call as ended."""
        with self.lock:
            idle = self._landed(flight)
        if idle is not None:
            idle()

    def land_locked(self, flight: Flight) -> None:
        """As `land`; the caller holds the saga's lock."""
        idle = self._landed(flight)
        if idle is not None:
            idle()

    def _landed(self, flight: Flight) -> Callable[[], None] | None:
        if self.flights.get(flight.step) is flight:
            del self.flights[flight.step]
        flight.land()
        return None if self.flights else self.when_idle

    def texts_of(self, no: int, kwargs: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> dict[str, str]:
        """Return a bound compensation's kwargs as stored, and keep here what the log cannot, or must not, hold."""
        texts, objects = {}, {}
        for name, value in kwargs.items():
            encoded = encode(value)
            texts[name] = redacted(value) if name in hidden else encoded.text
            if name in hidden or not (encoded.exact or is_plain(encoded.text)):
                objects[name] = value
        if objects:
            self.bound_objects[no] = objects
        return texts

    def withhold(self, names: Iterable[str], kwargs: Mapping[str, Any]) -> None:
        """Keep arguments out of the texts that the log will hold: errors may quote them."""
        for name in names:
            self.withheld |= leaves(kwargs.get(name))

    def forget_values(self) -> None:
        """Drop what was kept for replay and compensation in this process."""
        self.objects.clear()
        self.pauses.clear()
        self.bound_objects.clear()
        self.binders.clear()


class Amendment(LiveSaga):
    """A small saga that states facts about a sealed one, and compensates what became known too late.

    Records go into this saga's own chain; the view is that of the amended saga, amendments included.
    """

    def __init__(
        self, writer: Writer, target: SagaView, opened: r.SagaOpened, *, target_count: int, amendments: int
    ) -> None:
        super().__init__(writer, target, count=0, epoch=opened.epoch)
        self._own = fold.begin(opened)
        self.id = opened.saga  # Its own, not that of the saga that it amends.
        self._target_count = target_count
        self._amendments = amendments
        self._waiting.append(Draft(body=opened))
        fold.amend(target, opened, {})

    def adopt(self, own: SagaView, count: int) -> None:
        """Go on with an amendment that another process began."""
        self._own, self.id, self._count, self._waiting = own, own.id, count, []
        self.view.amended -= 1  # The opening record that the constructor folded is not written again.
        self.epoch = own.epoch + 1

    def _fold(self, body: r.Record, texts: Mapping[str, str]) -> None:
        try:
            fold.apply(self._own, body, texts)
            fold.amend(self.view, body, texts)
        except TransitionError as error:
            raise InvariantViolation(f"saga {self.id!r}, amending {self.view.id!r}: {error}") from error

    def _put(self, body: r.Record, *, durable: bool, requires: tuple[Requirement, ...] = ()) -> Ticket:
        drafts, self._waiting = self._waiting, []
        amended = Amended(
            saga_id=self.view.id,
            epoch=self.view.epoch,
            count=self._target_count,
            amendments=self._amendments,
            row=row_of(self.view),
            facts=self._facts.change(self.view, drafts),
        )
        self._amendments += len(drafts)
        item = Item(
            saga_id=self.id,
            epoch=self.epoch,
            count=self._count,
            drafts=drafts,
            row=row_of(self._own),
            claims=isinstance(drafts[0].body, r.Claimed),
            amended=amended,
        )
        self._count += len(drafts)
        self._last = self.writer.put(item, durable=durable)
        return self._last
