"""What could offset a tool: a function with the inverse name, an SDK's own inverse, the HTTP or SQL one."""

from __future__ import annotations

import ast
import fnmatch
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.hints import calls_in, words_of
from agent_saga.adopt.model import Inverse
from agent_saga.adopt.names import returned
from agent_saga.adopt.sdk import INVERSES, SDK_INVERSES
from agent_saga.adopt.signature import parameters_of
from agent_saga.adopt.source import Defined, Function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.adopt.model import Tool
    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Project

_MAKES: Final = frozenset({"compensable", "reversible"})


class Pairs:
    """Looks for inverses among all functions of a project."""

    def __init__(self, project: Project, names: Names) -> None:
        self._names = names
        self._by_words: dict[tuple[str, ...], list[Defined]] = {}
        for defined in project.defined:
            if isinstance(defined.node, Function):
                self._by_words.setdefault(tuple(words_of(defined.node.name)), []).append(defined)

    def inverse(self, tool: Tool, function: Defined | None) -> Inverse | None:
        """Return what could offset a tool, with the reason; None where nothing speaks for anything.

        A tool whose hints all say that it reads, or that it cannot be taken back, gets none.
        """
        effects = {hint.effect for hint in tool.hints}
        if effects and not effects & _MAKES:
            return None
        return self._by_name(tool, function) or self._by_sdk(tool, function) or self._by_body(tool, function)

    def _by_name(self, tool: Tool, function: Defined | None) -> Inverse | None:
        words = words_of(tool.name if function is None else function.node.name)
        if not words or words[0] not in INVERSES:
            return None
        for verb in INVERSES[words[0]]:
            for other in self._named([*words_of(verb), *words[1:]]):
                if function is None or other.node is not function.node:
                    return self._of(other, tool, function)
        return None

    def _named(self, words: list[str]) -> Iterator[Defined]:
        exact = tuple(words)
        yield from self._by_words.get(exact, [])
        noun = set(words[1:])
        if len(noun) == 0:
            return
        for known, found in self._by_words.items():
            if (
                known != exact
                and known[:1] == exact[:1]
                and len(known) > 1
                and {_stem(w) for w in known[1:]} & {_stem(w) for w in noun}
                and (set(known[1:]) <= noun or noun <= set(known[1:]))
            ):
                yield from found

    def _of(self, other: Defined, tool: Tool, function: Defined | None) -> Inverse:
        assert isinstance(other.node, Function)
        parameters = tuple((name, annotation) for name, annotation, default in parameters_of(other) if not default)
        given = {name for name, _, _ in tool.parameters}
        keys = _returned_keys(function)
        bind = {name: _path(name, given, keys, tool, alone=len(parameters) == 1) for name, _ in parameters}
        module, owner = other.scope.module, other.scope.owner()
        name = "_".join(words_of(other.node.name))
        if owner is not None or other.outer.kind == "function":
            code = f"call {other.scope.qualname} of {module.relative}"
        else:
            wait = "await " if isinstance(other.node, ast.AsyncFunctionDef) else ""
            inside = ", ".join(f"{name}={name}" for name, _ in parameters)
            code = f"{wait}{module.name}.{other.node.name}({inside})"
        return Inverse(
            name=name,
            parameters=parameters,
            bind=bind,
            code=code,
            reason=f"{other.scope.qualname} ({module.relative}:{other.node.lineno}) has the inverse name",
        )

    def _by_sdk(self, tool: Tool, function: Defined | None) -> Inverse | None:
        if function is None:
            return None
        for seen in calls_in(function, self._names):
            for pattern, (name, (parameter, path), code) in SDK_INVERSES.items():
                plain = seen.dotted.replace("()", "")
                if not fnmatch.fnmatchcase(plain, pattern.replace("()", "")):
                    continue
                parameters, bind = [(parameter, "str")], {parameter: path}
                for given, annotation, _ in tool.parameters:
                    if given in code.replace("=", " ").replace(",", " ").replace("(", " ").split():
                        parameters.append((given, annotation))
                        bind[given] = f"kwargs.{given}"
                where = f"{seen.scope.module.relative}:{seen.node.lineno}"
                return Inverse(
                    name=name,
                    parameters=tuple(dict(parameters).items()),
                    bind=bind,
                    code=code,
                    reason=f"the call {seen.dotted} ({where}) is offset so",
                )
        return None

    def _by_body(self, tool: Tool, function: Defined | None) -> Inverse | None:
        """A resource that is made by POST is deleted by DELETE; a row that is inserted, by its key."""
        words = words_of(tool.name)
        noun = "_".join(words[1:] or words) or "it"
        for hint in tool.hints:
            if "HTTP POST" in hint.reason or "SQL INSERT" in hint.reason:
                how = "send HTTP DELETE to it" if "HTTP" in hint.reason else "delete the row"
                return self._own(tool, function, f"take_back_{noun}", how, hint.reason)
        if words and words[0] in INVERSES:
            verb = INVERSES[words[0]][0]
            return self._own(tool, function, f"{verb}_{noun}", "", f"its name begins with {words[0]!r}")
        return None

    def _own(self, tool: Tool, function: Defined | None, name: str, code: str, reason: str) -> Inverse:
        keys = _returned_keys(function)
        chosen = next((key for key in keys if key == "id" or key.endswith("_id")), None)
        if chosen is not None:
            words = words_of(tool.name)
            parameter = chosen if chosen != "id" else f"{'_'.join(words[1:]) or 'result'}_id"
            return Inverse(
                name=name,
                parameters=((parameter, "str"),),
                bind={parameter: f"result.{chosen}"},
                code=code,
                reason=reason,
            )
        parameters = tuple(
            (given, annotation) for given, annotation, _ in tool.parameters if given != "idempotency_key"
        )
        if not parameters:
            parameters, bind = (("result", tool.returns),), {"result": "result"}
        else:
            bind = {given: f"kwargs.{given}" for given, _ in parameters}
        return Inverse(name=name, parameters=parameters, bind=bind, code=code, reason=reason)


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _returned_keys(function: Defined | None) -> list[str]:
    """Return the keys of the dicts that a function returns."""
    if function is None or not isinstance(function.node, Function):
        return []
    keys: dict[str, None] = {}
    for value in returned(function.node):
        if isinstance(value, ast.Dict):
            keys.update((k.value, None) for k in value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str))
    return [key for key in keys if key.isidentifier()]


def _path(name: str, given: set[str], keys: list[str], tool: Tool, *, alone: bool) -> str:
    """Return where a parameter of the inverse comes from, as far as names tell."""
    if name in keys:
        return f"result.{name}"
    if name in given:
        return f"kwargs.{name}"
    if name == "idempotency_key":
        return "key"
    if (name == "id" or name.endswith("_id")) and "id" in keys:
        return "result.id"
    near = [key for key in keys if name.endswith(f"_{key}") or key.endswith(f"_{name}")]
    if near:
        return f"result.{near[0]}"
    if alone and not keys and tool.returns.split("[")[0] in {"str", "int"}:
        return "result"
    return f"result.{name}"
