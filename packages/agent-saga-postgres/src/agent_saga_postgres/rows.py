"""Rows of the tables, as the port names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.machine.gate import Fact
from agent_saga.machine.row import Row
from agent_saga.store.port import StoredRecord, StoredRow
from agent_saga_postgres.batch import restored, stored

if TYPE_CHECKING:
    from agent_saga.store.port import Query
    from agent_saga_postgres.link import Rows

ROW_COLUMNS: Final = (
    "saga, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human, sealed, amends, "
    "head, count, amendments, leaf"
)
_LIMIT_MAX: Final = 2**62


def rows_query(query: Query) -> tuple[Any, ...]:
    """Return the query for one page of rows, and its parameters."""
    where, values = [], list[Any]()
    if query.unsealed:
        where.append("NOT sealed")
    if query.needs_human:
        where.append("human > 0")
    if not query.amendments:
        where.append("amends IS NULL")
    if query.states is not None:
        first = len(values)
        values += query.states
        names = [f"${no}" for no in range(first + 1, len(values) + 1)]
        where.append(f"state IN ({', '.join(names)})" if names else "false")
    if query.name is not None:
        values.append(stored(query.name))
        where.append(f"name = ${len(values)}")
    if query.after is not None:
        values.append(stored(query.after))
        where.append(f"saga {'>' if query.unsealed else '<'} ${len(values)}")
    values.append(min(query.limit, _LIMIT_MAX))
    condition = f"WHERE {' AND '.join(where)} " if where else ""
    order = "ASC" if query.unsealed else "DESC"
    return f"SELECT {ROW_COLUMNS} FROM sagas {condition}ORDER BY saga {order} LIMIT ${len(values)}", *values  # noqa: S608


def stored_row(values: tuple[Any, ...]) -> StoredRow:
    """Return the row in the columns `ROW_COLUMNS`."""
    saga_id, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human = values[:12]
    sealed, amends, head, count, amendments, leaf = values[12:]
    row = Row(
        name=restored(name),
        key=None if key is None else restored(key),
        incarnation=incarnation,
        state=state,
        owner=None if owner is None else restored(owner),
        epoch=epoch,
        on_crash=on_crash,
        opened_at=opened_at,
        due_at=due_at,
        work=work,
        human=human,
        sealed=sealed,
        amends=None if amends is None else restored(amends),
    )
    return StoredRow(saga_id=restored(saga_id), row=row, head=head, count=count, amendments=amendments, leaf=leaf)


def stored_record(values: tuple[Any, ...]) -> StoredRecord:
    """Return a record: position, saga, number, body, payload, hash."""
    pos, saga_id, n, body, payload, digest = values
    return StoredRecord(pos=pos, saga_id=restored(saga_id), n=n, body=body, payload=payload, hash=digest)


def facts(rows: Rows) -> list[Fact]:
    """Return facts: kind, name, saga, number, value, time."""
    return [
        Fact(kind, restored(name), restored(saga), no, restored(value), at) for kind, name, saga, no, value, at in rows
    ]
