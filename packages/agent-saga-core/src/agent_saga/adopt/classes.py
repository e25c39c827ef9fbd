"""Tools that are classes: their names, which have many homes, and the method that runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.frameworks import BASES, framework_of
from agent_saga.adopt.names import Called
from agent_saga.adopt.source import Defined, Function, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Project, Scope

RUNNERS: Final = ("_run", "_arun", "run", "run_async", "call", "acall", "forward", "__call__", "run_stream", "execute")


class ClassTools:
    """What the classes of a project are as tools."""

    def __init__(self, project: Project, names: Names) -> None:
        self._project, self._names = project, names
        self._memo: dict[int, str | None] = {}
        self._parents: set[int] | None = None
        self._scopes: dict[int, Scope] = {}

    def framework(self, cls: Defined) -> str | None:
        """Return whose tool a class is; None if it is none."""
        if id(cls.node) not in self._memo:
            self._memo[id(cls.node)] = self._framework(cls)
        return self._memo[id(cls.node)]

    def _framework(self, cls: Defined) -> str | None:
        for base in self._names.external_bases(cls):
            framework, last = framework_of(base), base.rpartition(".")[2]
            if framework is not None and (last in BASES[framework] or last == "BaseToolSpec"):
                return framework
        return None

    def runner(self, cls: Defined | None, *wanted: str) -> Defined | None:
        """Return the method of a class that does the work."""
        if cls is None:
            return None
        for name in wanted or RUNNERS:
            for one in self._names.mro(cls):
                for bound in one.scope.names.get(name, []):
                    if isinstance(bound, Defined) and isinstance(bound.node, Function):
                        return bound
        return None

    def tools(self, cls: Defined) -> Iterator[tuple[str, Defined | None, bool]]:
        """Yield name, method, and whether the name is sure, of each tool that a class is."""
        if self._is_spec(cls):
            yield from self._of_spec(cls)
            return
        runner, names = self.runner(cls), self._names_of(cls)
        if not names and (self._is_parent(cls) or runner is None):
            return  # A base of others, not a tool.
        names = names or sorted(self._names_given(cls))
        for name in names or [cls.node.name]:
            yield name, runner, bool(names)

    def _is_spec(self, cls: Defined) -> bool:
        return any(base.endswith(".BaseToolSpec") for base in self._names.external_bases(cls))

    def _of_spec(self, cls: Defined) -> Iterator[tuple[str, Defined | None, bool]]:
        for one in self._names.mro(cls):
            for bound in one.scope.names.get("spec_functions", []):
                if not isinstance(bound, Value) or not isinstance(bound.node, ast.List | ast.Tuple):
                    continue
                for element in bound.node.elts:
                    first = element.elts[0] if isinstance(element, ast.Tuple) and element.elts else element
                    for name in self._names.texts(first, bound.scope):
                        yield name, self.runner(cls, name), True

    def _names_of(self, cls: Defined) -> list[str]:
        """Look at the attribute, the property, the metadata, and what the constructor hands up."""
        for one in self._names.mro(cls):
            for bound in one.scope.names.get("name", []):
                if isinstance(bound, Value) and (texts := self._names.texts(self._plain(bound), bound.scope)):
                    return texts
                if isinstance(bound, Defined) and isinstance(bound.node, Function):
                    from agent_saga.adopt.names import returned

                    found = [t for value in returned(bound.node) for t in self._names.texts(value, bound.scope)]
                    if found:
                        return found
            if found := self._handed_up(one):
                return found
        return []

    def _plain(self, bound: Value) -> ast.expr:
        """See through `Field(default="name")`."""
        node = bound.node
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    return keyword.value
            if node.args:
                return node.args[0]
        return node

    def _handed_up(self, cls: Defined) -> list[str]:
        for node in ast.walk(cls.node):
            if not isinstance(node, ast.Call):
                continue
            func = ast.unparse(node.func)
            scope = self._scope_at(cls, node)
            if func.endswith("ToolMetadata"):
                if names := self._metadata(node, scope):
                    return names
            elif func.endswith("__init__") and "super" in func:
                for keyword in node.keywords:
                    if keyword.arg == "name" and (texts := self._names.texts(keyword.value, scope)):
                        return texts
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        return [argument.value]
        return []

    def _scope_at(self, cls: Defined, node: ast.Call) -> Scope:
        if not self._scopes:
            self._scopes = {id(call): scope for call, scope in self._project.calls}
        return self._scopes.get(id(node), cls.scope)

    def _names_given(self, cls: Defined) -> set[str]:
        """Return the names that the places give which make objects of a class."""
        found: set[str] = set()
        for node, scope in self._project.calls:
            if not any(keyword.arg == "name" for keyword in node.keywords):
                continue
            if any(isinstance(atom, Defined) and atom is cls for atom in self._names.atoms(node.func, scope)):
                for keyword in node.keywords:
                    if keyword.arg == "name":
                        found.update(self._names.texts(keyword.value, scope))
        return found

    def _is_parent(self, cls: Defined) -> bool:
        if self._parents is None:
            self._parents = set()
            for other in self._project.defined:
                if isinstance(other.node, ast.ClassDef):
                    self._parents.update(id(base.node) for base in self._names.mro(other)[1:])
        return id(cls.node) in self._parents

    def metadata_names(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return the names in a `metadata=ToolMetadata(name=...)`."""
        for atom in self._names.atoms(node, scope):
            if isinstance(atom, Called) and atom.dotted.endswith("ToolMetadata"):
                return self._metadata(atom.node, atom.scope)
        return []

    def _metadata(self, node: ast.Call, scope: Scope) -> list[str]:
        for keyword in node.keywords:
            if keyword.arg == "name":
                return self._names.texts(keyword.value, scope)
        return self._names.texts(node.args[1], scope) if len(node.args) > 1 else []
