"""The scope: `with` and `async with` around a saga, and every way in and out of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from agent_saga.errors import UsageError
from agent_saga.machine.states import SagaState
from agent_saga.model import records as r
from agent_saga.runtime import ending
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.opening import open_saga
from agent_saga.runtime.ops import adrive, drive, is_async, running_loop, start_on_own_loop
from agent_saga.runtime.rehearsal import rehearsal
from agent_saga.runtime.saga import Saga

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextvars import Token
    from types import TracebackType

    from agent_saga.model.call import Policy
    from agent_saga.runtime.declaration import Declarations
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.opening import Opening
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.secrets import SecretsWatch
    from agent_saga.runtime.writer import Writer

P = ParamSpec("P")
R = TypeVar("R")


class ScopeEnvironment:
    """What a kit lends to its scopes.

    Attributes:
        writer: makes or returns the kit's writer.
        declarations: the kit's tools.
        policies: the kit's policies, before those of the transaction.
        approver: who answers `Ask`.
        approval_keys: the public keys of each principal; None: those that the log registers.
        secrets: looks for secrets in arguments; None where nothing of them is stored in plain text.
        open_sagas: the scopes that are open now.
    """

    __slots__ = ("approval_keys", "approver", "declarations", "open_sagas", "policies", "secrets", "writer")

    def __init__(
        self,
        *,
        writer: Callable[[], Writer],
        declarations: Declarations,
        policies: tuple[Policy, ...],
        approver: Callable[..., Any] | Literal["log"] | None,
        approval_keys: Mapping[str, tuple[str, ...]] | None = None,
        secrets: SecretsWatch | None = None,
    ) -> None:
        self.secrets = secrets
        self.approval_keys = approval_keys
        self.writer, self.declarations, self.policies, self.approver = writer, declarations, policies, approver
        self.open_sagas: set[int] = set()


class Transaction:
    """A saga or nested scope, entered with `with` or `async with`, or put around a function.

    Entering the same object twice, one after the other, opens two sagas; entering it inside itself is an error.
    """

    def __init__(
        self, environment: ScopeEnvironment, opening: Opening, *, independent: bool, policies: tuple[Policy, ...]
    ) -> None:
        self._environment = environment
        self._opening = opening
        self._independent = independent
        self._policies = policies
        self._saga: Saga | None = None
        self._entered_already = False
        self._outer: Saga | None = None
        self._token: Token[Saga | None] | None = None
        self._timer: threading.Timer | None = None
        self._sync = True

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return `fn` with a saga of its own around each call."""
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise UsageError(f"{fn!r} is a generator function, whose body would run outside the saga: use `with` in it")
        if is_async(fn):

            @functools.wraps(fn)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self._again():
                    return await fn(*args, **kwargs)  # type: ignore[misc]

            return run_async  # type: ignore[return-value]

        @functools.wraps(fn)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._again():
                return fn(*args, **kwargs)

        return run

    def _again(self) -> Transaction:
        return Transaction(self._environment, self._opening, independent=self._independent, policies=self._policies)

    # -- in -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Saga:
        """Open the saga. See `AgentKit.transaction`."""
        self._sync = True
        return self._entered(drive(_opened(self._open())))

    async def __aenter__(self) -> Saga:
        """Open the saga. See `AgentKit.transaction`."""
        self._sync = False
        return self._entered(await adrive(_opened(self._open())))

    def _open(self) -> Generator[Op, Any, Saga]:
        if self._entered_already:
            raise UsageError("this transaction is entered already; make another one")
        self._entered_already = True
        try:
            return (yield from self._opened())
        except BaseException:
            self._entered_already = False
            raise

    def _opened(self) -> Generator[Op, Any, Saga]:
        environment = self._environment
        outer = current_saga_var.get()
        if outer is not None and outer.plan is not None:
            raise UsageError(
                f"a plan of a preview is the body of one transaction; it cannot open {self._opening.name!r}"
            )
        if outer is not None and outer.live.view.state is SagaState.ABANDONED:
            outer = None  # A scope that was lost stays in its context; what comes after it is no part of it.
        if outer is not None and not self._independent:
            return self._nested(outer)
        live = yield from open_saga(environment.writer(), self._opening)
        self._watch_deadline(live)
        return Saga(
            live,
            scope=0,
            tags=tuple(live.view.tags),
            limits=self._opening.limits,
            policies=environment.policies + self._policies,
            environment=environment,
        )

    def _nested(self, outer: Saga) -> Saga:
        """Open a savepoint of the outer saga. Its key, if it has one, is the outer saga's business."""
        environment, live = self._environment, outer.live
        live.check_owned(f"scope {self._opening.name}")
        if environment.writer() is not live.writer:
            raise UsageError(
                f"this transaction uses another log than saga {live.id!r} around it; pass independent=True to open a "
                "saga of its own"
            )
        if self._opening.key is not None or self._opening.deadline_s is not None:
            raise UsageError(
                f"a scope inside saga {live.id!r} is a part of it and cannot have a key or deadline of its own; pass "
                "independent=True to open a saga of its own"
            )
        live.check_accepts(outer.scope, f"scope {self._opening.name}")
        number = scope_number(live, outer.scope, self._opening.name, self._opening.tags)
        return Saga(
            live,
            scope=number,
            tags=tuple(dict.fromkeys((*live.view.tags_of(number), *self._opening.tags))),
            limits=self._opening.limits,
            policies=outer.policies + _added_policies(environment, outer.environment) + self._policies,
            environment=environment,
        )

    def _entered(self, saga: Saga) -> Saga:
        self._saga = saga
        self._outer = outer = current_saga_var.get()
        within = outer is not None and outer.live is saga.live and outer.sync_in_loop
        saga.loop = running_loop()
        saga.sync_in_loop = within or (self._sync and saga.loop is not None)
        self._token = current_saga_var.set(saga)
        self._environment.open_sagas.add(id(self))
        if saga.scope == 0:
            saga.live.writer.enter(saga.live)
        return saga

    def _watch_deadline(self, live: LiveSaga) -> None:
        if self._opening.deadline_s is not None and not live.committed_key:
            reason = f"its deadline of {self._opening.deadline_s:g} s passed"
            self._timer = threading.Timer(self._opening.deadline_s, ending.release, (live, reason))
            self._timer.daemon = True
            self._timer.start()

    # -- out ----------------------------------------------------------------------------------------------------

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the saga. See `ending.end`."""
        saga = self._left()
        if saga is None:
            return
        try:
            drive(_ended(saga, error))
        except BaseException:
            ending.release_if_open(saga, "its scope could not be ended")
            raise
        finally:
            self._done(saga)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the saga, shielded from the caller's cancellation. See `ending.end`."""
        saga = self._left()
        if saga is None:
            return
        if isinstance(error, GeneratorExit):
            # Nothing may be awaited while a generator or coroutine is closed: the rollback runs on a thread of ours.
            start_on_own_loop(_end_elsewhere(saga, error, self._done))
            return
        try:
            await _shielded(_ended(saga, error))
        except BaseException:
            ending.release_if_open(saga, "its scope could not be ended")
            raise
        finally:
            self._done(saga)

    def _left(self) -> Saga | None:
        """Leave the context; returns the saga to end, or None in a process that does not own it."""
        saga, self._saga, self._entered_already = self._saga, None, False
        if saga is None:
            raise UsageError("this scope was not entered")
        try:
            if self._token is not None:
                current_saga_var.reset(self._token)
        except ValueError:  # Left in another context than it was entered in.
            if current_saga_var.get() is saga:
                current_saga_var.set(self._outer)
        if self._timer is not None:
            self._timer.cancel()
        if saga.live.pid != os.getpid():
            self._environment.open_sagas.discard(id(self))
            return None
        return saga

    def _done(self, saga: Saga) -> None:
        self._environment.open_sagas.discard(id(self))
        if saga.scope == 0:
            saga.live.writer.leave(saga.live)
            if not saga.live.flights:
                saga.live.forget_values()

    def __del__(self) -> None:
        """A scope that is collected without having been left is abandoned, and recovery rolls it back."""
        saga = getattr(self, "_saga", None)
        if saga is None or saga.live.pid != os.getpid():
            return
        self._environment.open_sagas.discard(id(self))
        if self._timer is not None:
            self._timer.cancel()
        warnings.warn(
            f"a scope of saga {saga.id!r} was lost without being left; the saga is abandoned",
            ResourceWarning,
            stacklevel=2,
        )
        if saga.scope == 0:
            # On a thread of its own: the collector may run in the middle of a commit, whose lock this would wait for.
            with contextlib.suppress(RuntimeError):  # The interpreter ends; the death of the process says the same.
                threading.Thread(target=ending.release, args=(saga.live, "its scope object was lost")).start()


def _added_policies(inner: ScopeEnvironment, outer: ScopeEnvironment) -> tuple[Policy, ...]:
    """Return what the scope of another kit asks besides the policies of the saga: no rule of a kit is dropped."""
    return () if inner is outer else tuple(policy for policy in inner.policies if policy not in outer.policies)


def scope_number(live: LiveSaga, parent: int, name: str, tags: tuple[str, ...] = ()) -> int:
    """Return the number of a nested scope: a new one, or in a resumed saga the one that this scope had before."""
    with live.lock:
        if live.resumed or live.committed_key:
            for scope in live.view.scopes.values():
                if (
                    scope.no not in live.reentered
                    and (scope.parent, scope.name) == (parent, name)
                    and not live.view.is_rolling(scope.no)
                ):
                    live.reentered.add(scope.no)
                    live.open_scopes.add(scope.no)
                    return scope.no
        number = len(live.view.scopes) + 1
        live.emit(r.ScopeOpened, scope=number, parent=parent, name=name, tags=list(tags), hold=True)
        live.reentered.add(number)
        live.open_scopes.add(number)
        return number


def _opened(opening: Generator[Op, Any, Saga]) -> Generator[Op, Any, Saga]:
    saga = yield from opening
    beside = rehearsal()
    if beside is not None:
        yield from beside.opened(saga)
    return saga


def _ended(saga: Saga, error: BaseException | None) -> Generator[Op, Any, None]:
    beside = rehearsal()
    try:
        yield from ending.end(saga, error)
    finally:
        if beside is not None:
            yield from beside.ended(saga)


async def _end_elsewhere(saga: Saga, error: BaseException, done: Callable[[Saga], None]) -> None:
    try:
        await adrive(_ended(saga, error))
    except Exception as failure:  # noqa: BLE001 - nobody waits; the log and the report say what is true.
        ending.release_if_open(saga, "its scope could not be ended")
        warnings.warn(f"saga {saga.id!r}: {failure}", RuntimeWarning, stacklevel=2)
    except BaseException:
        ending.release_if_open(saga, "its scope could not be ended")
        raise
    finally:
        done(saga)


async def _shielded(engine: Generator[Op, Any, None]) -> None:
    """Run an engine to its end although the caller is cancelled meanwhile; the cancellation is raised afterwards.

    The loop's own end cancels the engine too; then it stops where it is, and recovery goes on.
    """
    task = asyncio.get_running_loop().create_task(adrive(engine))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            if not task.done():
                raise  # This coroutine is closed, or its loop is interrupted; the task goes on while the loop does.
            break  # Raised below, from the task itself.
    if cancelled is not None and (task.exception() is None or isinstance(task.exception(), Exception)):
        raise cancelled from task.exception()
    task.result()
