"""From a call's arguments to a dict by parameter name: compiled once for each tool."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Binder = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def make_binder(signature: inspect.Signature) -> Binder:
    """Return a function that does what `signature.bind` with defaults does, four times as fast where it can.

    The signature is turned into a function of the same parameters that returns them as a dict, so Python itself
    checks the call and raises its own `TypeError`.
    """
    parameters = list(signature.parameters.values())
    if any(parameter.kind not in _PLAIN for parameter in parameters):
        return _slow(signature)
    names = [parameter.name for parameter in parameters]
    defaults = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not inspect.Parameter.empty
    }
    source = f"def bound({_declare(parameters)}): return {{{', '.join(f'{name!r}: {name}' for name in names)}}}"
    namespace: dict[str, Any] = {"_defaults": defaults}
    exec(source, namespace)  # noqa: S102 - the source is made of parameter names, which are identifiers.
    bound = namespace["bound"]
    return lambda args, kwargs: bound(*args, **kwargs)


def _declare(parameters: list[inspect.Parameter]) -> str:
    parts: list[str] = []
    star = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        has_default = parameter.default is not inspect.Parameter.empty
        parts.append(f"{parameter.name}=_defaults[{parameter.name!r}]" if has_default else parameter.name)
    return ", ".join(parts)


def _slow(signature: inspect.Signature) -> Binder:
    var_keyword = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        if var_keyword is not None:
            named.update(named.pop(var_keyword))
        return named

    return bind
