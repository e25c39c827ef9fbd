"""JSON Schema of arguments. Needs the extra `schema`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.rule import ALLOW, Rule, Then, answer, check_then, prepare
from agent_saga.gates.values import Unreadable, at_path, check_path, shown
from agent_saga.model.call import ProposedCall, SagaFacts
from agent_saga.model.effects import Decision

NODES_MAX: Final = 100_000
DEPTH_MAX: Final = 100
_TEXT_MAX: Final = 200
_END: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""A `$` that is an anchor, or what may hold one that is not: an escape, a set of characters."""


_ANNOTATIONS: Final = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "definitions",
        "then",
        "else",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "minContains",
        "maxContains",
    ]
)
"""Keywords that validate nothing by themselves."""
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords with a schema for each name."""
_NESTED: Final = frozenset(
    [
        "items",
        "additionalItems",
        "prefixItems",
        "contains",
        "additionalProperties",
        "propertyNames",
        "unevaluatedItems",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
    ]
)
"""Keywords with a schema, or a list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSchema(Rule):
    """Refuses calls whose arguments do not fit a JSON Schema (draft 2020-12, or what its `$schema` names).

    What JSON cannot say (NaN, infinity, objects without a JSON form) never fits. A `$ref` out of the schema is not
    followed. A keyword that the draft does not have, and a format that no installed package can check, would be rules
    that nobody keeps: they are refused when the policy is made.

    Args:
        tool: names or shell patterns of the tools concerned.
        schema: of the object of all arguments, or of the argument that `argument` names.
        argument: its path; with a wildcard, each value must fit.
        then: the answer to arguments that do not fit.

    Raises:
        DeclarationError: `jsonschema` is not installed, or the schema is none.
    """

    tool: str | tuple[str, ...]
    schema: Mapping[str, Any] = field(hash=False)
    argument: str | None = None
    then: Then = "refuse"
    parts: tuple[str, ...] | None = field(init=False, repr=False, compare=False)
    validator: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options."""
        check_then(self.then, "ArgumentSchema")
        parts = None if self.argument is None else check_path(self.argument)
        prepare(self, parts=parts, validator=_validator(self.schema))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        values = [dict(call.kwargs)] if self.parts is None else at_path(call.kwargs, self.parts)
        for value in values:
            error = next(self.validator.iter_errors(_Json().form(value)), None)
            if error is not None:
                where = ".".join([*(self.parts or ()), *map(str, error.absolute_path)]) or "the arguments"
                return answer(self.then, f"{call.tool}: {where}: {_short(ascii(error.message)[1:-1])}")
        return ALLOW


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "..."


def _validator(schema: Mapping[str, Any]) -> Any:
    try:
        import jsonschema  # type: ignore[import-untyped,unused-ignore]  # stubs are not installed everywhere
        import referencing
    except ImportError as error:
        raise DeclarationError(
            "ArgumentSchema needs the package jsonschema: pip install 'agent-saga-core[schema]'"
        ) from error
    if not isinstance(schema, Mapping):
        raise DeclarationError(f"ArgumentSchema: schema must be a mapping; it is {type(schema).__name__}")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise DeclarationError(f"ArgumentSchema: this is no JSON Schema: {error.message}") from None
    _check_keywords(schema, kind)
    kind = jsonschema.validators.extend(kind, {"pattern": _pattern})
    # Without a registry of its own the validator would fetch foreign references over the network.
    return kind(_exact(schema), registry=referencing.Registry(), format_checker=kind.FORMAT_CHECKER)


def _check_keywords(node: Any, kind: Any) -> None:
    """Refuse what the validator would pass over in silence.

    Raises:
        DeclarationError: a keyword is not known, or a format cannot be checked.
    """
    if not isinstance(node, Mapping):  # True and False are schemas too.
        return
    for name, value in node.items():
        if name not in kind.VALIDATORS and name not in _ANNOTATIONS and not name.startswith(("$", "x-")):
            near = difflib.get_close_matches(name, kind.VALIDATORS, n=1)
            raise DeclarationError(
                f"ArgumentSchema: {name!r} is no keyword of JSON Schema{f'; is {near[0]!r} meant?' if near else ''}"
            )
        if name == "format" and value not in kind.FORMAT_CHECKER.checkers:
            known = ", ".join(sorted(kind.FORMAT_CHECKER.checkers))
            raise DeclarationError(
                f"ArgumentSchema: format {value!r} cannot be checked with what is installed, only {known}; "
                "use pattern, or install jsonschema[format]"
            )
        inner: list[Any] = []
        if name in _NAMED:
            inner = list(value.values())
        elif name in _NESTED:
            inner = list(value) if isinstance(value, list | tuple) else [value]
        for each in inner:
            _check_keywords(each, kind)


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    """Check `pattern` as JSON Schema means it: `$` is the very end of the text, and digits are those of ASCII."""
    if isinstance(instance, str) and not re.search(_END.sub(_at_end, pattern), instance, re.ASCII):
        from jsonschema import ValidationError

        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _at_end(found: re.Match[str]) -> str:
    return r"\Z" if found[0] == "$" else found[0]


def _exact(node: Any) -> Any:
    """Return a schema with floats as decimals, so that its numbers compare and divide exactly."""
    if isinstance(node, Mapping):
        return {name: _ended(item) if name == "patternProperties" else _exact(item) for name, item in node.items()}
    if isinstance(node, list | tuple):
        return [_exact(item) for item in node]
    return Decimal(repr(node)) if type(node) is float else node


def _ended(patterns: Any) -> Any:
    """Return `patternProperties` with `$` as the very end of a name."""
    if not isinstance(patterns, Mapping):
        return _exact(patterns)
    return {_END.sub(_at_end, name): _exact(item) for name, item in patterns.items()}


class _Json:
    """One walk over a value: its JSON form, with numbers that compare exactly."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes = 0

    def form(self, value: Any, depth: int = 0) -> Any:
        """Return the form.

        Raises:
            Unreadable: JSON has none for it.
        """
        self.nodes += 1
        if self.nodes > NODES_MAX or depth > DEPTH_MAX:
            raise Unreadable("the arguments are too large or too deep for a schema")
        if value is None or type(value) in {bool, int, str}:
            return value
        if isinstance(value, Mapping):
            if not all(type(name) is str for name in value):
                raise Unreadable(f"a mapping has keys that are no texts: {shown(value)}")
            return {name: self.form(item, depth + 1) for name, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
            return [self.form(item, depth + 1) for item in value]
        return _number(value)


def _number(value: Any) -> Decimal | int:
    if type(value) is float and value - value == 0:
        value = Decimal(repr(value))
    if type(value) is Decimal and value.is_finite() and abs(value.adjusted()) <= DEPTH_MAX:
        return int(value) if value == value.to_integral_value() else value
    raise Unreadable(f"{shown(value)} ({type(value).__name__}) has no JSON form")
