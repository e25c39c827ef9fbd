"""What a protected database costs: a row inserted and updated inside a saga, beside a bare engine."""

from __future__ import annotations

import time
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from agent_saga import AgentKit
from benchmark.measure import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLUSHES: Final = 300
LIMIT: Final = 9.0
"""An insert and an update: five statements in the place of two, for the rows before and after, put together anew."""


def flushes(folder: Path) -> Iterator[Result]:
    """Row by row, the bare engine beside the protected one, each of a SQLite file of its own."""
    sa: Any = import_module("sqlalchemy")  # In the dependency group `bench` only, so that types do not need it.
    kit = AgentKit(log=str(folder / "log.db"))
    columns = (sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.Integer))
    table = sa.Table("item", sa.MetaData(), *columns)
    bare, ours = (sa.create_engine(f"sqlite:///{folder / name}.db") for name in ("bare", "ours"))
    import_module("agent_saga_sqlalchemy").protect(ours, kit, name="bench")
    for engine in (bare, ours):
        table.create(engine)
    with kit.transaction("bench"), bare.connect() as one, ours.connect() as other:
        times = [(_timed(_writer(one, table, i)), _timed(_writer(other, table, i))) for i in range(FLUSHES)]
        one.commit()
        other.commit()
    kit.close()
    base, value = (median(column) * 1e6 for column in zip(*times, strict=True))
    what = "insert and update of a row, SQLAlchemy on SQLite"
    yield Result(row=what, value=value, unit="us", limit=LIMIT * base, base=base)


def _writer(connection: Any, table: Any, number: int) -> Callable[[], None]:
    def write() -> None:
        connection.execute(table.insert(), {"id": number, "n": 1})
        connection.execute(table.update().where(table.c.id == number), {"n": 2})

    return write


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
