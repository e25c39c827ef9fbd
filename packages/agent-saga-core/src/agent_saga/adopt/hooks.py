"""The one-line hook of each framework, put into the project's own files without touching anything else.

Only characters are inserted, at places that Python's parser names; what is around them stays byte for byte. Then the
result is parsed again: with our insertions taken out it must be the tree that was there, else the file is left alone.
"""

from __future__ import annotations

import ast
import copy
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.frameworks import ADAPTERS, framework_of
from agent_saga.adopt.model import Edit
from agent_saga.adopt.source import Defined, split_lines

if TYPE_CHECKING:
    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Module, Project, Scope

WRAPPED: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "crewai": (frozenset({"Crew", "Flow"}), frozenset({"Agent", "LiteAgent"})),
    "openai-agents": (frozenset({"Agent", "SandboxAgent", "RealtimeAgent"}), frozenset()),
    "autogen": (
        frozenset({"RoundRobinGroupChat", "SelectorGroupChat", "Swarm", "MagenticOneGroupChat", "GraphFlow"}),
        frozenset({"AssistantAgent", "ToolAgent"}),
    ),
    "llama-index": (
        frozenset({"AgentWorkflow", "from_tools_or_functions"}),
        frozenset({"FunctionAgent", "ReActAgent", "CodeActAgent"}),
    ),
    "semantic-kernel": (frozenset({"Kernel"}), frozenset({"ChatCompletionAgent", "OpenAIAssistantAgent"})),
    "langgraph": (frozenset({"ToolNode"}), frozenset()),
}
"""What is wrapped in `protect(..., kit)`: what holds others, and what is wrapped where nothing holds it."""
_LISTS: Final[dict[str, int]] = {
    "create_react_agent": 1,
    "AgentExecutor": -1,
    "initialize_agent": 0,
}
"""LangChain: those whose argument `tools` is wrapped, and its position."""


@dataclass(frozen=True, slots=True, order=True)
class _Insertion:
    line: int  # From 1.
    column: int  # In bytes of UTF-8, as Python's parser counts.
    order: int
    text: str


def hook_edits(project: Project, names: Names, saga_tools: str) -> tuple[list[Edit], list[str]]:
    """Return the edits that put the hooks in, and the places where a hook belongs that could not be put in.

    Args:
        project: as it was read.
        names: its names.
        saga_tools: the dotted name under which the project imports its declarations.
    """
    wanted: dict[str, list[tuple[str, _Insertion]]] = {}
    left: list[str] = []
    protected = _Protected(project, names)
    wrapped = _Wrapped(project, names)
    for node, scope in project.calls:
        for dotted in sorted(names.dotted(node.func, scope)):
            framework = framework_of(dotted)
            if framework in ADAPTERS and framework is not None and not protected.covers(node, scope):
                found = _insertions(node, scope, dotted, wrapped, names)
                wanted.setdefault(scope.module.name, []).extend((framework, one) for one in found)
                break
    edits = []
    for name, insertions in wanted.items():
        module = project.modules[name]
        edit = _edit(module, insertions, saga_tools)
        if edit is None and insertions:
            left.append(f"{module.relative}: a hook could not be put in without touching other code; add it by hand")
        elif edit is not None:
            edits.append(edit)
    return edits, left


class _Wrapped:
    """Which calls of a project are wrapped whole."""

    def __init__(self, project: Project, names: Names) -> None:
        self._names = names
        self._holders: set[str] = set()
        self._held: set[int] = set()
        for node, scope in project.calls:
            for dotted in names.dotted(node.func, scope):
                framework = framework_of(dotted)
                if framework in WRAPPED and dotted.rpartition(".")[2] in WRAPPED[framework][0]:
                    self._holders.add(framework)
                    if framework != "openai-agents":  # There each agent is wrapped, whoever hands over to it.
                        self._note(node, scope)

    def _note(self, node: ast.Call, scope: Scope) -> None:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            for atom in self._names.atoms(argument, scope):
                self._held.add(id(getattr(atom, "node", None)))

    def wraps(self, node: ast.Call, dotted: str) -> bool:
        """Whether this call is one."""
        framework, last = framework_of(dotted), dotted.rpartition(".")[2]
        if framework not in WRAPPED:
            return False
        holders, others = WRAPPED[framework]
        if last in holders:
            return id(node) not in self._held
        if last not in others or id(node) in self._held:
            return False
        if framework == "crewai":
            return "crewai" not in self._holders  # One hook stands before every tool of the process.
        return framework != "semantic-kernel" or not any(keyword.arg == "kernel" for keyword in node.keywords)


class _Protected:
    """The `protect(...)` calls that a project has."""

    def __init__(self, project: Project, names: Names) -> None:
        self._names = names
        self._calls = [
            (call, scope)
            for call, scope in project.calls
            if call.args
            and ast.unparse(call.func).endswith("protect")
            and any(d.startswith("agent_saga") for d in names.dotted(call.func, scope))
        ]
        by_hand = [(call, scope) for call, scope in self._calls if not isinstance(call.args[0], ast.Call)]
        self._by_hand = {scope.module.name for _, scope in by_hand}

    def covers(self, node: ast.Call, scope: Scope) -> bool:
        """Whether a call stands in a hook, is handed to one, or is in a file whose hooks a human has put in."""
        if scope.module.name in self._by_hand:
            return True
        for call, where in self._calls:
            if any(child is node for child in ast.walk(call.args[0])):
                return True
            atoms = self._names.atoms(call.args[0], where)
            if any(getattr(a, "node", None) is node for a in atoms if not isinstance(a, Defined)):
                return True
        return False


def _insertions(node: ast.Call, scope: Scope, dotted: str, wrapped: _Wrapped, names: Names) -> list[_Insertion]:
    last = dotted.rpartition(".")[2]
    if framework_of(dotted) == "langgraph" and last in {"create_agent", "create_deep_agent"}:
        return _middleware(node, scope, names)
    if framework_of(dotted) == "langgraph" and last in _LISTS:
        given = [k.value for k in node.keywords if k.arg == "tools"]
        if not given and 0 <= _LISTS[last] < len(node.args):
            given = [node.args[_LISTS[last]]]
        return _around(given[0]) if given and not _is_protected(given[0], scope, names) else []
    return _around(node) if wrapped.wraps(node, dotted) else []


def _is_protected(node: ast.expr, scope: Scope, names: Names) -> bool:
    """Whether tools are handed over that a hook stands before: a protected list, or a `ToolNode`."""
    if not isinstance(node, ast.Call):
        return any("ToolNode" in dotted for dotted in names.dotted(node, scope))
    return any("agent_saga" in dotted or "ToolNode" in dotted for dotted in names.dotted(node.func, scope))


def _around(node: ast.expr) -> list[_Insertion]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return [
        _Insertion(node.lineno, node.col_offset, 1, "protect("),
        _Insertion(node.end_lineno, node.end_col_offset, 0, ", kit)"),
    ]


def _middleware(node: ast.Call, scope: Scope, names: Names) -> list[_Insertion]:
    for keyword in node.keywords:
        if keyword.arg == "middleware":
            value = keyword.value
            if any("SagaMiddleware" in d for d in names.dotted(value, scope)):
                return []
            if isinstance(value, ast.List):
                assert value.end_lineno is not None
                assert value.end_col_offset is not None
                return _last_element(value)
            return [
                _Insertion(value.lineno, value.col_offset, 1, "[*"),
                _Insertion(value.end_lineno or 0, value.end_col_offset or 0, 0, ", SagaMiddleware(kit)]"),
            ]
    given = [*node.args, *(k.value for k in node.keywords)]
    if not given:
        return []
    last = max(given, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))
    return [_Insertion(last.end_lineno or 0, last.end_col_offset or 0, 0, ", middleware=[SagaMiddleware(kit)]")]


def _last_element(value: ast.List) -> list[_Insertion]:
    if not value.elts:
        return [_Insertion(value.lineno, value.col_offset + 1, 0, "SagaMiddleware(kit)")]
    last = value.elts[-1]
    return [_Insertion(last.end_lineno or 0, last.end_col_offset or 0, 0, ", SagaMiddleware(kit)")]


def _edit(module: Module, insertions: list[tuple[str, _Insertion]], saga_tools: str) -> Edit | None:
    if not insertions:
        return None
    lines = split_lines(module.text)
    end = "\r\n" if module.text.count("\r\n") * 2 > module.text.count("\n") else "\n"
    imports = _imports(module, insertions, saga_tools)
    if imports is None:
        return None
    at = _after_imports(module)
    for one in sorted({insertion for _, insertion in insertions}, reverse=True):
        lines[one.line - 1] = _inserted(lines[one.line - 1], one.column, one.text)
    touched = tuple(sorted({insertion.line + len(imports) for _, insertion in insertions}))
    if at and not lines[at - 1].endswith(("\n", "\r")):
        lines[at - 1] += end
    lines[at:at] = [line + end for line in imports]
    after = "".join(lines)
    if not _only_hooks(module, after):
        return None
    return Edit(path=module.relative, before=module.text, after=after, encoding=module.encoding, lines=touched)


def _inserted(line: str, column: int, text: str) -> str:
    raw = line.encode("utf-8", "surrogatepass")
    return (raw[:column] + text.encode() + raw[column:]).decode("utf-8", "surrogatepass")


def _imports(module: Module, insertions: list[tuple[str, _Insertion]], saga_tools: str) -> list[str] | None:
    """Return the import lines that the file still needs; None where its own names are in the way."""
    lines: dict[str, None] = {}
    verbs: dict[str, str] = {}
    for framework, insertion in insertions:
        package = "agent_saga_" + framework.replace("-", "_")
        verb = "SagaMiddleware" if "SagaMiddleware" in insertion.text else "protect"
        if "protect(" not in insertion.text and verb == "protect":
            continue
        if verbs.setdefault(verb, package) != package:
            return None  # Two frameworks in one file: which `protect` is meant?
        lines[f"from {package} import {verb}"] = None
    lines[f"from {saga_tools} import kit"] = None
    needed = []
    for line in lines:
        name = line.rpartition(" ")[2]
        if name in module.scope.names:
            if f"import {name}" in module.text and line.split()[1] in module.text:
                continue
            return None
        needed.append(line)
    return needed


def _after_imports(module: Module) -> int:
    """Return after how many lines the imports of a file end, at the front of it."""
    last = 0
    body = module.tree.body
    for index, node in enumerate(body):
        is_doc = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_doc:
            if index + 1 < len(body) and body[index + 1].lineno == node.end_lineno:
                break  # `import a; run()`: nothing can be put in between.
            last = node.end_lineno or last
        elif (last and not isinstance(node, ast.Try | ast.If)) or not last:
            break
    if last:
        return last
    lines = split_lines(module.text)
    while last < len(lines) and lines[last].startswith("#"):
        last += 1
    return last if not body or last < body[0].lineno else 0


class _Without(ast.NodeTransformer):
    """Takes our hooks out of a tree."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "protect" and len(node.args) == 2:  # noqa: PLR2004
            return node.args[0]
        node.keywords = [k for k in node.keywords if not (k.arg == "middleware" and self._is_empty(k.value))]
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        kept = [one for one in node.elts if "SagaMiddleware" not in ast.dump(one)]
        if len(kept) < len(node.elts) and len(kept) == 1 and isinstance(kept[0], ast.Starred):
            return kept[0].value
        node.elts = kept
        return node

    def _is_empty(self, node: ast.expr) -> bool:
        return isinstance(node, ast.List) and not node.elts

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        names = {alias.name for alias in node.names}
        return None if names <= {"protect", "SagaMiddleware", "kit"} else node


def _only_hooks(module: Module, after: str) -> bool:
    """Whether a text is the file with our hooks and nothing else."""
    try:
        tree = ast.parse(after)
    except SyntaxError:
        return False
    before = ast.dump(_Without().visit(copy.deepcopy(module.tree)))
    return before == ast.dump(_Without().visit(tree))


def home_of(project: Project, names: Names) -> tuple[str, str]:
    """Return where `saga_tools.py` goes (a folder, from the root) and the dotted name to import it by.

    Scripts in one folder import their neighbours by their bare names; modules of a package by the package's name.
    """
    places = [
        scope.module
        for node, scope in project.calls
        if any(framework_of(dotted) in ADAPTERS for dotted in names.dotted(node.func, scope))
    ] or list(project.modules.values())
    tops = {_package_top(project, module) for module in places}
    folder = os.path.commonpath([top for top, _ in tops]) if len(tops) > 1 else next(iter(tops), ("", ""))[0]
    packages = {package for top, package in tops if top == folder}
    package = next(iter(packages)) if len(packages) == 1 else ""
    return folder, f"{package}.saga_tools" if package else "saga_tools"


def _package_top(project: Project, module: Module) -> tuple[str, str]:
    """Return the folder of the outermost package of a module, and its dotted name; a script's folder, and nothing."""
    parts = module.relative.split("/")[:-1]
    top = len(parts)
    while top and ".".join(parts[:top]) in project.modules:
        top -= 1
    if top == len(parts):
        return "/".join(parts), ""
    return "/".join(parts[: top + 1]), parts[top]
