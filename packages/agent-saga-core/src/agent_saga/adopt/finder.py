"""Finds every tool of a project: who is decorated, built, subclassed, or handed to an agent."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.classes import ClassTools
from agent_saga.adopt.frameworks import (
    CONSTRUCTORS,
    DECORATORS,
    HOSTED,
    PASS,
    SOURCES,
    TAKERS,
    TAKES,
    Maker,
    framework_of,
    match,
)
from agent_saga.adopt.model import Source
from agent_saga.adopt.names import Called, Constant, External, Instance, Literal, Names, Unknown
from agent_saga.adopt.source import Defined, Function, Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga.adopt.names import Atom
    from agent_saga.adopt.source import Project, Scope


@dataclass(slots=True, eq=False)
class Draft:
    """A tool, while it is looked for.

    Attributes:
        names: explicit names; empty for the function's own.
        function: what runs.
        at: the function, class or call that stands for it.
    """

    at: ast.AST
    module: Module
    kind: str
    fallback: str
    function: Defined | None = None
    names: set[str] = field(default_factory=set)
    frameworks: set[str] = field(default_factory=set)
    name_known: bool = True
    place: str = ""


_MEMBER_TAKERS: Final = frozenset({"bind_tools", "predict_and_call", "chat_with_tools", "achat_with_tools"})
"""Methods whose name says it, whatever the object is."""
_LOOSE: Final = frozenset({"tool", "tool_plain"})


class Finder:
    """One scan of one project."""

    def __init__(self, project: Project, names: Names) -> None:
        self._project, self._names = project, names
        self._classes = ClassTools(project, names)
        self._drafts: dict[tuple[int, str], Draft] = {}
        self._made: set[int] = set()  # Functions and calls that are a tool by themselves.
        self._used = used_frameworks(project)
        self.sources: dict[tuple[str, int, str], Source] = {}
        self.unfollowed: dict[str, None] = {}

    def run(self) -> list[Draft]:
        """Return all tools."""
        for defined in self._project.defined:
            if isinstance(defined.node, Function):
                self._decorated(defined)
        for node, scope in self._project.calls:
            self._constructed(node, scope)
        for defined in self._project.defined:
            if isinstance(defined.node, ast.ClassDef):
                self._class(defined)
        for node, scope in self._project.calls:
            self._handed_over(node, scope)
        for defined in self._project.defined:
            if isinstance(defined.node, Function):
                self._gives_tools(defined)
        return list(self._drafts.values())

    def _draft(self, at: ast.AST, module: Module, kind: str, fallback: str, framework: str, key: str = "") -> Draft:  # noqa: PLR0917
        place = (id(at), key)
        if place not in self._drafts:
            self._drafts[place] = Draft(at, module, kind, fallback)
        self._drafts[place].frameworks.add(framework)
        return self._drafts[place]

    # -- decorators ---------------------------------------------------------------------------------------------

    def _decorated(self, defined: Defined) -> None:
        for decorator in defined.node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            func = call.func if call is not None else decorator
            found = self._decorator(func, defined.outer)
            if found is None:
                continue
            framework, maker = found
            draft = self._function(defined, framework)
            if call is not None:
                draft.names.update(self._name_in(call, maker, defined.outer))

    def _decorator(self, func: ast.expr, scope: Scope) -> tuple[str, Maker] | None:
        atoms = self._names.atoms(func, scope)
        for dotted in sorted(dotted_of(atoms)):
            if dotted.startswith("crewai.project."):
                continue
            if (found := match(DECORATORS, dotted)) is not None:
                return found
        if isinstance(func, ast.Attribute) and func.attr in _LOOSE and all(isinstance(a, Unknown) for a in atoms):
            return self._loose(func)
        return None

    def _loose(self, func: ast.Attribute) -> tuple[str, Maker] | None:
        """Judge `@x.tool` of an object that could not be followed by its name and by what the project uses."""
        base = (ast.unparse(func.value).rpartition(".")[2]).lower()
        for framework in ("mcp", "pydantic-ai"):
            words = ("mcp", "server", "app") if framework == "mcp" else ("agent", "toolset")
            if framework in self._used and any(word in base for word in words) and func.attr in DECORATORS[framework]:
                return framework, DECORATORS[framework][func.attr]
        return None

    def _function(self, defined: Defined, framework: str) -> Draft:
        self._made.add(id(defined.node))
        kind = "method" if defined.scope.owner() is not None else "function"
        draft = self._draft(defined.node, defined.scope.module, kind, defined.node.name, framework)
        draft.function, draft.place = defined, defined.scope.qualname
        return draft

    def _name_in(self, call: ast.Call, maker: Maker, scope: Scope) -> list[str]:
        for keyword in call.keywords:
            if keyword.arg in maker.name:
                return self._names.texts(keyword.value, scope)
            if keyword.arg == "metadata":
                return self._classes.metadata_names(keyword.value, scope)
        if maker.first_text and call.args and (texts := self._texts_only(call.args[0], scope)):
            return texts
        if 0 <= maker.name_position < len(call.args):
            return self._texts_only(call.args[maker.name_position], scope)
        return []

    def _texts_only(self, node: ast.expr, scope: Scope) -> list[str]:
        atoms = self._names.atoms(node, scope)
        return self._names.texts(node, scope) if all(isinstance(a, Constant) for a in atoms) else []

    # -- constructors -------------------------------------------------------------------------------------------

    def _constructed(self, node: ast.Call, scope: Scope) -> None:
        if isinstance(node.func, ast.Call):
            self._factory_call(node, node.func, scope)
            return
        for dotted in sorted(self._names.dotted(node.func, scope)):
            if dotted.startswith("crewai.project."):
                continue
            if (found := match(CONSTRUCTORS, dotted)) is not None:
                self._construct(node, found, scope)
                return
            if (found := match(DECORATORS, dotted)) is not None:
                self._applied(node, found, scope)
                return

    def _factory_call(self, node: ast.Call, factory: ast.Call, scope: Scope) -> None:
        """`tool("name")(function)`."""
        for dotted in sorted(self._names.dotted(factory.func, scope)):
            found = match(DECORATORS, dotted)
            if found is not None and node.args:
                names = self._name_in(factory, found[1], scope)
                self._functions_of(node, [node.args[0]], found[0], names, scope)

    def _applied(self, node: ast.Call, found: tuple[str, Maker], scope: Scope) -> None:
        """`tool(function)`; with a text alone it is a decorator, seen elsewhere."""
        framework, maker = found
        given = [keyword.value for keyword in node.keywords if keyword.arg in maker.function] or node.args[:1]
        if given and self._texts_only(given[0], scope):
            given = node.args[1:2]
        if given:
            self._functions_of(node, given, framework, self._name_in(node, maker, scope), scope)

    def _construct(self, node: ast.Call, found: tuple[str, Maker], scope: Scope) -> None:
        framework, maker = found
        names = self._name_in(node, maker, scope)
        for keyword in node.keywords:
            if keyword.arg == "function_map":
                self._map(node, keyword.value, framework, scope)
                return
        given = [k.value for k in node.keywords if k.arg in maker.function]
        if not given and 0 <= maker.position < len(node.args):
            given = [node.args[maker.position]]
        self._functions_of(node, given, framework, names, scope)

    def _map(self, node: ast.Call, mapping: ast.expr, framework: str, scope: Scope) -> None:
        if not isinstance(mapping, ast.Dict):
            self._take_all(mapping, framework, scope)
            return
        for key, value in zip(mapping.keys, mapping.values, strict=True):
            if key is not None:
                self._functions_of(node, [value], framework, self._names.texts(key, scope), scope)

    def _functions_of(
        self, node: ast.Call, given: list[ast.expr], framework: str, names: list[str], scope: Scope
    ) -> None:
        """Note the tool that a call makes of what it is given."""
        self._made.add(id(node))
        known: list[Defined] = []
        others: list[Atom] = []
        for one in given:
            for atom in self._names.atoms(one, scope):
                if isinstance(atom, Defined) and isinstance(atom.node, Function):
                    known.append(atom)
                elif isinstance(atom, Called | Instance) and (runner := self._classes.runner(atom.cls, "__call__")):
                    known.append(runner)
                elif isinstance(atom, External | Unknown | Called | Literal):
                    others.append(atom)
        if names or len(known) > 1 or not known:
            self._named(node, framework, names, known, others, scope)
        else:
            self._function(known[0], framework)

    def _named(  # noqa: PLR0917
        self,
        node: ast.Call,
        framework: str,
        names: list[str],
        known: list[Defined],
        others: list[Atom],
        scope: Scope,
    ) -> None:
        """A tool with a name of its own, or made of more than one function (sync and async, or in a loop)."""
        if names:
            for name in names:
                at = known[0].node if len(known) == 1 else node
                draft = self._draft(at, scope.module, "function" if known else "call", name, framework, name)
                draft.names, draft.place = {name}, known[0].scope.qualname if known else ast.unparse(node.func)
                draft.function = known[0] if known else None
                if known:
                    draft.module = known[0].scope.module if len(known) == 1 else scope.module
            return
        pair = len(known) == 2 and _is_pair(known[0].node.name, known[1].node.name)  # noqa: PLR2004
        for defined in known[:1] if pair else known:
            self._function(defined, framework)
        if known:
            return
        for atom in others:
            if isinstance(atom, Called) and (id(atom.node) in self._made or match(DECORATORS, atom.dotted)):
                return  # A tool that is seen for itself.
            if isinstance(atom, External) and not atom.dotted.endswith("()"):
                self._draft(node, scope.module, "builtin", atom.dotted.rpartition(".")[2], framework, atom.dotted)
                return
        self._not_followed(node, scope, "what it makes a tool of, or the tool's name")

    # -- classes ------------------------------------------------------------------------------------------------

    def _class(self, defined: Defined) -> None:
        framework = self._classes.framework(defined)
        if framework is None:
            return
        for name, method, known in self._classes.tools(defined):
            draft = self._draft(defined.node, defined.scope.module, "class", name, framework, name)
            draft.function, draft.place, draft.name_known = method, defined.scope.qualname, known
            draft.names = {name}

    # -- takers -------------------------------------------------------------------------------------------------

    def _handed_over(self, node: ast.Call, scope: Scope) -> None:
        framework, last = self._taker(node, scope)
        given = [keyword for keyword in node.keywords if keyword.arg in TAKES]
        if framework is None:
            for keyword in given:
                self._schemas_only(keyword.value, scope)
            return
        for keyword in given:
            if keyword.arg == "function_map":
                self._map(node, keyword.value, framework, scope)
            else:
                self._take_all(keyword.value, framework, scope)
        position = TAKERS[framework].get(last, -1)
        if not given and 0 <= position < len(node.args):
            self._take_all(node.args[position], framework, scope)

    def _taker(self, node: ast.Call, scope: Scope) -> tuple[str | None, str]:  # noqa: C901 - one case a form.
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        for atom in self._names.atoms(node.func, scope):
            if isinstance(atom, Defined) and isinstance(atom.node, ast.ClassDef):
                for base in self._names.external_bases(atom):
                    if (framework := framework_of(base)) is not None:
                        return framework, base.rpartition(".")[2]
        for dotted in sorted(self._names.dotted(node.func, scope)):
            if (framework := framework_of(dotted)) is not None:
                return framework, dotted.rpartition(".")[2]
        if last in _MEMBER_TAKERS:
            for framework in sorted(self._used):
                if last in TAKERS.get(framework, {}):
                    return framework, last
        if last == "__init__" and (owner := scope.owner()) is not None:
            for cls in self._project.defined:
                if cls.scope is owner:
                    return next(filter(None, map(framework_of, self._names.external_bases(cls))), None), last
        return None, last

    def _schemas_only(self, node: ast.expr, scope: Scope) -> None:
        for atom in self._names.atoms(node, scope):
            if (
                isinstance(atom, Literal)
                and isinstance(atom.node, ast.Dict)
                and schema_name(atom.node, self._names, atom.scope)
            ):
                self._take(atom, "tool-list", node, scope)

    def _gives_tools(self, defined: Defined) -> None:
        """CrewAI's `@tool` of a project class marks a method that returns a tool."""
        for decorator in defined.node.decorator_list:
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            if "crewai.project.tool" in self._names.dotted(func, defined.outer):
                from agent_saga.adopt.names import returned

                assert isinstance(defined.node, Function)
                for value in returned(defined.node):
                    self._take_all(value, "crewai", defined.scope)

    def _take_all(self, node: ast.expr, framework: str, scope: Scope) -> None:
        for atom in self._names.atoms(node, scope):
            self._take(atom, framework, node, scope)

    def _take(self, atom: Atom, framework: str, node: ast.expr, scope: Scope) -> None:
        if isinstance(atom, Defined):
            if isinstance(atom.node, Function) and id(atom.node) not in self._made:
                self._function(atom, framework)
        elif isinstance(atom, Called) and atom.cls is None:
            self._take_called(atom, framework)
        elif isinstance(atom, Called):
            self._take_instance(atom, framework)
        elif isinstance(atom, External):
            self._take_external(atom, framework, node, scope)
        elif isinstance(atom, Literal):
            self._take_literal(atom, framework, scope)
        elif isinstance(atom, Unknown):
            self._not_followed(atom.node, atom.scope, "a list of tools")

    def _take_instance(self, atom: Called, framework: str) -> None:
        """An object of a project class: a tool if its class is one, or is based on one of a package."""
        assert atom.cls is not None
        if self._classes.framework(atom.cls) is not None:
            return
        bases = [base for base in self._names.external_bases(atom.cls) if base.rpartition(".")[2].endswith("Tool")]
        if bases:
            self._builtin(atom, bases[0], framework)
        elif (runner := self._classes.runner(atom.cls, "__call__")) is not None:
            draft = self._function(runner, framework)
            draft.fallback = atom.dotted

    def _take_called(self, atom: Called, framework: str) -> None:
        if id(atom.node) in self._made:
            return
        last = atom.dotted.rpartition(".")[2]
        own_spec = atom.dotted.endswith("BaseToolSpec().to_tool_list")  # Seen by its class.
        if last in PASS or own_spec or match(DECORATORS, atom.dotted) is not None:
            return
        if last in HOSTED:
            self._builtin(atom, atom.dotted, framework, kind="hosted")
        elif last == "load_tools":
            texts = self._names.texts(atom.node.args[0], atom.scope) if atom.node.args else []
            for text in texts:
                self._draft(atom.node, atom.scope.module, "builtin", text, framework, text).names = {text}
        elif any(word in atom.dotted for word in SOURCES) or not last[:1].isupper():
            module = atom.scope.module
            source = Source(
                what=ast.unparse(atom.node.func), framework=framework, path=module.relative, line=atom.node.lineno
            )
            self.sources[module.relative, atom.node.lineno, source.what] = source
        else:
            self._builtin(atom, atom.dotted, framework)

    def _builtin(self, atom: Called, dotted: str, framework: str, kind: str = "builtin") -> None:
        last = dotted.rpartition(".")[2]
        names = [
            text
            for keyword in atom.node.keywords
            if keyword.arg in {"name", "tool_name"}
            for text in self._names.texts(keyword.value, atom.scope)
        ]
        draft = self._draft(atom.node, atom.scope.module, kind, last, framework, last)
        draft.place, draft.name_known, draft.names = dotted, bool(names), set(names)

    def _take_external(self, atom: External, framework: str, node: ast.expr, scope: Scope) -> None:
        last = atom.dotted.rpartition(".")[2]
        if atom.dotted.startswith("builtins.") or atom.dotted.endswith("()") or last in PASS:
            return
        if last[:1].isupper():
            return
        kind = "hosted" if last in HOSTED else "builtin"
        draft = self._draft(node, scope.module, kind, last, framework, atom.dotted)
        draft.place = atom.dotted

    def _take_literal(self, atom: Literal, framework: str, scope: Scope) -> None:
        if isinstance(atom.node, ast.Lambda):
            draft = self._draft(atom.node, atom.scope.module, "lambda", "lambda", framework)
            draft.name_known = False
            return
        name = schema_name(atom.node, self._names, atom.scope)
        if name:
            self._draft(atom.node, atom.scope.module, "schema", name, framework, name).names = {name}

    def _not_followed(self, node: ast.AST, scope: Scope, what: str) -> None:
        text = " ".join(ast.unparse(node).split())[:80]
        self.unfollowed[f"{scope.module.relative}:{getattr(node, 'lineno', 0)}: {what}: {text}"] = None


def dotted_of(atoms: Iterable[Atom]) -> Iterator[str]:
    """Yield the external names among what an expression may be."""
    for atom in atoms:
        if isinstance(atom, External):
            yield atom.dotted
        elif isinstance(atom, Called) and atom.cls is None:
            yield f"{atom.dotted}()"


def schema_name(node: ast.Dict, names: Names, scope: Scope) -> str:
    """Return the tool's name in a schema that was written as a dict; empty for another dict."""
    fields = {k.value: v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)}
    inner = fields.get("function")
    if isinstance(inner, ast.Dict):
        return schema_name(inner, names, scope) or next(iter(names.texts(dict(_items(inner)).get("name"), scope)), "")
    if not fields.keys() & {"parameters", "input_schema", "inputSchema", "strict"} and "description" not in fields:
        return ""
    texts = names.texts(fields.get("name"), scope)
    return texts[0] if texts else ""


def _items(node: ast.Dict) -> Iterator[tuple[object, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            yield key.value, value


def _is_pair(first: str, second: str) -> bool:
    """Whether two names are the sync and async form of one function."""
    short, long = sorted((first, second), key=len)
    return short in long or long.replace("async", "sync") == short


def used_frameworks(project: Project) -> dict[str, list[str]]:
    """Return framework -> files that import it; a project's own module of that name is not it."""
    used: dict[str, list[str]] = {}
    for module in project.modules.values():
        for node in ast.walk(module.tree):
            tops: list[str] = []
            if isinstance(node, ast.Import):
                tops = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                tops = [node.module or ""]
            for top in tops:
                framework = framework_of(top)
                if framework and not _is_own(project, top) and module.relative not in used.get(framework, []):
                    used.setdefault(framework, []).append(module.relative)
    return used


def _is_own(project: Project, dotted: str) -> bool:
    return dotted in project.modules
