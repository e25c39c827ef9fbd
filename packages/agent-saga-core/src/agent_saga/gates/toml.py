"""Policies from `[tool.agent-saga]`: the same objects as in code."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.bounds import Bounds
from agent_saga.gates.breaker import CircuitBreaker
from agent_saga.gates.budgets import Budget, RateLimit
from agent_saga.gates.compose import When, all_of, first_of
from agent_saga.gates.consensus import Consensus
from agent_saga.gates.freeze import FreezeWindow, WeeklyFreeze
from agent_saga.gates.rules import AllowTools, AllowValues, DenyTools, DenyValues, EffectRule, Quorum
from agent_saga.gates.schema import ArgumentSchema
from agent_saga.gates.undo import CompensationWindow, UndoPath
from agent_saga.model.effects import Ask

if TYPE_CHECKING:
    from agent_saga.model.call import Policy

RULES: Final[dict[str, Any]] = {
    "all_of": all_of,
    "allow_tools": AllowTools,
    "allow_values": AllowValues,
    "argument_schema": ArgumentSchema,
    "bounds": Bounds,
    "budget": Budget,
    "circuit_breaker": CircuitBreaker,
    "compensation_window": CompensationWindow,
    "consensus": Consensus,
    "deny_tools": DenyTools,
    "deny_values": DenyValues,
    "effect": EffectRule,
    "first_of": first_of,
    "freeze": FreezeWindow,
    "quorum": Quorum,
    "rate_limit": RateLimit,
    "undo_path": UndoPath,
    "weekly_freeze": WeeklyFreeze,
    "when": When,
}
"""What `rule = "..."` may name."""

_FLAGS: Final = frozenset({"signed", "suspend", "total"})
_EXAMPLES: Final = {
    "names": '["get_*"]',
    "policies": "[...]",
    "policy": "{ rule = ... }",
    "rule": '"bounds"',
    "verifiers": '["package.module:function"]',
}


def policies_from_toml(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Policy, ...]:
    """Return the policies that a file states, in order.

    Each `[[tool.agent-saga.policies]]` names a `rule` and its options, which are those of the class; `then` may also
    be a table of `Ask`, as `{ quorum = 2, signed = true }`, and numbers are read exactly. A file without a
    `[tool.agent-saga]` table states them as `[[policies]]`.

    Args:
        source: a path, or what a TOML parser made of one.

    Raises:
        DeclarationError: the file cannot be read, states no policies, or one cannot work. The message has the line
            that would be right.
    """
    document = source if isinstance(source, Mapping) else _parsed(Path(source))
    tool = document.get("tool")
    settings = tool.get("agent-saga") if isinstance(tool, Mapping) else None
    table = settings if isinstance(settings, Mapping) else document
    if "policies" not in table:
        wrong = difflib.get_close_matches("policies", map(str, table), n=1)
        hint = f"; {wrong[0]!r} should be 'policies'" if wrong else ""
        raise DeclarationError(f"no policies are stated{hint}; write [[tool.agent-saga.policies]], or policies = []")
    stated = table["policies"]
    if not isinstance(stated, list):
        raise DeclarationError("policies must be a list of tables; write [[tool.agent-saga.policies]]")
    return tuple(_policy(item, f"policy {number}") for number, item in enumerate(stated, start=1))


def _parsed(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DeclarationError(f"{path}: it cannot be read as TOML: {error}") from error


def _policy(stated: object, where: str) -> Policy:
    """Return the policy of one table."""
    if not isinstance(stated, Mapping):
        raise DeclarationError(f"{where}: it must be a table with rule = ...; it is {stated!r}")
    name = stated.get("rule")
    if not isinstance(name, str) or name not in RULES:
        close = difflib.get_close_matches(str(name), RULES, n=1)
        hint = f'; write rule = "{close[0]}"' if close else ""
        raise DeclarationError(f"{where}: rule = {_toml(name)} is none of {', '.join(RULES)}{hint}")
    where = f"{where} ({name})"
    options = {key: value for key, value in stated.items() if key != "rule"}
    _check_keys(name, options, where)
    converted = {key: _value(key, value, where) for key, value in options.items()}
    try:
        return _made(name, converted)
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(f"{where}: a value has the wrong type: {error}") from error


def _made(name: str, options: dict[str, Any]) -> Policy:
    make = RULES[name]
    if name in {"all_of", "first_of"}:
        return make(*options.pop("policies"), **options)  # type: ignore[no-any-return]
    if name in {"allow_tools", "deny_tools"}:
        names = options.pop("names")
        return make(*((names,) if isinstance(names, str) else names))  # type: ignore[no-any-return]
    return make(**options)  # type: ignore[no-any-return]


def _keys(name: str) -> tuple[dict[str, Any], set[str]]:
    """Return the keys of a rule with their defaults, and those that must be there."""
    if name in {"all_of", "first_of"}:
        return {"policies": [], **({"otherwise": "refuse"} if name == "first_of" else {})}, {"policies"}
    known = {field.name: field.default for field in fields(RULES[name]) if field.init}
    if name in {"allow_tools", "deny_tools"}:
        return known, {"names"}
    return known, {key for key, default in known.items() if default is MISSING}


def _check_keys(name: str, options: dict[str, Any], where: str) -> None:
    """Refuse a key that the rule does not have, and one that it lacks."""
    known, needed = _keys(name)
    for key, value in options.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"write {close[0]} = {_toml(value)}" if close else f"its keys are {', '.join(known)}"
            raise DeclarationError(f"{where}: unknown key {key!r}; {hint}")
    for key in sorted(needed - options.keys()):
        raise DeclarationError(f"{where}: it lacks {key!r}; write {key} = {_EXAMPLES.get(key, '...')}")


def _value(key: str, value: Any, where: str) -> Any:
    """Return an option as the class takes it."""
    if key == "then" and isinstance(value, Mapping):
        return _ask(value, where)
    if key == "policy":
        return _policy(value, f"{where}, policy")
    if key == "policies":
        listed = value if isinstance(value, list) else [value]
        return [_policy(item, f"{where}, policy {number}") for number, item in enumerate(listed, start=1)]
    if key == "verifiers":
        listed = value if isinstance(value, list) else [value]
        return tuple(_function(item, where) for item in listed)
    if key == "schema":
        return value
    if key in _FLAGS and type(value) is not bool:
        raise DeclarationError(f"{where}: {key} must be true or false; it is {_toml(value)}")
    if key in {"expires_s", "timeout_s", "open_for_s", "at_least_s"} and isinstance(value, Decimal):
        return float(value)
    if key == "values" and isinstance(value, list):
        return tuple(float(item) if isinstance(item, Decimal) else item for item in value)
    return tuple(value) if isinstance(value, list) else value


def _ask(stated: Mapping[str, Any], where: str) -> Ask:
    known = {field.name: field.default for field in fields(Ask) if field.name != "requires"}
    for key, value in stated.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"write {close[0]} = {_toml(value)}" if close else f"its keys are {', '.join(known)}"
            raise DeclarationError(f"{where}, then: unknown key {key!r}; {hint}")
        if key not in {"reason", "expires_s"} and type(value) is not type(known[key]):
            raise DeclarationError(f"{where}, then: {key} must be as {key} = {_toml(known[key])}; it is {_toml(value)}")
    options = dict(stated)
    if isinstance(options.get("expires_s"), int | Decimal):
        options["expires_s"] = float(options["expires_s"])
    return Ask(**{"reason": "", **options})


def _function(name: object, where: str) -> Any:
    """Return the function that the operator named as `package.module:function`."""
    module, _, attribute = str(name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"{where}: verifier {name!r} cannot be loaded: {error}; write verifiers = {_EXAMPLES['verifiers']}"
        ) from error


def _toml(value: object) -> str:
    """Return a value as TOML would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return "..." if value is None else str(value)
