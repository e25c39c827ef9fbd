"""Is it safe to let an agent go on? What `kit.status()` and `agent-saga status` say, from the log as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import SagaError
from agent_saga.machine.states import SagaState
from agent_saga.runtime.halts import active
from agent_saga.runtime.spending import used_up
from agent_saga.store.port import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent_saga.model.call import Policy
    from agent_saga.runtime.writer import Writer
    from agent_saga.store.port import LogStore, StoredRow

SAGAS_LOOKED_AT_MAX: Final = 1000
"""Open sagas that are looked at, and named sagas in one line, are bounded: a status must come quickly."""
_NAMED_MAX: Final = 3
_STOPS: Final = {
    "halt": "halted, so the calls that it covers are not made",
    "drain": "drained, so no new saga opens",
    "quarantine": "quarantined, so it stays as it is",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Whether an agent may go on.

    Attributes:
        ready: there are no blockers.
        blockers: a line for each signal that stops effects, needs a human, or cannot be read.
        warnings: a line for each thing that somebody should look at.
    """

    ready: bool
    blockers: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        return {"ready": self.ready, "blockers": list(self.blockers), "warnings": list(self.warnings)}


def status_of_kit(writer: Callable[[], Writer], policies: Iterable[Policy] = ()) -> Status:
    """Return the status of a kit's log.

    Args:
        writer: gives the kit's writer; that it cannot be opened is a blocker, too.
        policies: the kit's; a budget of theirs of which nothing is left blocks.
    """
    try:
        opened = writer()
    except (SagaError, OSError) as error:
        return _status([f"the log cannot be opened: {error}"], [])
    failed = [] if opened.failed is None else [f"the log has failed in this process: {opened.failed}"]
    return status_of_log(opened.store, policies, blockers=failed)


def status_of_log(store: LogStore, policies: Iterable[Policy] = (), *, blockers: list[str] | None = None) -> Status:
    """Return the status of a log: each signal is read on its own, and one that cannot be read blocks.

    Args:
        store: the log.
        policies: whose budgets are looked at.
        blockers: what is known to block already.
    """
    found, warnings = list(blockers or ()), list[str]()
    signals = (
        ("halts", _blocking(_stops)),
        ("work for humans", _blocking(_work)),
        ("budgets", lambda log: used_up(log, policies)),
        ("requests for approval", _requests),
        ("open sagas", _left_behind),
    )
    for name, read in signals:
        try:
            for blocks, line in read(store):
                (found if blocks else warnings).append(line)
        except (SagaError, OSError, ValueError, TypeError) as error:
            found.append(f"{name} cannot be read: {type(error).__name__}: {error}")
    if store.location == "memory:":
        warnings.append("the log is kept in memory: nothing of it outlives the process")
    return _status(found, warnings)


def _status(blockers: list[str], warnings: list[str]) -> Status:
    return Status(ready=not blockers, blockers=tuple(blockers), warnings=tuple(warnings))


def _blocking(read: Callable[[LogStore], Iterator[str]]) -> Callable[[LogStore], Iterator[tuple[bool, str]]]:
    return lambda store: ((True, line) for line in read(store))


def _stops(store: LogStore) -> Iterator[str]:
    for fact in active(store, tuple(_STOPS)):
        yield f"{fact.name} is {_STOPS[fact.kind]}: {fact.value or 'no reason given'} (agent-saga lift {fact.name})"


def _work(store: LogStore) -> Iterator[str]:
    rows = store.rows(Query(needs_human=True, limit=SAGAS_LOOKED_AT_MAX))
    if rows:
        steps = sum(row.row.human for row in rows)
        yield f"{_count(steps, 'step')} of {_named(rows)} for a human to settle (agent-saga sagas --needs-human)"


def _requests(store: LogStore) -> Iterator[tuple[bool, str]]:
    waiting = [fact for fact in store.facts("approval") if fact.value == "pending"]
    if waiting:
        yield False, f"{_count(len(waiting), 'request')} for approval to answer (agent-saga approvals list)"


def _left_behind(store: LogStore) -> Iterator[tuple[bool, str]]:
    rows = store.rows(Query(unsealed=True, amendments=True, limit=SAGAS_LOOKED_AT_MAX))
    owners: dict[str, bool] = {}
    for row in rows:
        owner = row.row.owner
        if owner is not None and owner not in owners:
            owners[owner] = _is_dead(store, owner)
    dead = [row for row in rows if row.row.owner is not None and owners[row.row.owner]]
    if dead:
        yield False, f"{_named(dead)} left by dead processes (agent-saga recover)"
    suspended = [row for row in rows if row.row.state == SagaState.SUSPENDED]
    if suspended:
        yield False, f"{_named(suspended)} suspended"
    retried = [row for row in rows if row.row.owner is None and row.row.work > row.row.human]
    if retried:
        yield False, f"{_named(retried)} with compensations to try again (agent-saga recover)"


def _is_dead(store: LogStore, owner: str) -> bool:
    proof = store.prove_dead(owner)
    if proof is not None:
        proof.close()
    return proof is not None


def _named(rows: list[StoredRow]) -> str:
    names = ", ".join(row.saga_id for row in rows[:_NAMED_MAX])
    more = ", ..." if len(rows) > _NAMED_MAX else ""
    return f"{_count(len(rows), 'saga')} ({names}{more})"


def _count(number: int, what: str) -> str:
    at_least = "at least " if number >= SAGAS_LOOKED_AT_MAX else ""
    return f"{at_least}{number} {what}{'' if number == 1 else 's'}"
