"""What a project has declared already: its `saga_tools.py`, and declarations of its own; and what has changed since."""

from __future__ import annotations

import ast
import fnmatch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_saga.adopt.decide import DECIDE

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.adopt.model import Scan, Tool
    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Module, Project, Scope

FILE = "saga_tools.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One declaration: the effect (None where no text says it), and the digest that was looked at."""

    name: str
    path: str
    line: int
    effect: str | None
    seen: str | None


@dataclass(slots=True, kw_only=True)
class Comparison:
    """A scan against what is declared.

    Attributes:
        fresh: tools without a declaration.
        changed: tools whose signature or calls are not those that were looked at, with the new digest.
        vanished: declarations of `saga_tools.py` without a tool.
        undecided: declarations that say DECIDE.
        clashes: names that stand for more than one tool.
    """

    fresh: list[Tool] = field(default_factory=list)
    changed: list[tuple[Tool, Declared]] = field(default_factory=list)
    vanished: list[Declared] = field(default_factory=list)
    undecided: list[Declared] = field(default_factory=list)
    clashes: dict[str, list[Tool]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing waits for a human."""
        return not (self.fresh or self.changed or self.vanished or self.undecided)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "new": [tool.name for tool in self.fresh],
            "changed": [{"name": tool.name, "seen": tool.seen} for tool, _ in self.changed],
            "vanished": [one.name for one in self.vanished],
            "undecided": [one.name for one in self.undecided],
            "clashes": {
                name: [f"{tool.path}:{tool.line}" for tool in tools] for name, tools in sorted(self.clashes.items())
            },
        }


def compare(scan: Scan, project: Project, names: Names) -> Comparison:
    """Say which tools are new, changed and vanished."""
    known, patterns = _declarations(project, names)
    result = Comparison(undecided=[one for one in known.values() if one.effect == DECIDE])
    by_name: dict[str, list[Tool]] = {}
    for tool in scan.tools:
        if tool.kind != "hosted":
            by_name.setdefault(tool.name, []).append(tool)
    for name, tools in by_name.items():
        declared = known.get(name)
        if len({(tool.path, tool.line) for tool in tools}) > 1:
            result.clashes[name] = tools
        if declared is None:
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                result.fresh.append(tools[0])
        elif declared.seen is not None and declared.seen not in {seen_of(tools), *(tool.seen for tool in tools)}:
            result.changed.append((tools[0], declared))
    result.vanished = [one for one in known.values() if one.path.endswith(FILE) and one.name not in by_name]
    return result


def seen_of(tools: list[Tool]) -> str:
    """Return the digest of a name: of its first tool in the order of the scan."""
    return tools[0].seen


def declarations_file(project: Project) -> Module | None:
    """Return the project's `saga_tools.py`, the one nearest to its root."""
    found = [module for module in project.modules.values() if module.path.name == FILE]
    return min(found, key=lambda module: module.relative.count("/")) if found else None


def effects_in(path: Path) -> list[tuple[str, str | None]]:
    """Return the tools that a `saga_tools.py` declares, with their effects as they are written."""
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "declare" and node.args:
            effect = next((_effect(k.value) for k in node.keywords if k.arg == "effect"), None)
            if isinstance(node.args[0], ast.Constant):
                found.append((str(node.args[0].value), effect))
    return found


def _declarations(project: Project, names: Names) -> tuple[dict[str, Declared], list[str]]:
    known: dict[str, Declared] = {}
    patterns: list[str] = []
    for node, scope in project.calls:
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if last == "declare_read_only":
            patterns += [text for argument in node.args for text in names.texts(argument, scope)]
        elif last in {"declare", "wrap", "tool", "saga_tool"} and any(k.arg == "effect" for k in node.keywords):
            for one in _of_call(node, scope, names, last):
                known.setdefault(one.name, one)
    for defined in project.defined:
        for decorator in defined.node.decorator_list:
            if isinstance(decorator, ast.Call) and any(k.arg == "effect" for k in decorator.keywords):
                named = [t for k in decorator.keywords if k.arg == "name" for t in names.texts(k.value, defined.outer)]
                for name in named or [defined.node.name]:
                    known.setdefault(name, _one(name, decorator, defined.outer))
    return known, patterns


def _of_call(node: ast.Call, scope: Scope, names: Names, last: str) -> list[Declared]:
    if last == "declare":
        return [_one(name, node, scope) for name in (names.texts(node.args[0], scope) if node.args else [])]
    named = [text for k in node.keywords if k.arg == "name" for text in names.texts(k.value, scope)]
    if not named and last == "wrap" and node.args:
        from agent_saga.adopt.source import Defined

        named = [atom.node.name for atom in names.atoms(node.args[0], scope) if isinstance(atom, Defined)]
    return [_one(name, node, scope) for name in named]


def _one(name: str, node: ast.Call, scope: Scope) -> Declared:
    effect, seen = None, None
    for keyword in node.keywords:
        if keyword.arg == "effect":
            effect = _effect(keyword.value)
        elif keyword.arg == "seen" and isinstance(keyword.value, ast.Constant):
            seen = str(keyword.value.value)
    return Declared(name=name, path=scope.module.relative, line=node.lineno, effect=effect, seen=seen)


def _effect(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return DECIDE if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith(DECIDE) else None
