"""The project as syntax: files, modules, scopes, and what each name is bound to. Nothing of it is imported or run."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES_MAX: Final = 20_000
FILE_BYTES_MAX: Final = 2_000_000
SKIPPED: Final = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env", "egg-info", "htmlcov"}
)
"""Folders that hold no code of the project; hidden ones are skipped too."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function, and the names that are bound in it.

    Attributes:
        names: name -> what it may be; branches, loops and tries are all taken.
    """

    kind: Literal["module", "class", "function"]
    node: ast.AST
    module: Module
    parent: Scope | None
    name: str
    names: dict[str, list[Bound]] = field(default_factory=dict)

    @property
    def qualname(self) -> str:
        """The dotted name inside the module; empty for the module itself."""
        outer = self.parent.qualname if self.parent is not None else ""
        return f"{outer}.{self.name}" if outer else self.name

    def bind(self, name: str, what: Bound) -> None:
        """Add one thing that a name may be."""
        self.names.setdefault(name, []).append(what)

    def owner(self) -> Scope | None:
        """Return the class whose method this function is."""
        return self.parent if self.kind == "function" and self.parent and self.parent.kind == "class" else None


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """`module` as a name, or `name` of it."""

    module: str
    name: str | None
    level: int


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """A function or class of the project."""

    node: Function | ast.ClassDef
    outer: Scope
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression that was assigned, appended or iterated over."""

    node: ast.expr
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A parameter of a function of the project."""

    node: ast.arg
    index: int
    scope: Scope


Bound = Imported | Defined | Value | Parameter


@dataclass(slots=True, eq=False)
class Module:
    """One file.

    Attributes:
        name: dotted, from the project's folder.
        text: decoded, line ends as they are.
        star: modules whose names it imports with `*`.
    """

    path: Path
    relative: str
    name: str
    text: str
    encoding: str
    tree: ast.Module
    scope: Scope = field(init=False)
    star: list[Imported] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scope = Scope("module", self.tree, self, None, "")

    @property
    def is_package(self) -> bool:
        """Whether this is an `__init__.py`."""
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        """The dotted name that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class Project:
    """All that was read.

    Attributes:
        modules: by dotted name.
        calls: every call, and where it is.
        mutations: `x.append(y)` and its kin: what is changed, what comes in.
        unread: files that could not be parsed, with the reason.
    """

    root: Path
    modules: dict[str, Module] = field(default_factory=dict)
    calls: list[tuple[ast.Call, Scope]] = field(default_factory=list)
    defined: list[Defined] = field(default_factory=list)
    mutations: list[tuple[ast.expr, ast.expr, Scope]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    data_files: list[Path] = field(default_factory=list)


def read_project(root: Path, *, tests: bool = False) -> Project:
    """Parse all Python files below a folder (or one file).

    Args:
        root: where to look.
        tests: read the files of tests too.
    """
    base = root if root.is_dir() else root.parent
    project = Project(base)
    for path in _files(root, tests=tests):
        if path.suffix != ".py":
            project.data_files.append(path)
            continue
        module = _read(project, path)
        if module is not None:
            project.modules[module.name] = module
    for module in project.modules.values():
        _Collector(project, module).run()
    return project


def _files(root: Path, *, tests: bool) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if _is_ours(name, tests=tests) and not _is_venv(folder, name))
        for name in sorted(names):
            if not name.endswith((".py", ".json", ".yaml", ".yml")) or (not tests and _is_test(name)):
                continue
            count += 1
            if count > FILES_MAX:
                return
            yield type(root)(folder) / name


def _is_ours(name: str, *, tests: bool) -> bool:
    hidden = name.startswith(".") and name not in {".vscode", ".cursor"}
    return not (hidden or name in SKIPPED or name.endswith(".egg-info") or (not tests and name in {"tests", "test"}))


def _is_venv(folder: str, name: str) -> bool:
    return os.path.exists(f"{folder}/{name}/pyvenv.cfg")  # noqa: PTH110 - one system call for each folder.


def _is_test(name: str) -> bool:
    return name == "conftest.py" or (name.startswith("test_") and name.endswith(".py")) or name.endswith("_test.py")


def _read(project: Project, path: Path) -> Module | None:
    relative = path.relative_to(project.root).as_posix()
    try:
        raw = path.read_bytes()
        if len(raw) > FILE_BYTES_MAX:
            raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
        encoding = tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
        text = raw.decode(encoding)
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, LookupError) as error:
        project.unread.append((relative, f"{type(error).__name__}: {error}"))
        return None
    parts = relative.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return Module(path, relative, ".".join(parts), text, encoding, tree)


_MUTATORS: Final = {"append": 0, "add": 0, "extend": 0, "insert": 1, "update": 0, "appendleft": 0, "setdefault": 1}


class _Collector:
    """Walks one module: opens scopes, binds names, notes calls."""

    def __init__(self, project: Project, module: Module) -> None:
        self._project, self._module = project, module

    def run(self) -> None:
        for child in self._module.tree.body:
            self._visit(child, self._module.scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            method(node, scope)
        else:
            self._children(node, scope)

    def _children(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope)

    def _Import(self, node: ast.Import, scope: Scope) -> None:  # noqa: N802 - named after the node.
        for alias in node.names:
            if alias.asname:
                scope.bind(alias.asname, Imported(alias.name, None, 0))
            else:
                top = alias.name.partition(".")[0]
                scope.bind(top, Imported(top, None, 0))

    def _ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:  # noqa: N802
        for alias in node.names:
            if alias.name == "*":
                self._module.star.append(Imported(node.module or "", None, node.level))
            else:
                scope.bind(alias.asname or alias.name, Imported(node.module or "", alias.name, node.level))

    def _FunctionDef(self, node: Function, scope: Scope) -> None:  # noqa: N802
        inner = Scope("function", node, self._module, scope, node.name)
        defined = Defined(node, scope, inner)
        scope.bind(node.name, defined)
        self._project.defined.append(defined)
        for decorator in node.decorator_list:
            self._visit(decorator, scope)
        arguments = [*node.args.posonlyargs, *node.args.args]
        for index, argument in enumerate(arguments):
            inner.bind(argument.arg, Parameter(argument, index, inner))
        for other in (*node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
            if other is not None:
                inner.bind(other.arg, Parameter(other, -1, inner))
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._visit(default, scope)
        for child in node.body:
            self._visit(child, inner)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:  # noqa: N802
        inner = Scope("class", node, self._module, scope, node.name)
        defined = Defined(node, scope, inner)
        scope.bind(node.name, defined)
        self._project.defined.append(defined)
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(child, scope)
        for child in node.body:
            self._visit(child, inner)

    def _Lambda(self, node: ast.Lambda, scope: Scope) -> None:  # noqa: N802
        self._visit(node.body, scope)

    def _Assign(self, node: ast.Assign, scope: Scope) -> None:  # noqa: N802
        for target in node.targets:
            self._target(target, node.value, scope)
        self._visit(node.value, scope)

    def _AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:  # noqa: N802
        if node.value is not None:
            self._target(node.target, node.value, scope)
            self._visit(node.value, scope)

    def _AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:  # noqa: N802
        self._project.mutations.append((node.target, node.value, scope))
        self._visit(node.value, scope)

    def _NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> None:  # noqa: N802
        self._target(node.target, node.value, scope)
        self._visit(node.value, scope)

    def _For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:  # noqa: N802
        self._target(node.target, node.iter, scope)
        self._children(node, scope)

    _AsyncFor = _For

    def _comprehension(self, node: ast.comprehension, scope: Scope) -> None:
        self._target(node.target, node.iter, scope)
        self._children(node, scope)

    def _withitem(self, node: ast.withitem, scope: Scope) -> None:
        if node.optional_vars is not None:
            self._target(node.optional_vars, node.context_expr, scope)
        self._visit(node.context_expr, scope)

    def _Call(self, node: ast.Call, scope: Scope) -> None:  # noqa: N802
        self._project.calls.append((node, scope))
        if isinstance(node.func, ast.Attribute) and (place := _MUTATORS.get(node.func.attr)) is not None:  # noqa: SIM102
            if len(node.args) > place:
                self._project.mutations.append((node.func.value, node.args[place], scope))
        self._children(node, scope)

    def _target(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, Value(value, scope))
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value, scope)
        elif isinstance(target, ast.Starred):
            self._target(target.value, value, scope)
        elif isinstance(target, ast.Subscript):
            self._project.mutations.append((target.value, value, scope))
        elif isinstance(target, ast.Attribute):
            owner = scope.owner() or (scope.parent.owner() if scope.parent is not None else None)
            if isinstance(target.value, ast.Name) and target.value.id in {"self", "cls"} and owner is not None:
                owner.bind(target.attr, Value(value, scope))

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr, scope: Scope) -> None:
        pairwise = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for index, element in enumerate(target.elts):
            self._target(element, value.elts[index] if pairwise else value, scope)  # type: ignore[attr-defined]


def split_lines(text: str) -> list[str]:
    """Return lines with their ends, cut where Python's parser counts a new line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
