"""Makes mutants of a module: each one small change of its code that the tests should notice."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
_WORDED = (ast.Compare, ast.Set, ast.Dict, ast.Tuple, ast.MatchValue)
"""Where a text is a word of the log or of the machine; elsewhere it is a message for people."""


Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change.

    Attributes:
        line: where, in the original.
        what: the change in words.
    """

    line: int
    what: str
    _tree: ast.AST
    _path: Path
    _changed: ast.AST

    @property
    def source(self) -> str:
        """The module with the change in it."""
        mutated = copy.deepcopy(self._tree)
        _put(mutated, self._path, self._changed)
        return ast.unparse(ast.fix_missing_locations(mutated))


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for path, node in _places(tree, ()):
        for what, changed in _changes(node, _at(tree, path[:-1])):
            line = getattr(node, "lineno", 0) or _line(tree, path)
            found.append(Mutant(line=line, what=what, _tree=tree, _path=path, _changed=changed))
    yield from sorted(found, key=lambda mutant: mutant.line)


_MEMBERS = {
    "StepState": ("ABSENT", "STANDING"),
    "_T": ("ABSENT", "STANDING"),
    "SagaState": ("OPEN", "COMMITTED"),
    "_S": ("OPEN", "COMMITTED"),
    "Action": ("NONE", "HUMAN"),
}
"""Two members of each enum of the machine: one of them stands in for another member."""


def _places(node: ast.AST, path: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Yield what may be changed, with the way to it; what only types, documents, words or tunes is left out."""
    for name, value in ast.iter_fields(node):
        if name in {"decorator_list", "annotation", "returns", "type_comment", "format_spec"}:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _is_no_code(child, node):
                continue
            way = (*path, (name, index))
            yield way, child
            yield from _places(child, way)


def _is_no_code(child: ast.AST, parent: ast.AST) -> bool:
    if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
        return True
    if isinstance(child, ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return True
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True  # A docstring.
    if isinstance(child, ast.Call) and isinstance(parent, ast.Raise):
        return True  # What an error says.
    # A limit or a wait is tuning: a test of its exact number would repeat it.
    return isinstance(parent, ast.Module) and isinstance(child, ast.AnnAssign) and isinstance(child.value, ast.Constant)


def _changes(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if type(node) in _SWAPS:
        other = _SWAPS[type(node)]
        yield f"{type(node).__name__} for {other.__name__}", other()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "`not` removed", node.operand
    if isinstance(node, ast.Constant):
        yield from _constants(node, parent)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _MEMBERS:
        first, second = _MEMBERS[node.value.id]
        other_member = second if node.attr == first else first
        yield f"{other_member} for {node.attr}", ast.Attribute(node.value, other_member, ast.Load())
    yield from _flow(node)


def _flow(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        for value in (False,) if isinstance(node, ast.While) else (True, False):
            changed = copy.deepcopy(node)
            changed.test = ast.Constant(value)
            yield f"condition {value}", changed
    if isinstance(node, ast.match_case) and node.guard is not None:
        changed_case = copy.deepcopy(node)
        changed_case.guard = None
        yield "guard removed", changed_case
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns None", ast.Return(ast.Constant(None))
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete) or (
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    ):
        yield "statement removed", ast.Pass()


def _constants(node: ast.Constant, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value} for {not value}", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield f"{value} for {value + 1}", ast.Constant(value + 1)
    elif isinstance(value, str) and isinstance(parent, _WORDED):
        yield f"{value!r} for another word", ast.Constant(f"{value}!")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _at(tree: ast.AST, path: Path) -> ast.AST:
    node: ast.AST = tree
    for name, index in path:
        value = getattr(node, name)
        node = value if index is None else value[index]
    return node


def _line(tree: ast.AST, path: Path) -> int:
    for depth in range(len(path), 0, -1):
        line = getattr(_at(tree, path[:depth]), "lineno", 0)
        if line:
            return int(line)
    return 0


def _put(tree: ast.AST, path: Path, changed: ast.AST) -> None:
    parent, (name, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        setattr(parent, name, changed)
    else:
        getattr(parent, name)[index] = changed
