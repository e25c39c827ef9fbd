"""The engines that this process protects, by name; and what runs on them outside of sagas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool, SingletonThreadPool, StaticPool
from sqlalchemy.util import greenlet_spawn

from agent_saga import Landed, NotLanded
from agent_saga_sqlalchemy import _guard_rows as guard_rows
from agent_saga_sqlalchemy._databases import Database
from agent_saga_sqlalchemy._restore import never_landed, restore
from agent_saga_sqlalchemy._rows import Facts

T = TypeVar("T")
LOCK_WAIT_S: Final = 10


@dataclass(slots=True, kw_only=True, eq=False)
class Protected:
    """An engine and what we know of its database.

    Attributes:
        name: of the engine in the log.
        engine: the sync one, inside an async one too.
        has_guard: the table of guard rows is known to be there.
        has_images: that of images is.
        facts: what tables looked like, with the stamp of that moment.
    """

    name: str
    engine: Engine
    database: Database
    requires_saga: bool
    has_guard: bool = False
    has_images: bool = False
    facts: dict[str, tuple[str, Facts]] = field(default_factory=dict)

    @property
    def tool(self) -> str:
        """The name of its steps."""
        return f"sqlalchemy:{self.name}"

    def facts_of(self, connection: Connection, name: str) -> Facts:
        """Return what the database says about a table."""
        stamp = self.database.stamp(connection, name)
        known = self.facts.get(name)
        if known is None or known[0] != stamp:
            known = self.facts[name] = (stamp, self.database.describe(connection, name))
        return known[1]

    def apart(self, work: Callable[[Connection], T]) -> Any:
        """Run `work` in a transaction of its own, without hooks; an awaitable where the engine is async.

        A connection of its own, too: handlers run in other threads and loops than the pool's connections belong to.
        """
        engine = self._bare()

        def run() -> T:
            with engine.begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'"))
                return work(connection)

        return greenlet_spawn(run) if engine.dialect.is_async else run()

    def _bare(self) -> Engine:
        pool = self.engine.pool
        if not isinstance(pool, StaticPool | SingletonThreadPool):  # Those hold the only copy of a database in memory.
            pool = NullPool(pool._creator, _dispatch=pool.dispatch, dialect=self.engine.dialect)  # noqa: SLF001 - as pool.recreate() does.
        return Engine(pool, self.engine.dialect, self.engine.url)


class Restore:
    """The compensator of an engine's steps."""

    def __init__(self, protected: Protected) -> None:
        self._protected = protected
        self.__qualname__ = f"Restore[{protected.name}]"

    def __call__(self, *, transaction: str, changes: Any) -> Any:
        database = self._protected.database
        return self._protected.apart(lambda connection: restore(connection, database, transaction, changes))


class IsRestored:
    """The verifier: the database itself says that the compensation was committed."""

    def __init__(self, protected: Protected) -> None:
        self._protected = protected
        self.__qualname__ = f"IsRestored[{protected.name}]"

    def __call__(self, *, transaction: str, changes: Any) -> Any:
        return self._protected.apart(
            lambda connection: guard_rows.state_of(connection, transaction, "compensation") == "done"
        )


class HasLanded:
    """The probe: the database itself says whether the step was committed; from then on it cannot be committed later."""

    def __init__(self, protected: Protected) -> None:
        self._protected = protected
        self.__qualname__ = f"HasLanded[{protected.name}]"

    def __call__(self, key: str, kwargs: Any) -> Any:
        def ask(connection: Connection) -> Landed | NotLanded:
            guard_rows.create(connection, self._protected.database)
            return NotLanded() if never_landed(connection, kwargs["transaction"]) else Landed(None)

        return self._protected.apart(ask)
