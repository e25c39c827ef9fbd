"""What `--write` would do, as texts before and after; and doing it, all files or none."""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_saga.adopt.declared import FILE, Comparison, declarations_file
from agent_saga.adopt.generate import COMPLETE, blocks, rollback_test, saga_tools
from agent_saga.adopt.hooks import home_of, hook_edits
from agent_saga.adopt.model import Edit
from agent_saga.adopt.source import split_lines
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.adopt.model import Scan, Tool
    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Module, Project

TEST_FILE = "test_saga_rollback.py"


@dataclass(slots=True, kw_only=True)
class Plan:
    """The edits of one run.

    Attributes:
        module: how the project imports its declarations.
        left: what could not be done by itself.
    """

    module: str
    edits: list[Edit] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def diff(self) -> str:
        """Return all edits as one unified diff."""
        return "".join(_diff(edit) for edit in self.edits)


def plan(scan: Scan, project: Project, names: Names, comparison: Comparison) -> Plan:
    """Return what would be written."""
    existing = declarations_file(project)
    if existing is None:
        folder, module = home_of(project, names)
    else:
        folder, module = os.path.dirname(existing.relative), _import_name(project, existing)  # noqa: PTH120
    made = Plan(module=module)
    fresh = comparison.fresh
    if existing is None and fresh:
        path = f"{folder}/{FILE}" if folder else FILE
        made.edits.append(Edit(path=path, before="", after=saga_tools(fresh, module), encoding="utf-8", lines=()))
    elif existing is not None and fresh:
        _extend(made, existing, fresh, module)
    if fresh or existing is not None:  # A project that declares its tools elsewhere has hooks of its own.
        edits, left = hook_edits(project, names, module)
        made.edits += edits
        made.left += left
        _add_test(made, scan, project)
    return made


def _import_name(project: Project, module: Module) -> str:
    from agent_saga.adopt.hooks import _package_top

    _, package = _package_top(project, module)
    return f"{package}.saga_tools" if package else "saga_tools"


def _extend(made: Plan, existing: Module, fresh: list[Tool], module: str) -> None:
    """Put new declarations before the last line of an existing file."""
    lines = split_lines(existing.text)
    places = [number for number, line in enumerate(lines) if line.startswith(COMPLETE)]
    if not places:
        made.left.append(f"{existing.relative} has no line {COMPLETE!r}, so nothing can be put before it; add it")
        return
    end = "\r\n" if existing.text.count("\r\n") * 2 > existing.text.count("\n") else "\n"
    text = blocks(fresh, module, taken=set(existing.scope.names)).strip("\n").replace("\n", end)
    lines[places[-1] : places[-1]] = [text, end, end]
    after = "".join(lines)
    ast.parse(after)
    made.edits.append(
        Edit(path=existing.relative, before=existing.text, after=after, encoding=existing.encoding, lines=())
    )


def _add_test(made: Plan, scan: Scan, project: Project) -> None:
    folder = "tests" if (project.root / "tests").is_dir() else ""
    path = f"{folder}/{TEST_FILE}" if folder else TEST_FILE
    if (project.root / path).exists():
        return
    imports = {tool.name: text for tool in scan.tools if (text := _callable(tool, project))}
    text = rollback_test(made.module, scan.tools, imports)
    made.edits.append(Edit(path=path, before="", after=text, encoding="utf-8", lines=()))


def _callable(tool: Tool, project: Project) -> str:
    """Return the import and the expression of a function that can be called as it is, split by a newline."""
    if tool.kind != "function" or "." in tool.place or not tool.place.isidentifier():
        return ""
    module = next((m for m in project.modules.values() if m.relative == tool.path), None)
    node = next((n for n in module.tree.body if getattr(n, "name", None) == tool.place), None) if module else None
    if module is None or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    tail = ".func" if node.decorator_list and set(tool.frameworks) & {"langgraph", "crewai"} else ""
    if node.decorator_list and not tail:
        return ""
    name = module.name.removeprefix("src.")
    return f"from {name} import {tool.place}\n{tool.place}{tail}"


def _diff(edit: Edit) -> str:
    before, after = edit.before.splitlines(keepends=True), edit.after.splitlines(keepends=True)
    old = f"a/{edit.path}" if edit.before else "/dev/null"
    text = ""
    for line in difflib.unified_diff(before, after, old, f"b/{edit.path}"):
        text += line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return text


def write(root: Path, made: Plan) -> list[str]:
    """Write all edits; a file that is not what was read is left alone, and so are all others.

    Raises:
        UsageError: a file changed since it was read, or cannot be written.
    """
    ready: list[tuple[str, Path]] = []
    try:
        for edit in made.edits:
            target = (root / edit.path).resolve()  # A link stays one.
            if edit.before and target.read_bytes() != _raw(edit.before, edit.encoding):
                raise UsageError(f"{target} changed while it was looked at; nothing was written. Run adopt again")
            if not edit.before and target.exists():
                raise UsageError(f"{target} exists; nothing was written")
            target.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=target.parent, prefix=".agent-saga-")
            ready.append((name, target))
            with os.fdopen(number, "wb") as file:
                file.write(_raw(edit.after, edit.encoding))
            os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o644)  # noqa: PTH101
        for name, target in ready:
            os.replace(name, target)  # noqa: PTH105
    except OSError as error:
        raise UsageError(f"cannot be written: {error}") from error
    finally:
        for name, _ in ready:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # noqa: PTH108
    return [edit.path for edit in made.edits]


def _raw(text: str, encoding: str) -> bytes:
    return text.encode(encoding)
