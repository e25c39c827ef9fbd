"""What a tool's owner states about it, checked where it is stated."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import math
from dataclasses import dataclass, field
from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import structs

from agent_saga.errors import DeclarationError, UndeclaredTool
from agent_saga.model import paths
from agent_saga.model.effects import Effect
from agent_saga.model.records import FORMAT, Intent, Recipe
from agent_saga.model.values import Encoded, encode, is_name, redacted, storable_text
from agent_saga.runtime.registry import KEY_PARAM, Binding, BoundCall, Compensator, check_takes, register_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent_saga.runtime.binder import Binder

Resolves = Literal["same_identity", "same_tool"]


@dataclass(slots=True, kw_only=True)
class Declaration:
    """What is stated about one tool of a kit. See `AgentKit.declare` for the meaning of each field."""

    name: str
    effect: Effect
    compensate: Binding | Callable[[CallView], BoundCall | None] | None = None
    probe: str | None = None
    no_effect_on: tuple[type[BaseException], ...] = ()
    in_doubt_on: tuple[type[BaseException], ...] = ()
    key_param: str | None = None
    identity: tuple[str, ...] | None = None
    resolves: Resolves = "same_identity"
    resources: tuple[str, ...] = ()
    timeout_s: float | None = None
    settle_s: float = 0.0
    retry: int = 0
    redact: tuple[str, ...] = ()
    requires_saga: bool = False
    version: int = 1
    binder: Binder | None = None
    source: Callable[..., Any] | None = None
    _intent: partial[Intent] | None = field(default=None, init=False, repr=False, compare=False)
    _intent_of: tuple[object, object] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def read_only(self) -> bool:
        """Whether calls have no effect."""
        return self.effect is Effect.READ_ONLY

    @property
    def redacted(self) -> frozenset[str]:
        """The arguments of which something is redacted: they are as a whole."""
        return frozenset(path.partition(".")[0] for path in self.redact)

    @property
    def must_be_probed(self) -> bool:
        """Whether any exception means in doubt, because there is a way to find out."""
        if self.probe is not None:
            return True
        return isinstance(self.compensate, Binding) and self.compensate.compensator.traits.safe_if_absent

    def recipe(self) -> Recipe | None:
        """Return how a step is compensated, as data; None for a callable that has not been asked yet."""
        if isinstance(self.compensate, Binding):
            return recipe_of(self.compensate.compensator, self.compensate.bind)
        return None

    @property
    def intent(self) -> Callable[..., Intent]:
        """What makes the intents of this tool: the record's class, with the fields that all of them share filled in."""
        made, of = self._intent, self._intent_of
        if made is None or of is None or of[0] is not self.compensate or of[1] != self.key_param:
            made = partial(
                Intent,
                v=FORMAT,
                n=0,
                pos=0,
                tool=self.name,
                version=self.version,
                effect=self.effect.value,
                recipe=self.recipe(),
                probe=self.probe,
                settle_s=self.settle_s,
                takes_key=self.key_param is not None,
                identity=None if self.identity is None else list(self.identity),
                resolves="same_tool" if self.resolves == "same_tool" else None,
            )
            self._intent, self._intent_of = made, (self.compensate, self.key_param)
        return made


class CallView(msgspec.Struct, frozen=True):
    """What a callable `compensate=` is given.

    Attributes:
        kwargs: the arguments by name.
        result: what the call returned.
        key: the step's idempotency key.
        tool: the declared name.
    """

    kwargs: Mapping[str, Any]
    result: Any
    key: str
    tool: str = ""


def recipe_of(compensator: Compensator[..., Any], bind: dict[str, str] | None) -> Recipe:
    """Return a compensation as the log keeps it."""
    traits = compensator.traits
    return Recipe(
        name=compensator.name,
        version=compensator.version,
        bind=bind,
        safe_if_absent=traits.safe_if_absent,
        idempotent=traits.idempotent,
        key_param=compensator.key_param,
        verify=traits.verify,
        timeout_s=traits.timeout_s,
    )


_OPTIONS: Final = frozenset(name for name in Declaration.__slots__ if not name.startswith("_"))


def make_declaration(
    name: str, effect: str | Effect, *, fn: Callable[..., Any] | None = None, **options: Any
) -> Declaration:
    """Check what is stated and return it.

    Raises:
        DeclarationError: it cannot work; the message says what would.
    """
    try:
        known = Effect(effect)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in Effect)
        raise DeclarationError(f"tool {name!r}: effect {effect!r} is none of {choices}") from None
    if not is_name(name):
        raise DeclarationError(f"a tool needs a text for its name, not {name!r}")
    options = _normalise(name, options)
    _check_numbers(name, options)
    if "probe" in options and callable(options["probe"]):
        check_takes(f"the probe of tool {name!r}", options["probe"], ("key", "kwargs"))
        registered = getattr(options["probe"], "__agent_saga_probe__", None)
        options["probe"] = registered or register_function(f"{name}:probe", options["probe"])
    declaration = Declaration(name=name, effect=known, source=fn, **options)
    _check_effect(declaration)
    if fn is not None:
        _check_against(declaration, fn)
    if declaration.retry and not (declaration.read_only or declaration.key_param or declaration.probe):
        raise DeclarationError(
            f"tool {name!r}: retry= repeats a call whose effect may have happened, so the tool must take the "
            "idempotency "
            "key or declare a probe"
        )
    return declaration


def _check_numbers(name: str, options: dict[str, Any]) -> None:
    """Check options that are numbers or words: a wrong one must not wait for the first failure to show."""
    for option, least in (("timeout_s", 0.0), ("settle_s", 0.0), ("retry", 0), ("version", 1)):
        value = options.get(option, least)
        kinds = (int,) if isinstance(least, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < math.inf:
            raise DeclarationError(f"tool {name!r}: {option}={value!r} is no number from {least} on")
    if options.get("timeout_s") == 0:
        raise DeclarationError(f"tool {name!r}: timeout_s=0 leaves no time for any call")
    if options.get("resolves", "same_tool") not in {"same_tool", "same_identity"}:
        raise DeclarationError(f"tool {name!r}: resolves must be 'same_identity' or 'same_tool'")


def _normalise(name: str, options: dict[str, Any]) -> dict[str, Any]:
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise DeclarationError(f"tool {name!r}: unknown option {', '.join(sorted(unknown))}")
    options = {key: value for key, value in options.items() if value is not None}
    for key in ("no_effect_on", "in_doubt_on", "identity", "resources", "redact"):
        if key in options:
            value = options[key]
            options[key] = (value,) if isinstance(value, str | type) else tuple(value)
    return options


def _check_effect(declaration: Declaration) -> None:
    name, effect = declaration.name, declaration.effect
    if declaration.compensate is not None and effect in {Effect.READ_ONLY, Effect.IRREVERSIBLE}:
        raise DeclarationError(f"tool {name!r} is {effect.value} and can have no compensation")
    if declaration.probe is not None and declaration.read_only:
        raise DeclarationError(f"tool {name!r} is read_only and needs no probe")
    if isinstance(declaration.compensate, Compensator):
        raise DeclarationError(
            f"tool {name!r}: say where the arguments of compensator {declaration.compensate.name!r} come from, "
            f"as in compensate={declaration.compensate.name.rpartition('.')[2]}.bind(charge_id='result.id')"
        )
    if declaration.compensate is not None and not isinstance(declaration.compensate, Binding):
        _check_callable(name, declaration.compensate)
    _check_redacted(declaration)
    for exception in (*declaration.no_effect_on, *declaration.in_doubt_on):
        if not (isinstance(exception, type) and issubclass(exception, BaseException)):
            raise DeclarationError(f"tool {name!r}: {exception!r} is no exception class")


def _check_redacted(declaration: Declaration) -> None:
    """Check that no redacted argument becomes part of a name, which the log shows to everybody."""
    for template in declaration.resources if declaration.redact else ():
        named = {field.partition(".")[0].partition("[")[0] for _, field, _, _ in Formatter().parse(template) if field}
        if shown := sorted(named & declaration.redacted):
            raise DeclarationError(
                f"tool {declaration.name!r}: the resource {template!r} would show {shown[0]!r}, which redact= "
                "keeps out of the log; name the resource by another argument"
            )


def _check_callable(name: str, compensate: object) -> None:
    if not callable(compensate) or inspect.iscoroutinefunction(compensate):
        raise DeclarationError(
            f"tool {name!r}: compensate must be compensator.bind(...), or a plain function of the finished call that "
            f"returns compensator.with_(...); it is {compensate!r}"
        )


def _check_against(declaration: Declaration, fn: Callable[..., Any]) -> None:
    """Check names of parameters against the tool's signature."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return
    if declaration.key_param is None and KEY_PARAM in parameters:
        declaration.key_param = KEY_PARAM
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    _check_names(declaration, parameters)


def adopt_parameters(declaration: Declaration, parameters: Iterable[str]) -> None:
    """Check a declaration by name alone against the parameters of the tool that a framework owns.

    Raises:
        DeclarationError: it names parameters that the tool does not have.
    """
    names = dict.fromkeys(parameters)
    if declaration.key_param is None and KEY_PARAM in names:
        declaration.key_param = KEY_PARAM
    if declaration.source is None:
        _check_names(declaration, names)


def _check_names(declaration: Declaration, parameters: Mapping[str, object]) -> None:
    wanted = {declaration.key_param} if declaration.key_param else set()
    wanted.update(declaration.identity or ())
    wanted.update(path.partition(".")[0] for path in declaration.redact)
    if isinstance(declaration.compensate, Binding):
        wanted.update(path.split(".")[1] for path in declaration.compensate.bind.values() if path.startswith("kwargs."))
    missing = sorted(wanted - parameters.keys())
    if missing:
        names = ", ".join(map(repr, missing))
        raise DeclarationError(f"tool {declaration.name!r} has no parameter {names}; it has {', '.join(parameters)}")


def bind_compensation(compensate: object, view: CallView) -> BoundCall | None:
    """Return the compensation of a call from what it took and returned.

    Raises:
        PathMissing: a path leads nowhere.
        Exception: whatever a callable `compensate=` raised.
    """
    if compensate is None:
        return None
    if isinstance(compensate, Binding):
        roots = {"kwargs": view.kwargs, "result": view.result, "key": view.key}
        kwargs = {parameter: paths.resolve(path, roots) for parameter, path in compensate.bind.items()}
        return BoundCall(compensate.compensator, kwargs)
    bound = compensate(view) if callable(compensate) else compensate
    if bound is not None and not isinstance(bound, BoundCall):
        raise TypeError(f"compensate= returned {bound!r}; it must return compensator.with_(...) or None")
    return bound


def encode_kwargs(declaration: Declaration, kwargs: Mapping[str, Any]) -> dict[str, Encoded]:
    """Return the stored form of a call's arguments; redacted ones keep their type only."""
    hidden = declaration.key_param
    encoded: dict[str, Encoded] = {}
    for name, value in kwargs.items():
        if name != hidden:
            encoded[name if name.isascii() else storable_text(name)] = encode(value)
    for path in declaration.redact:
        name = path.partition(".")[0]
        if name in encoded:
            encoded[name] = Encoded(redacted(kwargs[name]), exact=False, opaque=True)
    return encoded


def hide(declaration: Declaration, kwargs: Mapping[str, Any], bound: BoundCall) -> BoundCall:
    """Return a compensation that knows which of its kwargs come from redacted arguments."""
    if not declaration.redact:
        return bound
    secret = {path.partition(".")[0] for path in declaration.redact}
    bind = declaration.compensate.bind if isinstance(declaration.compensate, Binding) else {}
    by_path = {
        parameter for parameter, path in bind.items() if path.startswith("kwargs.") and path.split(".")[1] in secret
    }
    values = [kwargs[name] for name in secret if name in kwargs]
    by_value = {name for name, given in bound.kwargs.items() if any(given is value for value in values)}
    return structs.replace(bound, hidden=frozenset(by_path | by_value))


class Declarations:
    """The tools of one kit."""

    def __init__(self) -> None:
        self._by_name: dict[str, Declaration] = {}
        self._read_only: list[str] = []

    def add(self, declaration: Declaration) -> None:
        """Add a declaration; a second one of the same name must be of the same function.

        Raises:
            DeclarationError: the name belongs to another function.
        """
        known = self._by_name.get(declaration.name)
        if known is not None and not _may_replace(known, declaration):
            raise DeclarationError(
                f"tool {declaration.name!r} is declared already, for another function; name them apart"
            )
        self._by_name[declaration.name] = declaration

    def add_read_only(self, patterns: Iterable[str]) -> None:
        """Declare all tools with these names (shell patterns) as read-only."""
        self._read_only.extend(patterns)

    def find(self, name: str) -> Declaration | None:
        """Return the declaration of a tool, or None."""
        known = self._by_name.get(name)
        if known is None and any(fnmatch.fnmatchcase(name, pattern) for pattern in self._read_only):
            known = self._by_name[name] = Declaration(name=name, effect=Effect.READ_ONLY)
        return known

    def require(self, names: Iterable[str]) -> None:
        """Check that all these tools are declared.

        Raises:
            UndeclaredTool: some are not; the message lists all of them, in a block to paste.
        """
        missing = sorted({name for name in names if self.find(name) is None})
        if missing:
            lines = "\n".join(f"kit.declare({name!r}, effect=...)" for name in missing)
            raise UndeclaredTool(
                f"{len(missing)} tools are not declared. Decide what each of them does (read_only, reversible, "
                f"compensable, irreversible) and add:\n{lines}"
            )

    def names(self) -> list[str]:
        """Return the names of the declared tools."""
        return list(self._by_name)


def _may_replace(known: Declaration, new: Declaration) -> bool:
    if known.source is None or new.source is None:
        return True
    first, second = inspect.unwrap(known.source), inspect.unwrap(new.source)
    return (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)


def parameters_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a tool's parameters, as far as they can be told."""
    try:
        return tuple(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return ()


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name under which a function is declared by default."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__
