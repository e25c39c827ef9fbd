"""One scan of a project: tools, hints, inverses. Nothing of the project is imported or run."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import TYPE_CHECKING

from agent_saga.adopt.configs import read_config
from agent_saga.adopt.finder import Draft, Finder, used_frameworks
from agent_saga.adopt.hints import digest, hints_for
from agent_saga.adopt.model import Scan, Tool
from agent_saga.adopt.names import Names
from agent_saga.adopt.pairs import Pairs
from agent_saga.adopt.signature import parameters_of, text_of
from agent_saga.adopt.source import Function, read_project

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.adopt.source import Project


def scan(root: Path, *, tests: bool = False) -> tuple[Scan, Project, Names]:
    """Find the tools of a project.

    Args:
        root: its folder, or one file.
        tests: look into the files of tests too.
    """
    project = read_project(root, tests=tests)
    names = Names(project)
    finder = Finder(project, names)
    pairs = Pairs(project, names)
    found = Scan(files=len(project.modules), frameworks=used_frameworks(project), unread=list(project.unread))
    merged: dict[tuple[str, str, str, int], Tool] = {}
    for draft in finder.run():
        for tool in _tools_of(draft, names, pairs):
            key = (tool.name, tool.path, tool.place, tool.line)
            known = merged.get(key)
            if known is not None:
                tool = dataclasses.replace(known, frameworks=_joined(known.frameworks, tool.frameworks))  # noqa: PLW2901
            merged[key] = tool
    found.tools = list(merged.values())
    found.sources = list(finder.sources.values())
    found.unfollowed = list(finder.unfollowed)
    _add_configs(project, found, names)
    found.tools.sort(key=lambda tool: (tool.path, tool.line, tool.name))
    found.sources.sort(key=lambda source: (source.path, source.line))
    return found, project, names


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*first, *second}))


def _tools_of(draft: Draft, names: Names, pairs: Pairs) -> list[Tool]:
    made = []
    for given in sorted(draft.names) or [draft.fallback]:
        name = crew_name(given) if draft.frameworks == {"crewai"} else given
        function = draft.function
        node = function.node if function is not None else None
        parameters = parameters_of(function) if function is not None else ()
        tool = Tool(
            name=name,
            frameworks=tuple(sorted(draft.frameworks)),
            kind=draft.kind,
            path=draft.module.relative,
            line=getattr(draft.at, "lineno", 1),
            place=draft.place,
            parameters=parameters,
            returns=text_of(node.returns) if isinstance(node, Function) and node.returns is not None else "",
            is_async=isinstance(node, ast.AsyncFunctionDef),
            doc=(ast.get_docstring(node) or "").strip().partition("\n")[0][:100] if node is not None else "",
            name_known=draft.name_known,
            hints=tuple(hints_for(name, function, names)),
            seen=digest(parameters, function, names),
        )
        made.append(dataclasses.replace(tool, inverse=pairs.inverse(tool, function)))
    return made


def crew_name(name: str) -> str:
    """Return a tool's name as CrewAI tells it to the model: `Charge a card` is `charge_a_card`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_]", "_", apart)).strip("_").lower() or name


def _add_configs(project: Project, found: Scan, names: Names) -> None:
    for path in project.data_files:
        relative = path.relative_to(project.root).as_posix()
        tools, sources, reason = read_config(path, relative)
        found.sources.extend(sources)
        if reason is not None:
            found.unread.append((relative, reason))
        for tool in tools:
            hints = (*tool.hints, *hints_for(tool.name, None, names))
            made = dataclasses.replace(tool, hints=hints, seen=digest(tool.parameters, None, names))
            found.tools.append(made)
            found.frameworks.setdefault("tool-list", [])
            if relative not in found.frameworks["tool-list"]:
                found.frameworks["tool-list"].append(relative)
