"""`protect(engine, kit)`: the hooks of an engine, and the step that each of its transactions becomes."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from agent_saga import compensator, current_saga, current_step
from agent_saga.errors import NoSaga, UsageError
from agent_saga.spi import AgentKit, aguard, default_kit, guard
from agent_saga_sqlalchemy import _capture as capture
from agent_saga_sqlalchemy import _guard_rows as guard_rows
from agent_saga_sqlalchemy._databases import database_of
from agent_saga_sqlalchemy._engines import HasLanded, IsRestored, Protected, Restore
from agent_saga_sqlalchemy._info import NAME
from agent_saga_sqlalchemy._packing import PACKED_BYTES_MAX, fits, packed
from agent_saga_sqlalchemy._rows import OWN, Facts
from agent_saga_sqlalchemy._statements import DECLARED, NotCapturable, check_text, written_by
from agent_saga_sqlalchemy._transaction import Work, begin_work, forget_work, work_of

E = TypeVar("E", Engine, AsyncEngine)
_protected: Final[weakref.WeakKeyDictionary[Engine, Protected]] = weakref.WeakKeyDictionary()


def protect(engine: E, kit: AgentKit | None = None, *, name: str | None = None, requires_saga: bool = False) -> E:
    """Make the transactions of an engine steps of the sagas in which they run. Outside of sagas it is the bare engine.

    Args:
        engine: of SQLite or PostgreSQL, sync or async.
        kit: whose sagas they are; by default the default kit.
        name: of the engine in the log. A recovering process finds the database by it: the module that it imports
            (`--import`) must call `protect` with the same name. By default the name of the database.
        requires_saga: refuse writes outside of sagas.

    Returns:
        The same engine. Calling it again changes nothing.

    Raises:
        UsageError: neither SQLite nor PostgreSQL, or the engine is protected under another name.
    """
    sync = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    known = _protected.get(sync)
    name = name or (known.name if known else PurePath(sync.url.database or sync.dialect.name).stem.strip(":"))
    if known is None:
        known = Protected(name=name, engine=sync, database=database_of(sync.dialect.name), requires_saga=requires_saga)
        _listen(known)
        _protected[sync] = known
    if known.name != name:
        raise UsageError(f"this engine is protected as {known.name!r} already, and cannot be {name!r} too")
    _declare(known, kit or default_kit())
    return engine


def _declare(protected: Protected, kit: AgentKit) -> None:
    handler = compensator(
        f"{protected.tool}:restore", idempotent=True, safe_if_absent=True, verify=IsRestored(protected)
    )(Restore(protected))
    kit.declare(
        protected.tool,
        effect="reversible",
        compensate=handler.bind(transaction="kwargs.transaction", changes="kwargs.changes"),
        probe=HasLanded(protected),
        identity=("transaction",),
    )


def _listen(protected: Protected) -> None:
    hooks = _Hooks(protected)
    for name in ("before_execute", "after_execute", "before_cursor_execute", "begin", "commit", "rollback"):
        event.listen(protected.engine, name, getattr(hooks, name), retval=name == "before_execute")
    for name in ("savepoint", "rollback_savepoint", "release_savepoint", "prepare_twophase"):
        event.listen(protected.engine, name, getattr(hooks, name))


def _is_left_to_its_tool() -> bool:
    """Tell whether the tool that runs here declares an inverse of its own: what it writes is a part of its step."""
    saga, step = current_saga(), current_step()
    if saga is None or step is None:
        return False
    declaration = saga.environment.declarations.find(step.tool)
    return declaration is not None and declaration.compensate is not None


def _forget_failed(work: Work) -> None:
    """A statement before this one has failed; one of many parameter sets may have done a part of its work."""
    pending, work.pending = work.pending, None
    if pending is not None and len(pending.parameters) > 1:
        work.breaks(f"a statement on {pending.facts.name} with many parameter sets failed, and some of them may stand")


class _Hooks:
    """What is called around each statement and each transaction of an engine."""

    def __init__(self, protected: Protected) -> None:
        self._protected = protected

    # -- statements -------------------------------------------------------------------------------------------------

    def before_execute(
        self, connection: Connection, statement: Any, many: Any, parameters: Any, options: Mapping[str, Any]
    ) -> tuple[Any, Any, Any]:
        saga = current_saga()
        if options.get(DECLARED) == OWN[DECLARED] or (saga is None and not self._protected.requires_saga):
            return statement, many, parameters
        work = work_of(connection)
        if work is not None:
            _forget_failed(work)
        written = None if _is_left_to_its_tool() else written_by(statement, options)
        if written is None:
            return statement, many, parameters
        if saga is None:
            raise NoSaga(f"engine {self._protected.name!r} writes only inside a saga; the statement did not run")
        work = self._work(connection, saga.id, options)
        given = [dict(one) for one in many] if many else [dict(parameters or {})]
        facts = self._facts(connection, work, capture.table_of(written))
        statement = capture.before(
            connection,
            work,
            written,
            given,
            facts=facts,
            facts_of=lambda name: self._protected.facts_of(connection, name),
        )
        return statement, many, parameters

    def after_execute(  # noqa: PLR0917 - as before_execute.
        self,
        connection: Connection,
        statement: Any,
        many: Any,
        parameters: Any,
        options: Mapping[str, Any],
        result: Any,
    ) -> None:
        if current_saga() is None or options.get(DECLARED) == OWN[DECLARED]:
            return
        work = work_of(connection)
        if work is None or work.pending is None:
            return
        try:
            capture.after(connection, work, result)
        except BaseException as error:
            work.breaks(f"{type(error).__name__}: {error}")
            raise

    def before_cursor_execute(  # noqa: PLR0917 - as before_execute.
        self, connection: Connection, cursor: Any, sql: str, parameters: Any, context: Any, executemany: object
    ) -> None:
        """Look at SQL that comes as text, past SQLAlchemy (`exec_driver_sql`)."""
        if current_saga() is None or context is None or context.compiled is not None or _is_left_to_its_tool():
            return
        options = context.execution_options
        if options.get(DECLARED) != OWN[DECLARED]:
            check_text(sql, options)

    def _work(self, connection: Connection, saga_id: str, options: Mapping[str, Any]) -> Work:
        """Return the work of this transaction, which can be taken up."""
        if connection._is_autocommit_isolation():  # noqa: SLF001 - SQLAlchemy asks itself the same way.
            raise NotCapturable("a connection in AUTOCOMMIT has no transaction that could be captured; nothing ran")
        if options.get("schema_translate_map"):
            raise NotCapturable("schema_translate_map cannot be used inside a saga; the statement did not run")
        work = work_of(connection)
        if work is not None and work.saga_id != saga_id:
            raise NotCapturable(
                f"this transaction has changes of saga {work.saga_id!r}; it cannot go on in saga {saga_id!r}"
            )
        if work is None:
            self._protected.database.begin(connection)
            if not self._protected.has_guard:
                guard_rows.create(connection, self._protected.database)
            work = begin_work(connection, saga_id)
        if work.broken is not None:
            raise NotCapturable(f"this transaction must be rolled back: {work.broken}")
        return work

    def _facts(self, connection: Connection, work: Work, table: Any) -> Facts:
        place = (table.schema, table.name)
        if place not in work.facts:
            name = self._protected.database.name_of(connection, table)
            work.facts[place] = self._protected.facts_of(connection, name)
        return work.facts[place]

    # -- transactions -----------------------------------------------------------------------------------------------

    def begin(self, connection: Connection) -> None:
        forget_work(connection)

    def rollback(self, connection: Connection) -> None:
        forget_work(connection)

    def savepoint(self, connection: Connection, name: str) -> None:
        saga = current_saga()
        if saga is None or _is_left_to_its_tool():
            return
        # SQLite: a savepoint outside of a transaction is one itself, and its release would commit, unseen.
        work = self._work(connection, saga.id, {})
        # The event comes before the savepoint has its name; its rollback and release tell it.
        number = getattr(connection, "_Connection__savepoint_seq", -1) + 1
        work.marks.append((name or f"sa_savepoint_{number}", len(work.changes)))

    def rollback_savepoint(self, connection: Connection, name: str, context: None) -> None:
        work = work_of(connection)
        if work is not None and not _is_left_to_its_tool():
            work.rolled_back_to(name)

    def release_savepoint(self, connection: Connection, name: str, context: None) -> None:
        work = work_of(connection)
        if work is not None:
            work.released(name)

    def prepare_twophase(self, connection: Connection, xid: Any) -> None:
        work = work_of(connection)
        if work is not None and work.changes:
            self._abandon(connection)
            raise NotCapturable("a two-phase transaction cannot be captured; it was rolled back")

    def commit(self, connection: Connection) -> None:
        """Make the transaction a step; the database commits it inside of the step."""
        work = work_of(connection)
        if work is None:
            return
        try:
            self._check(work)
            if work.changes:
                self._step(connection, work)
        except BaseException:
            # What an error leaves open on the pooled connection, the next commit on it would commit.
            self._abandon(connection)
            raise
        if work.changes and not work.committed:  # A preview: nothing is to be left.
            self._abandon(connection)
        forget_work(connection)

    def _check(self, work: Work) -> None:
        saga = current_saga()
        _forget_failed(work)
        if work.broken is not None:
            raise NotCapturable(f"the transaction was rolled back: {work.broken}")
        if work.changes and (saga is None or saga.id != work.saga_id):
            raise NotCapturable(
                f"the transaction was rolled back: it has changes of saga {work.saga_id!r} and must be committed there"
            )

    def _step(self, connection: Connection, work: Work) -> None:
        protected = self._protected
        kwargs: dict[str, Any] = {
            "transaction": work.id,
            "tables": dict(Counter(change["table"] for change in work.changes)),
            "changes": self._images(connection, work),
        }

        apart = "images" in kwargs["changes"]

        def finish(_given: object = None) -> None:
            if not guard_rows.mark(connection, work.id, "step"):
                raise NotCapturable("the transaction was given up by a recovery meanwhile, and is rolled back")
            connection.dialect.do_commit(connection.connection)
            work.committed = protected.has_guard = True
            protected.has_images = protected.has_images or apart

        async def finish_async(_given: object) -> None:
            await greenlet_spawn(finish)

        if connection.dialect.is_async:
            await_only(aguard(protected.tool, kwargs, finish_async, adapter=NAME))
        else:
            guard(protected.tool, kwargs, finish, adapter=NAME)

    def _images(self, connection: Connection, work: Work) -> Any:
        """Return the changes as the log keeps them; what is too much for it stays in the database, with its digest."""
        if fits(work.changes):
            return work.changes
        data = packed(work.changes)
        if len(data) <= PACKED_BYTES_MAX:
            return {"zlib": data}
        if not self._protected.has_images:
            guard_rows.create_images(connection, self._protected.database)
        return guard_rows.keep_images(connection, work.id, data)

    def _abandon(self, connection: Connection) -> None:
        """Roll the transaction back on the connection itself, or let go of the connection."""
        forget_work(connection)
        try:
            connection.dialect.do_rollback(connection.connection)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, nobody else may get it.
            with contextlib.suppress(Exception):
                connection.invalidate()
