"""AgentKit: one object to declare tools, open sagas and ask what is promised."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, cast

from agent_saga.errors import DeclarationError, UsageError
from agent_saga.guarantees import manifest
from agent_saga.runtime.declaration import Declarations, make_declaration, name_of, parameters_of
from agent_saga.runtime.gate import IrreversibleAsks, check_approver, checked_policies
from agent_saga.runtime.opening import Opening, check_opening, check_times
from agent_saga.runtime.ops import adrive, drive, is_async
from agent_saga.runtime.process import drop_writer, writer_for
from agent_saga.runtime.registry import Binding, Compensator, Traits, make_compensator, register_function
from agent_saga.runtime.rehearsal import rehearsal
from agent_saga.runtime.saga import Limits
from agent_saga.runtime.scope import ScopeEnvironment, Transaction
from agent_saga.runtime.secrets import SecretsWatch
from agent_saga.runtime.signatures import pinned
from agent_saga.runtime.tool import make_wrapper
from agent_saga.store.keyring import KeyRing
from agent_saga.store.open import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from agent_saga.model.call import Policy
    from agent_saga.model.effects import Effect
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.health import Status
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.previewed import Preview
    from agent_saga.runtime.writer import Writer

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_LOG: Final = "./agent-saga.db"
BUSY_WAIT_S: Final = 3600.0
"""How long `on_busy="wait"` waits in a saga without a deadline."""


class AgentKit:
    """Declares tools, opens sagas.

    Args:
        log: a path, `memory:` (which does not outlive the process) or the URL of another store; by default what
            `AGENT_SAGA_LOG` names, else `./agent-saga.db`. Nothing is opened before the first record.
        approver: who answers when a policy asks: a function of the call (sync or async) that returns True to let it
            run, or `"log"`: the call waits for `agent-saga approvals`. With None such calls are refused at once, and
            run when they are repeated after an approval.
        policies: asked in order before each effect, after the rule that irreversible calls need somebody's word.
        approval_keys: the Ed25519 public keys (hex) of those whose signed words count, by name. With None the keys
            count that were registered in the log (`agent-saga keys`), which whoever may write its file can do.
        encryption: the keys under which values are encrypted at rest; by default the key ring in the file that
            `AGENT_SAGA_KEY_RING` names, else values are stored as they are. Needs the extra [encrypt].
        secrets: what is done about arguments that look like secrets and would be stored in plain text: `"warn"` (once
            for each place), `"refuse"` (the declaration, or the call before its effect) or `"ignore"`.
        allow_fs: accept a log on a network or shared file system, where locks may lie.
    """

    def __init__(
        self,
        log: str | os.PathLike[str] | None = None,
        *,
        approver: Callable[..., Any] | Literal["log"] | None = None,
        policies: Iterable[Policy] = (),
        approval_keys: Mapping[str, str | Iterable[str]] | None = None,
        encryption: KeyRing | None = None,
        secrets: Literal["warn", "refuse", "ignore"] = "warn",
        allow_fs: bool = False,
    ) -> None:
        check_approver(approver)
        if encryption is None and (ring := os.environ.get("AGENT_SAGA_KEY_RING")):
            encryption = KeyRing.from_file(ring)
        self._ring = encryption
        self._log = os.fspath(log) if log is not None else os.environ.get("AGENT_SAGA_LOG", DEFAULT_LOG)
        self._allow_fs = allow_fs
        watch = SecretsWatch(secrets)
        plain = secrets != "ignore" and encryption is None and self._log != "memory:"
        self._writer: Writer | None = None
        self._writer_pid = 0
        self.declarations: Final = Declarations()
        self.environment: Final = ScopeEnvironment(
            writer=self.writer,
            declarations=self.declarations,
            policies=(IrreversibleAsks(), *checked_policies(policies)),
            approver=approver,
            approval_keys=None if approval_keys is None else pinned(approval_keys),
            secrets=watch if plain else None,
        )

    @property
    def log(self) -> str:
        """The log's path or URL, as given."""
        return self._log

    def writer(self) -> Writer:
        """Return this process's writer for the kit's log. For packages that extend agent-saga."""
        beside = rehearsal()
        lent = None if beside is None else beside.writer(self, self._log)
        if lent is not None:
            return lent
        if self._writer is None or self._writer_pid != os.getpid():
            writer = writer_for(self._log, allow_fs=self._allow_fs, owner=self, ring=self._ring)
            self._writer, self._writer_pid = writer, os.getpid()
        return self._writer

    def close(self) -> None:
        """Make everything durable and close the log; the kit opens it again when it is used again."""
        if self._writer is not None and self._writer_pid == os.getpid():
            drop_writer(self._writer)
        self._writer = None

    def guarantees(self) -> dict[str, Any]:
        """Return what is claimed for this kit and what is not, JSON-serialisable.

        Returns:
            `manifest` (its version), `version`, `log_format`, `log`, `fault_model`, `claims` (each with `id`, `text`
            and the `tests` that show it) and `not_claimed`.
        """
        from importlib.metadata import version  # Late: it costs more than all else that the kit loads.

        return manifest(version=version("agent-saga-core"), log=shown(self._log))

    def status(self) -> Status:
        """Return whether an agent may go on now: not when a safety signal is halted, drained or cannot be read.

        A budget of the kit's policies of which nothing is left blocks too; those of a transaction are not known here.

        Returns:
            `ready`, `blockers` (why not, a line each) and `warnings`.
        """
        from agent_saga.runtime.health import status_of_kit

        return status_of_kit(self.writer, self.environment.policies)

    # -- previews -----------------------------------------------------------------------------------------------

    def preview(
        self,
        plan: Iterable[Any] | Callable[[], Any],
        *,
        name: str = "preview",
        tags: Iterable[str] = (),
        policies: Iterable[Policy] = (),
        results: Mapping[str, Any] | None = None,
    ) -> Preview:
        """Return what the gate would say of a plan now: no effect, no record, no reservation, nobody is asked.

        Each call counts as made for those after it. Inside a saga of this kit it is a preview of what comes next there.

        Args:
            plan: calls, as `("charge", {"amount": 5})`, with a declared name or a wrapped tool first; or a function
                that makes them: in it read-only tools run, and effectful ones are looked at and not run.
            name: of the saga that the plan would be run in.
            tags: of that saga.
            policies: asked after those of the kit.
            results: what effectful tools return to a function, by tool: values, or functions of the arguments. Without
                it they return a stand-in, which is no value that a policy could read.

        Returns:
            `calls` (each with `decision`, `reasons`, `reserves`, `undo`), `clear`, `cannot_be_undone`, `to_dict()` and
            `format_text()`.

        Raises:
            UsageError: the plan is none, or an async function: `await kit.apreview(plan)`.
        """
        if is_async(plan):  # type: ignore[arg-type]
            raise UsageError("this plan is an async function: use `await kit.apreview(plan)`")
        return drive(self._preview(plan, name, tags, policies, results))

    async def apreview(
        self,
        plan: Iterable[Any] | Callable[[], Any],
        *,
        name: str = "preview",
        tags: Iterable[str] = (),
        policies: Iterable[Policy] = (),
        results: Mapping[str, Any] | None = None,
    ) -> Preview:
        """See preview; `plan` may be an async function."""
        return await adrive(self._preview(plan, name, tags, policies, results))

    def _preview(
        self,
        plan: object,
        name: str,
        tags: Iterable[str],
        policies: Iterable[Policy],
        results: Mapping[str, Any] | None,
    ) -> Generator[Op, Any, Preview]:
        from agent_saga.runtime.preview import PlannedSaga, preview

        planned = PlannedSaga(self.environment, name=name, tags=tuple(tags), policies=checked_policies(policies))
        return preview(planned, plan, results or {})

    # -- tools --------------------------------------------------------------------------------------------------

    def declare(self, name: str, *, effect: str | Effect, **options: Any) -> Declaration:
        """State what a tool does; for tools that a framework owns, by the name under which it calls them.

        Args:
            name: the tool.
            effect: `read_only`, `reversible`, `compensable` or `irreversible`.
            options: as of `wrap`.

        Raises:
            DeclarationError: it cannot work.
        """
        declaration = make_declaration(name, effect, **options)
        self.declarations.add(declaration)
        return declaration

    def declare_read_only(self, *patterns: str) -> None:
        """State that all tools whose names match one of these shell patterns have no effect."""
        self.declarations.add_read_only(patterns)

    def wrap(
        self,
        fn: Callable[P, R],
        *,
        effect: str | Effect,
        name: str | None = None,
        compensate: Binding | Callable[..., Any] | None = None,
        probe: Callable[..., Any] | str | None = None,
        no_effect_on: Iterable[type[BaseException]] = (),
        in_doubt_on: Iterable[type[BaseException]] = (),
        key_param: str | None = None,
        identity: Iterable[str] | None = None,
        resolves: Literal["same_identity", "same_tool"] = "same_identity",
        resources: Iterable[str] = (),
        timeout_s: float | None = None,
        settle_s: float = 0.0,
        retry: int = 0,
        redact: Iterable[str] = (),
        requires_saga: bool = False,
        version: int = 1,
    ) -> Callable[P, R]:
        """Declare a function as a tool, and return it as one: bare outside of a saga, a step inside.

        Args:
            fn: sync or async function, generator or async generator.
            effect: `read_only`, `reversible`, `compensable` or `irreversible`.
            name: by default the function's own.
            compensate: `compensator.bind(parameter="result.id", ...)`, or a function of the finished call (`kwargs`,
                `result`, `key`) that returns `compensator.with_(...)`.
            probe: `probe(key, kwargs)` asks the outside world and answers `Landed`, `NotLanded` or `Unknowable`.
            no_effect_on: exceptions that mean that nothing happened.
            in_doubt_on: exceptions that leave the effect in doubt, beyond the public table.
            key_param: the parameter that receives the idempotency key, hidden from models; by default
                `idempotency_key` where there is one.
            identity: the arguments that make two calls the same one; by default all.
            resolves: what a later success must share with a failure to resolve it, under a framework.
            resources: what the call needs alone, as `account:{customer}`.
            timeout_s: how long the call may take; after that it is in doubt.
            settle_s: how long a request may still travel after its caller gave up.
            retry: how often a failed call is tried again, under the same key.
            redact: arguments whose values never reach the log.
            requires_saga: refuse calls outside of a saga.
            version: recorded with each call.

        Raises:
            DeclarationError: it cannot work; the message says what would.
        """
        fn = getattr(fn, "__wrapped__", fn) if hasattr(fn, "__agent_saga__") else fn  # One effect, one step.
        declaration = make_declaration(
            name or name_of(fn),
            effect,
            fn=fn,
            compensate=compensate,
            probe=probe,
            no_effect_on=no_effect_on,
            in_doubt_on=in_doubt_on,
            key_param=key_param,
            identity=identity,
            resolves=resolves,
            resources=resources,
            timeout_s=timeout_s,
            settle_s=settle_s,
            retry=retry,
            redact=redact,
            requires_saga=requires_saga,
            version=version,
        )
        if (watch := self.environment.secrets) is not None:
            watch.check_parameters(declaration, parameters_of(fn))
        self.declarations.add(declaration)
        wrapper = make_wrapper(fn, declaration, self.environment)
        wrapper.compensator = _compensator_of(declaration)  # type: ignore[attr-defined]
        return cast("Callable[P, R]", wrapper)

    def tool(self, *, effect: str | Effect, **options: Any) -> Callable[[Callable[P, R]], Any]:
        """Return `wrap` as a decorator; the result also has `.compensator(parameter=path, ...)`."""
        return lambda fn: self.wrap(fn, effect=effect, **options)

    def require_declared(self, names: Iterable[str]) -> None:
        """Check that all these tools are declared. For adapters, when they are set up.

        Raises:
            UndeclaredTool: some are not; the message lists all of them, in a block to paste.
        """
        self.declarations.require(names)

    # -- sagas --------------------------------------------------------------------------------------------------

    def transaction(
        self,
        name: str,
        *,
        key: str | None = None,
        on_crash: Literal["roll_back", "resume"] = "roll_back",
        on_divergence: Literal["roll_back", "keep"] = "roll_back",
        independent: bool = False,
        deadline_s: float | None = None,
        drain_s: float = 5.0,
        rollback_timeout_s: float = 60.0,
        suspend_ttl_s: float = 604_800.0,
        on_busy: Literal["fail", "wait"] = "fail",
        tags: Iterable[str] = (),
        policies: Iterable[Policy] = (),
    ) -> Transaction:
        """Return a saga to enter with `with` or `async with`, or to put around a function.

        Inside another saga it is a savepoint of that one: its rollback compensates its own steps only.

        Args:
            name: for people; any text.
            key: names the saga by business identity: at most one runs at a time, a suspended or (with
                `on_crash="resume"`) crashed one is resumed, a committed one replays, a rolled back one begins anew.
            on_crash: what happens to the saga when its process dies.
            on_divergence: what happens when a resumed run does not make all calls that stand.
            independent: a saga of its own, also inside another one.
            deadline_s: after this the saga is abandoned and rolled back by recovery; also how long `on_busy="wait"`
                waits.
            drain_s: how long calls that still run are waited for at the end.
            rollback_timeout_s: how long a rollback goes on before it leaves the rest to recovery.
            suspend_ttl_s: how long a suspended saga is left alone.
            on_busy: whether to wait when the key is held elsewhere.
            tags: for halts and lists.
            policies: asked after those of the kit.

        Raises:
            SagaBusy: on entering: another live owner holds the key.
            LogFailed: on entering or leaving: the log could not be written.
            SagaRolledBack, RollbackIncomplete: on leaving; `docs/concepts.md` says when.
        """
        check_opening(name, key, tags := tuple(tags), on_crash=on_crash, on_divergence=on_divergence, on_busy=on_busy)
        check_times(
            deadline_s=deadline_s,
            drain_s=drain_s,
            rollback_timeout_s=rollback_timeout_s,
            suspend_ttl_s=suspend_ttl_s,
        )
        limits = Limits(
            drain_s=drain_s,
            rollback_timeout_s=rollback_timeout_s,
            suspend_ttl_s=suspend_ttl_s,
            on_busy=on_busy,
            busy_wait_s=BUSY_WAIT_S if deadline_s is None else deadline_s,
        )
        opening = Opening(
            name=name,
            key=key,
            on_crash=on_crash,
            on_divergence=on_divergence,
            deadline_s=deadline_s,
            tags=tags,
            limits=limits,
        )
        return Transaction(self.environment, opening, independent=independent, policies=checked_policies(policies))

    def resume(self, saga_id: str, *, policies: Iterable[Policy] = (), drain_s: float = 5.0) -> Transaction:
        """Return a suspended saga (or one whose process died) to enter again: its standing calls replay.

        Args:
            saga_id: the saga; one with a key is more easily resumed by `transaction(key=...)`.
            policies: asked after those of the kit.
            drain_s: as of `transaction`.

        Raises:
            UsageError: on entering: there is no such saga, or it has ended.
            SagaBusy: on entering: it has a live owner.
        """
        opening = Opening(name="resumed", resume_id=saga_id, limits=Limits(drain_s=drain_s))
        return Transaction(self.environment, opening, independent=True, policies=checked_policies(policies))


_TRAITS: Final = frozenset(Traits.__slots__) - {"verify"}


def _compensator_of(declaration: Declaration) -> Callable[..., Any]:
    """Return the `.compensator(...)` decorator of a tool."""

    def compensator_for_tool(**given: Any) -> Callable[[Callable[..., Any]], Compensator[..., Any]]:
        def register(fn: Callable[..., Any]) -> Compensator[..., Any]:
            parameters = inspect.signature(fn).parameters
            options = {
                k: v for k, v in given.items() if k not in parameters and k in {"name", "version", "verify", *_TRAITS}
            }
            paths = {k: v for k, v in given.items() if k not in options}
            options.setdefault("name", f"{declaration.name}.{name_of(fn)}")
            handler = compensator(**options)(fn)
            _attach(declaration, handler.bind(**paths))
            return handler

        return register

    return compensator_for_tool


def _attach(declaration: Declaration, binding: Binding) -> None:
    checked = make_declaration(
        declaration.name, declaration.effect, fn=declaration.source, compensate=binding, key_param=declaration.key_param
    )
    declaration.compensate = checked.compensate


def compensator(
    name: str | None = None,
    *,
    version: int = 1,
    idempotent: bool = False,
    safe_if_absent: bool = False,
    verify: Callable[..., Any] | str | None = None,
    lives_in: str | None = None,
    valid_for_s: float | None = None,
    timeout_s: float | None = None,
    key_param: str | None = None,
) -> Callable[[Callable[P, R]], Compensator[P, R]]:
    """Register a compensator: a function of plain data that any process which imports it can run.

    Args:
        name: how the log names it; by default the function's own name.
        version: major version; a log that recorded another one is not given to it.
        idempotent: it may run again although an earlier attempt may have succeeded. So may one that takes the key.
        safe_if_absent: it may run although the effect never happened.
        verify: `verify(**same kwargs) -> bool` reads the world back.
        lives_in: the place where the compensation lives.
        valid_for_s: how long after the effect it works.
        timeout_s: how long one attempt may take; after that it is in doubt.
        key_param: the parameter that receives the compensation's key; by default `idempotency_key` where there is one.

    Raises:
        DeclarationError: another function has the name, or the options do not fit the function.
    """
    if callable(name):
        raise DeclarationError("write @compensator() or @compensator('name'), with parentheses")
    traits = Traits(
        idempotent=idempotent,
        safe_if_absent=safe_if_absent,
        lives_in=lives_in,
        valid_for_s=valid_for_s,
        timeout_s=timeout_s,
    )

    def register(fn: Callable[P, R]) -> Compensator[P, R]:
        return make_compensator(
            fn, name or name_of(fn), version=version, key_param=key_param, verify=verify, traits=traits
        )

    return register


def probe(name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a probe: a read-only question to the outside world that any process which imports it can ask.

    The function is `probe(key, kwargs)` and answers `Landed(result)`, `NotLanded()` or `Unknowable(reason)`. Pass it as
    `probe=` of one tool or of several; one that is not registered is registered with its tool, as `<tool>:probe`.

    Args:
        name: how the log names it; by default the function's own name.

    Raises:
        DeclarationError: another function has the name.
    """
    if callable(name):
        raise DeclarationError("write @probe() or @probe('name'), with parentheses")

    def register(fn: Callable[P, R]) -> Callable[P, R]:
        fn.__agent_saga_probe__ = register_function(name or name_of(fn), fn)  # type: ignore[attr-defined]
        return fn

    return register


_default: list[AgentKit] = []


def default_kit() -> AgentKit:
    """Return the kit of `saga_tool` and `saga_scope`, made on first use."""
    if not _default:
        _default.append(AgentKit())
    return _default[0]


def saga_tool(*, effect: str | Effect, **options: Any) -> Callable[[Callable[P, R]], Any]:
    """Declare a function as a tool of the default kit. See `AgentKit.wrap`."""
    return default_kit().tool(effect=effect, **options)


def saga_scope(name: str, **options: Any) -> Transaction:
    """Return a transaction of the default kit. See `AgentKit.transaction`."""
    return default_kit().transaction(name, **options)
