"""What an expression may be: names are followed through imports, aliases, lists, returns and parameters."""

from __future__ import annotations

import ast
import builtins
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.source import Defined, Function, Imported, Module, Parameter, Project, Scope, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga.adopt.source import Bound

DEPTH_MAX: Final = 60
ATOMS_MAX: Final = 1000
"""Things that one expression may be; what comes after them is left out."""
PARTIAL_MAX: Final = 300
"""Answers inside circles that one question may leave to be found again; more are kept, to bound the time."""
_SAME: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "filter", "enumerate", "zip", "dict", "next"}
)
_THROUGH: Final = frozenset({"values", "items", "copy", "get", "pop", "union"})


@dataclass(frozen=True, slots=True)
class External:
    """Something outside of the project, by dotted name; `()` stands for a call's result."""

    dotted: str


@dataclass(frozen=True, slots=True)
class Called:
    """What a call of something external, or of a class of the project, returned.

    Attributes:
        dotted: what was called; for a class of the project its name.
        cls: that class.
    """

    node: ast.Call
    scope: Scope
    dotted: str
    cls: Defined | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project (`self`, or by annotation)."""

    cls: Defined


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: object


@dataclass(frozen=True, slots=True)
class Literal:
    """A dict literal or lambda, as it stands."""

    node: ast.Dict | ast.Lambda
    scope: Scope


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be followed."""

    node: ast.expr
    scope: Scope


Atom = External | Called | Instance | Constant | Literal | Unknown | Defined | Module
_NONE: Final[frozenset[Atom]] = frozenset()


class Names:
    """Answers what expressions of a project may be. A list is taken for its elements."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._places: dict[tuple[str, str], Module | None] = {}
        self._sites: dict[int, list[tuple[list[ast.expr], dict[str, ast.expr], Scope]]] | None = None
        self._building = False
        self._memo: dict[tuple[int, int], frozenset[Atom]] = {}
        self._partial: dict[tuple[int, int], frozenset[Atom]] = {}
        self._busy: set[int] = set()
        self._cut = False
        for target, value, scope in project.mutations:
            self._mutate(target, value, scope)
        self._memo.clear()  # What was found before all lists were complete is not the whole answer.
        self._sites = None

    def atoms(self, node: ast.expr, scope: Scope) -> frozenset[Atom]:
        """Return all that an expression may be."""
        return self._eval(node, scope)

    def dotted(self, node: ast.expr, scope: Scope) -> set[str]:
        """Return the external names that an expression may be; a result is `name()`."""
        return set(_dotted(self._eval(node, scope)))

    def texts(self, node: ast.expr | None, scope: Scope) -> list[str]:
        """Return the text constants that an expression may be."""
        if node is None:
            return []
        found = {atom.value for atom in self._eval(node, scope) if isinstance(atom, Constant)}
        return sorted(value for value in found if isinstance(value, str))

    # -- evaluation ---------------------------------------------------------------------------------------------

    def _eval(self, node: ast.expr, scope: Scope) -> frozenset[Atom]:
        key = (id(node), id(scope))
        if key in self._memo:
            return self._memo[key]
        if key in self._partial:  # Found once inside this question: looking again would take time without end.
            self._cut = True
            return self._partial[key]
        if id(node) in self._busy or len(self._busy) > DEPTH_MAX:
            self._cut = True
            return _NONE
        self._busy.add(id(node))
        outer, self._cut = self._cut, False
        try:
            method = getattr(self, f"_{type(node).__name__}", None)
            given = method(node, scope) if method is not None else (Unknown(node, scope),)
            found = frozenset(itertools.islice(given, ATOMS_MAX))
        finally:
            self._busy.discard(id(node))
        if not self._cut or not self._busy:  # What was cut short inside a circle is not the whole answer.
            self._memo[key] = found
        else:
            self._partial[key] = found
        if not self._busy:
            if len(self._partial) > PARTIAL_MAX:
                self._memo.update(self._partial)
            self._partial.clear()
        self._cut = (self._cut and bool(self._busy)) or outer
        return found

    def _union(self, nodes: Iterable[ast.expr], scope: Scope) -> Iterator[Atom]:
        for node in nodes:
            yield from self._eval(node, scope)

    def _Constant(self, node: ast.Constant, _scope: Scope) -> Iterator[Atom]:  # noqa: N802 - named after the node.
        if node.value is not None:
            yield Constant(node.value)

    def _JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        parts: list[list[str]] = []
        for value in node.values:
            inner = value.value if isinstance(value, ast.FormattedValue) else value
            parts.append([str(a.value) for a in self._eval(inner, scope) if isinstance(a, Constant)][:4])
        if parts and all(parts):
            yield from (Constant("".join(chosen)) for chosen in itertools.islice(itertools.product(*parts), 16))
        else:
            yield Unknown(node, scope)

    def _List(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return self._union(node.elts, scope)

    _Tuple = _Set = _List

    def _Dict(self, node: ast.Dict, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        if "name" in keys or ("type" in keys and "function" in keys):
            yield Literal(node, scope)
        else:
            yield from self._union(node.values, scope)

    def _Lambda(self, node: ast.Lambda, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        yield Literal(node, scope)

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return iter(self._eval(node.elt, scope))

    _GeneratorExp = _SetComp = _ListComp

    def _DictComp(self, node: ast.DictComp, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return iter(self._eval(node.value, scope))

    def _Starred(self, node: ast.Starred | ast.Await | ast.NamedExpr | ast.Subscript, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return iter(self._eval(node.value, scope))

    _Await = _NamedExpr = _Subscript = _YieldFrom = _Starred

    def _IfExp(self, node: ast.IfExp, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return self._union((node.body, node.orelse), scope)

    def _BoolOp(self, node: ast.BoolOp, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        return self._union(node.values, scope)

    def _BinOp(self, node: ast.BinOp, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        left, right = self._eval(node.left, scope), self._eval(node.right, scope)
        first, second = ([a.value for a in side if isinstance(a, Constant)] for side in (left, right))
        if first and second and isinstance(node.op, ast.Add):
            pairs = ((a, b) for a in first for b in second if isinstance(a, str) and isinstance(b, str))
            yield from (Constant(a + b) for a, b in itertools.islice(pairs, 16))
        else:
            yield from left | right

    def _Name(self, node: ast.Name, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        place: Scope | None = scope
        while place is not None:
            if node.id in place.names and (place.kind != "class" or place is scope):
                yield from self._bound(place.names[node.id])
                return
            place = place.parent
        yield from self._starred(node.id, scope.module) or (
            [External(f"builtins.{node.id}")] if hasattr(builtins, node.id) else [Unknown(node, scope)]
        )

    def _Attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        for base in self._eval(node.value, scope):
            yield from self._member(base, node, scope)

    def _member(self, base: Atom, node: ast.Attribute, scope: Scope) -> Iterator[Atom]:
        name = node.attr
        if isinstance(base, External):
            yield External(f"{base.dotted}.{name}")
        elif isinstance(base, Called) and base.cls is None:
            yield External(f"{base.dotted}().{name}")
        elif isinstance(base, Module):
            yield from self._of_module(base, name) or [Unknown(node, scope)]
        elif isinstance(base, Instance | Called):
            assert base.cls is not None
            yield from self._of_class(base.cls, name, node, scope, of="()")
        elif isinstance(base, Defined) and isinstance(base.node, ast.ClassDef):
            yield from self._of_class(base, name, node, scope, of="")
        elif isinstance(base, Defined) and name == "__name__":
            yield Constant(base.node.name)
        else:
            yield Unknown(node, scope)

    def _of_class(self, cls: Defined, name: str, node: ast.expr, scope: Scope, *, of: str) -> Iterator[Atom]:
        for one in self.mro(cls):
            if name in one.scope.names:
                yield from self._bound(one.scope.names[name])
                return
        outside = [f"{base}{of}.{name}" for base in self.external_bases(cls)]
        yield from map(External, outside) if outside else [Unknown(node, scope)]

    def _Call(self, node: ast.Call, scope: Scope) -> Iterator[Atom]:  # noqa: N802
        func = node.func
        if isinstance(func, ast.Attribute) and (
            func.attr in {"values", "items"}
            or (func.attr in _THROUGH and not isinstance(func.value, ast.Name | ast.Call))
        ):
            yield from self._eval(func.value, scope)
            return
        through = isinstance(func, ast.Attribute) and func.attr in _THROUGH
        for callee in self._eval(func, scope):
            if isinstance(callee, External):
                yield from self._external_call(callee.dotted, node, scope)
            elif isinstance(callee, Called) and callee.cls is None:
                yield Called(node, scope, f"{callee.dotted}()")
            elif isinstance(callee, Defined):
                yield from self._own_call(callee, node, scope)
            elif isinstance(func, ast.Attribute) and through:
                yield from self._eval(func.value, scope)
            else:
                yield Unknown(node, scope)

    def _external_call(self, dotted: str, node: ast.Call, scope: Scope) -> Iterator[Atom]:
        root, _, last = dotted.rpartition(".")
        if (root == "builtins" and last in _SAME) or dotted in {"itertools.chain", "copy.copy", "copy.deepcopy"}:
            yield from self._union([*node.args, *(k.value for k in node.keywords)], scope)
        elif dotted in {"functools.partial", "asyncio.run", "itertools.chain.from_iterable"} and node.args:
            yield from self._eval(node.args[0], scope)
        elif dotted == "typing.cast" and len(node.args) > 1:
            yield from self._eval(node.args[1], scope)
        elif dotted == "builtins.map" and len(node.args) > 1:
            for callee in self._eval(node.args[0], scope):
                if isinstance(callee, External):
                    yield Called(node, scope, callee.dotted)
                elif isinstance(callee, Defined):
                    yield from self._own_call(callee, node, scope)
        elif dotted.startswith("agent_saga") and last == "protect" and node.args:
            yield from self._eval(node.args[0], scope)
        elif dotted == "builtins.getattr":
            yield Unknown(node, scope)
        else:
            yield Called(node, scope, dotted)

    def _own_call(self, callee: Defined, node: ast.Call, scope: Scope) -> Iterator[Atom]:
        if isinstance(callee.node, ast.ClassDef):
            yield Called(node, scope, callee.node.name, callee)
            return
        results = returned(callee.node)
        if not results and callee.node.returns is not None:
            yield from self._of_annotation(callee.node.returns, callee.outer)
        for result in results:
            yield from self._eval(result, self._scope_of(callee))

    def _scope_of(self, callee: Defined) -> Scope:
        return callee.scope

    # -- bindings -----------------------------------------------------------------------------------------------

    def _bound(self, bindings: list[Bound]) -> set[Atom]:
        found: set[Atom] = set()
        for bound in bindings:
            if isinstance(bound, Defined):
                found.add(bound)
            elif isinstance(bound, Value):
                found |= self._eval(bound.node, bound.scope)
            elif isinstance(bound, Imported):
                found |= self._imported(bound, bindings)
            else:
                found |= self._parameter(bound)
        return found

    def _imported(self, what: Imported, bindings: list[Bound]) -> set[Atom]:
        module = self._module_with(bindings)
        return set(self._import(what, module)) if module is not None else set()

    def _module_with(self, bindings: list[Bound]) -> Module | None:
        """Return the module whose scopes hold this list of bindings."""
        if not hasattr(self, "_homes"):
            self._homes: dict[int, Module] = {}
            scopes = [m.scope for m in self._project.modules.values()] + [d.scope for d in self._project.defined]
            for scope in scopes:
                for held in scope.names.values():
                    self._homes[id(held)] = scope.module
        return self._homes.get(id(bindings))

    def _import(self, what: Imported, importer: Module) -> list[Atom]:
        if what.level:
            parts = importer.package.split(".") if importer.package else []
            parts = parts[: len(parts) - (what.level - 1)]
            dotted = ".".join([*parts, *([what.module] if what.module else [])])
            module = self._project.modules.get(dotted)
        else:
            dotted, module = what.module, self._find_module(what.module, importer)
        if what.name is None:
            return [module] if module is not None else [External(dotted)]
        if module is not None and (found := self._of_module(module, what.name)):
            return found
        inner = f"{module.name if module is not None else dotted}.{what.name}"
        below = self._project.modules.get(inner) or (None if what.level else self._find_module(inner, importer))
        return [below] if below is not None else [External(f"{dotted}.{what.name}")]

    def _find_module(self, dotted: str, importer: Module) -> Module | None:
        """Return the project's module of a name: beside the importer, or below one of the folders above it."""
        key = (dotted, importer.name)
        if key not in self._places:
            self._places[key] = self._search(dotted, importer)
        return self._places[key]

    def _search(self, dotted: str, importer: Module) -> Module | None:
        parts = importer.name.split(".")
        if not importer.is_package:
            parts.pop()
        for end in range(len(parts), -1, -1):
            for middle in ([], ["src"]):
                name = ".".join([*parts[:end], *middle, dotted])
                if (module := self._project.modules.get(name)) is not None and module is not importer:
                    return module
        return None

    def _of_module(self, module: Module, name: str) -> list[Atom]:
        if name in module.scope.names:
            bindings = module.scope.names[name]
            if id(bindings) in self._busy:
                return []
            self._busy.add(id(bindings))
            try:
                return list(self._bound(bindings))
            finally:
                self._busy.discard(id(bindings))
        below = self._project.modules.get(f"{module.name}.{name}" if module.name else name)
        return [below] if below is not None else self._starred(name, module)

    def _starred(self, name: str, module: Module) -> list[Atom]:
        outside: list[Atom] = []
        for star in module.star:
            (source,) = self._import(star, module)
            if isinstance(source, Module) and source is not module and name in source.scope.names:
                return self._of_module(source, name)
            if isinstance(source, Module) and source.star and id(source) not in self._busy:
                self._busy.add(id(source))
                try:
                    if found := self._starred(name, source):
                        return found
                finally:
                    self._busy.discard(id(source))
            if isinstance(source, External) and not hasattr(builtins, name):
                outside.append(External(f"{source.dotted}.{name}"))
        return outside

    def _parameter(self, bound: Parameter) -> set[Atom]:
        function = bound.scope
        owner = function.owner()
        if owner is not None and bound.index == 0 and not _is_static(function.node):
            return {self._defined_of(owner)} if _is_class_method(function.node) else {Instance(self._defined_of(owner))}
        found: set[Atom] = set()
        if bound.node.annotation is not None:
            found |= set(self._of_annotation(bound.node.annotation, function))
        for args, keywords, scope in self._call_sites(function):
            given = keywords.get(bound.node.arg)
            shift = 1 if owner is not None and not _is_static(function.node) else 0
            if given is None and 0 <= bound.index - shift < len(args):
                given = args[bound.index - shift]
            if given is not None:
                found |= self._eval(given, scope)
            elif _is_vararg(function.node, bound.node):
                for one in args:
                    found |= self._eval(one, scope)
        return found | self._default(bound)

    def _default(self, bound: Parameter) -> set[Atom]:
        node = bound.scope.node
        assert isinstance(node, Function)
        arguments = [*node.args.posonlyargs, *node.args.args]
        pairs = [
            *zip(reversed(arguments), reversed(node.args.defaults), strict=False),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ]
        outer = bound.scope.parent
        for argument, default in pairs:
            if argument is bound.node and default is not None and outer is not None:
                return set(self._eval(default, outer))
        return set()

    def _of_annotation(self, node: ast.expr, scope: Scope) -> Iterator[Atom]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return
        if isinstance(node, ast.BinOp):
            yield from self._of_annotation(node.left, scope)
            yield from self._of_annotation(node.right, scope)
        elif isinstance(node, ast.Name | ast.Attribute):
            for atom in self._eval(node, scope):
                if isinstance(atom, Defined) and isinstance(atom.node, ast.ClassDef):
                    yield Instance(atom)
                elif isinstance(atom, External) and not atom.dotted.startswith(("builtins.", "typing.")):
                    yield External(f"{atom.dotted}()")

    def _defined_of(self, scope: Scope) -> Defined:
        if not hasattr(self, "_by_scope"):
            self._by_scope = {id(d.scope): d for d in self._project.defined}
        return self._by_scope[id(scope)]

    def _call_sites(self, function: Scope) -> list[tuple[list[ast.expr], dict[str, ast.expr], Scope]]:
        """Return the arguments of every call of a function, its uses as a decorator included."""
        if self._sites is None:
            if self._building:
                self._cut = True
                return []
            self._building = True
            try:
                self._sites = self._index_calls()
            finally:
                self._building = False
                self._partial.clear()
        return self._sites.get(id(function), [])

    def _index_calls(self) -> dict[int, list[tuple[list[ast.expr], dict[str, ast.expr], Scope]]]:
        sites: dict[int, list[tuple[list[ast.expr], dict[str, ast.expr], Scope]]] = {}
        wanted = {d.node.name for d in self._project.defined}
        for node, scope in self._project.calls:
            for callee in self._callees(node.func, scope, wanted):
                keywords = {k.arg: k.value for k in node.keywords if k.arg}
                args = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
                sites.setdefault(id(callee), []).append((args, keywords, scope))
        for defined in self._project.defined:
            for decorator in defined.node.decorator_list:
                for callee in self._callees(decorator, defined.outer, wanted):
                    name = ast.copy_location(ast.Name(defined.node.name, ast.Load()), defined.node)
                    sites.setdefault(id(callee), []).append(([name], {}, defined.outer))
        return sites

    def _callees(self, func: ast.expr, scope: Scope, wanted: set[str]) -> Iterator[Scope]:
        if isinstance(func, ast.Call):
            return
        for atom in self._eval(func, scope):
            if isinstance(atom, Defined):
                if isinstance(atom.node, ast.ClassDef):
                    for bound in atom.scope.names.get("__init__", []):
                        if isinstance(bound, Defined):
                            yield bound.scope
                else:
                    yield atom.scope

    def _mutate(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:  # noqa: C901 - one case a form.
        """Let what is appended to a list be part of what its name is bound to."""
        if isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            if target.value.id in {"self", "cls"}:
                owner = scope.owner() or (scope.parent.owner() if scope.parent is not None else None)
                if owner is not None:
                    owner.bind(target.attr, Value(value, scope))
                return
            for atom in self._eval(target.value, scope):
                if isinstance(atom, Module):
                    atom.scope.bind(target.attr, Value(value, scope))
            return
        if not isinstance(target, ast.Name):
            return
        place: Scope | None = scope
        while place is not None and target.id not in place.names:
            place = place.parent
        if place is None:
            return
        for bound in list(place.names[target.id]):
            if isinstance(bound, Imported):
                self._mutate_imported(bound, place, Value(value, scope))
                return
        place.bind(target.id, Value(value, scope))

    def _mutate_imported(self, bound: Imported, place: Scope, value: Value) -> None:
        seen = 0
        while bound.name is not None and seen < DEPTH_MAX:
            seen += 1
            sources = self._import(Imported(bound.module, None, bound.level), place.module)
            source = sources[0]
            if not isinstance(source, Module) or bound.name not in source.scope.names:
                return
            onward = [b for b in source.scope.names[bound.name] if isinstance(b, Imported)]
            if not onward:
                source.scope.bind(bound.name, value)
                return
            bound, place = onward[0], source.scope

    # -- classes ------------------------------------------------------------------------------------------------

    def mro(self, cls: Defined) -> list[Defined]:
        """Return a class and its bases within the project, nearest first."""
        order, queue = [cls], [cls]
        while queue:
            one = queue.pop(0)
            assert isinstance(one.node, ast.ClassDef)
            for base in one.node.bases:
                for atom in self._eval(base, one.outer):
                    if isinstance(atom, Defined) and isinstance(atom.node, ast.ClassDef) and atom not in order:
                        order.append(atom)
                        queue.append(atom)
        return order

    def external_bases(self, cls: Defined) -> list[str]:
        """Return the dotted names of all bases outside of the project."""
        found: list[str] = []
        for one in self.mro(cls):
            assert isinstance(one.node, ast.ClassDef)
            for base in one.node.bases:
                found.extend(atom.dotted for atom in self._eval(base, one.outer) if isinstance(atom, External))
        return found


def returned(node: Function) -> list[ast.expr]:
    """Return what a function itself returns or yields."""
    found: list[ast.expr] = []
    queue: list[ast.AST] = list(node.body)
    while queue:
        child = queue.pop(0)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.Return | ast.Yield | ast.YieldFrom) and child.value is not None:
            found.append(child.value)
        queue.extend(ast.iter_child_nodes(child))
    return found


def _dotted(atoms: Iterable[Atom]) -> Iterator[str]:
    for atom in atoms:
        if isinstance(atom, External):
            yield atom.dotted
        elif isinstance(atom, Called) and atom.cls is None:
            yield f"{atom.dotted}()"


def _decorated(node: ast.AST, name: str) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(d, ast.Name) and d.id == name for d in decorators)


def _is_static(node: ast.AST) -> bool:
    return _decorated(node, "staticmethod")


def _is_class_method(node: ast.AST) -> bool:
    return _decorated(node, "classmethod")


def _is_vararg(node: ast.AST, argument: ast.arg) -> bool:
    assert isinstance(node, Function)
    return node.args.vararg is argument
