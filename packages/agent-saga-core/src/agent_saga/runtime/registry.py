"""Compensators, probes and verifiers: the code that records name. Process-wide; filled by import only."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from agent_saga.errors import DeclarationError, HandlerUnavailable
from agent_saga.model import paths
from agent_saga.model.values import is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

P = ParamSpec("P")
R = TypeVar("R")

KEY_PARAM: Final = "idempotency_key"
"""A parameter of this name receives the key."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A compensation as data: a compensator's name and where its kwargs come from."""

    compensator: Compensator[..., Any]
    bind: dict[str, str]


class BoundCall(msgspec.Struct, frozen=True):
    """A compensation with its kwargs, as a callable `compensate=` returns it.

    Attributes:
        hidden: kwargs that come from redacted arguments; their values never reach the log.
    """

    compensator: Compensator[..., Any]
    kwargs: dict[str, Any]
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What an operator states about a compensator.

    Attributes:
        idempotent: running it again after it may have succeeded does no harm.
        safe_if_absent: running it although there is no effect does no harm.
        verify: the registered name of a function that reads the world back.
        lives_in: the place where the compensation lives, for the undo-path rule.
        valid_for_s: how long after the effect it works.
        timeout_s: how long one attempt may take.
    """

    idempotent: bool = False
    safe_if_absent: bool = False
    verify: str | None = None
    lives_in: str | None = None
    valid_for_s: float | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensator(Generic[P, R]):
    """A registered compensator; calling it calls the function.

    Attributes:
        name: how records name it.
        version: its major version; records of another one are not given to it.
        key_param: the parameter that receives the compensation's key, or None.
    """

    fn: Callable[P, R]
    name: str
    version: int
    key_param: str | None
    traits: Traits = field(default_factory=Traits)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a record."""
        return self.fn(*args, **kwargs)

    def bind(self, **paths_by_parameter: str) -> Binding:
        """Return a compensation whose kwargs are found by path.

        Args:
            paths_by_parameter: `result`, `result.id`, `kwargs.customer` or `key`, by parameter.

        Raises:
            DeclarationError: a path or parameter that cannot work.
        """
        bind: dict[str, str] = {}
        for parameter, path in paths_by_parameter.items():
            try:
                bind[parameter] = paths.check(path)
            except (ValueError, AttributeError) as error:
                raise DeclarationError(f"compensator {self.name!r}, parameter {parameter!r}: {error}") from None
        _check_parameters(self, bind)
        return Binding(self, bind)

    def with_(self, **kwargs: Any) -> BoundCall:
        """Return a compensation with these kwargs, from a callable `compensate=`."""
        _check_parameters(self, kwargs)
        return BoundCall(self, dict(kwargs))


def _check_parameters(handler: Compensator[..., Any], given: dict[str, Any]) -> None:
    """Refuse kwargs that the function would not take, where the mistake is made."""
    supplied = dict.fromkeys(given)
    if handler.key_param is not None:
        supplied[handler.key_param] = None
    try:
        inspect.signature(handler.fn).bind(**supplied)
    except TypeError as error:
        raise DeclarationError(
            f"compensator {handler.name!r} cannot be called with {sorted(given)}: {error}; "
            f"its signature is {inspect.signature(handler.fn)}"
        ) from None


_compensators: dict[str, Compensator[..., Any]] = {}
_functions: dict[str, Callable[..., Any]] = {}


def _same_place(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    def place(fn: Callable[..., Any]) -> tuple[str, str]:
        return getattr(fn, "__module__", ""), getattr(fn, "__qualname__", repr(fn))

    return place(first) == place(second)


def _warn_unreachable(kind: str, name: str, fn: Callable[..., Any]) -> None:
    qualname = getattr(fn, "__qualname__", "")
    if getattr(fn, "__module__", "") == "__main__" or "<locals>" in qualname or "<lambda>" in qualname:
        warnings.warn(
            f"{kind} {name!r} is defined in __main__ or inside a function: another process can load it only if it "
            "runs the same file (`agent-saga recover --import ./file.py`); put it into a module to be sure",
            stacklevel=4,
            category=UnreachableHandler,
        )


class UnreachableHandler(UserWarning):
    """A handler is defined where a recovering process may not be able to load it."""


def register_compensator(handler: Compensator[..., Any]) -> None:
    """Register a compensator under its name.

    Raises:
        DeclarationError: another function has the name.
    """
    known = _compensators.get(handler.name)
    if known is not None and not _same_place(known.fn, handler.fn):
        raise DeclarationError(
            f"compensator {handler.name!r} is registered already, by {known.fn.__module__}.{known.fn.__qualname__}"
        )
    if known is None:
        _warn_unreachable("compensator", handler.name, handler.fn)
    _compensators[handler.name] = handler


def register_function(name: str, fn: Callable[..., Any]) -> str:
    """Register a probe or verifier and return its name.

    Raises:
        DeclarationError: another function has the name.
    """
    known = _functions.get(name)
    if known is not None and not _same_place(known, fn):
        raise DeclarationError(f"{name!r} is registered already, by {known.__module__}.{known.__qualname__}")
    if known is None:
        _warn_unreachable("handler", name, fn)
    _functions[name] = fn
    return name


def check_takes(what: str, fn: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuse a handler that cannot be called with these arguments, or whose call runs nothing, where it is declared.

    Raises:
        DeclarationError: it would fail, or do nothing, when it is needed.
    """
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DeclarationError(f"{what} is a generator function: calling it would run nothing")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{what} has no signature to check ({error}); wrap it in a function") from None
    try:
        signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        names = ", ".join(given)
        raise DeclarationError(f"{what} would be called with ({names}) and takes {signature}: {error}") from None


def make_compensator(
    fn: Callable[P, R], name: str, *, version: int, key_param: str | None, verify: object, traits: Traits
) -> Compensator[P, R]:
    """Build and register a compensator.

    Raises:
        DeclarationError: the name is taken, or a trait does not fit the function.
    """
    if type(version) is not int or version < 1:
        raise DeclarationError(f"compensator {name!r}: version must be a whole number from 1 on, not {version!r}")
    if not is_name(name):
        raise DeclarationError(f"a compensator needs a text for its name, not {name!r}")
    parameters = _parameters(fn, f"compensator {name!r}")
    if key_param is not None and key_param not in parameters:
        raise DeclarationError(f"compensator {name!r} has no parameter {key_param!r}")
    if key_param is None and KEY_PARAM in parameters:
        key_param = KEY_PARAM
    if callable(verify):
        _check_verifier(name, verify, parameters, key_param)
        verify = register_function(f"{name}:verify", verify)
    handler = Compensator(
        fn=fn,
        name=name,
        version=version,
        key_param=key_param,
        traits=Traits(**{**{f: getattr(traits, f) for f in Traits.__slots__}, "verify": verify}),
    )
    register_compensator(handler)
    return handler


def _parameters(fn: Callable[..., Any], what: str) -> Mapping[str, inspect.Parameter]:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DeclarationError(f"{what} is a generator function: calling it would compensate nothing")
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{what} has no signature to check ({error}); wrap it in a function") from None


def _check_verifier(
    name: str, verify: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], key_param: str | None
) -> None:
    """A verifier takes the compensator's kwargs; the key only if it names it."""
    if any(p.kind in {p.VAR_KEYWORD, p.VAR_POSITIONAL} or p.default is not p.empty for p in parameters.values()):
        return  # What it is called with is known only when it is bound.
    taken = _parameters(verify, f"the verifier of compensator {name!r}")
    given = [parameter for parameter in parameters if parameter != key_param or parameter in taken]
    check_takes(f"the verifier of compensator {name!r}", verify, given)


def all_compensators() -> list[Compensator[..., Any]]:
    """Return the compensators that are loaded."""
    return list(_compensators.values())


def compensator_for(name: str, version: int) -> Compensator[..., Any]:
    """Return the loaded compensator that a record names.

    Raises:
        HandlerUnavailable: it is not loaded, or has another major version.
    """
    handler = _compensators.get(name)
    if handler is None:
        raise HandlerUnavailable(
            f"compensator {name!r} is not loaded: name the module or file that defines it with --import"
        )
    if handler.version != version:
        raise HandlerUnavailable(
            f"compensator {name!r} is loaded in version {handler.version}, the log asks for version {version}: "
            "load the code that has it"
        )
    return handler


def place_of(name: str) -> str | None:
    """Return where a compensation lives, as its loaded compensator states it."""
    handler = _compensators.get(name)
    return None if handler is None else handler.traits.lives_in


def function_for(name: str) -> Callable[..., Any]:
    """Return the loaded probe or verifier that a record names.

    Raises:
        HandlerUnavailable: it is not loaded.
    """
    fn = _functions.get(name)
    if fn is None:
        raise HandlerUnavailable(f"{name!r} is not loaded: name the module or file that defines it with --import")
    return fn


def check_kwargs(handler: Compensator[..., Any], kwargs: dict[str, Any]) -> None:
    """Check that recorded kwargs still fit the loaded compensator.

    Raises:
        HandlerUnavailable: they do not bind.
    """
    try:
        inspect.signature(handler.fn).bind(**kwargs)
    except TypeError as error:
        raise HandlerUnavailable(
            f"compensator {handler.name!r} does not take the recorded arguments {sorted(kwargs)}: {error}"
        ) from None
