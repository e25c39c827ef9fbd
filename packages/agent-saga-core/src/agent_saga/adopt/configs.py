"""Tools in data: MCP server lists, OpenAPI documents, JSON lists of tools."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from agent_saga.adopt.model import Hint, Source, Tool
from agent_saga.adopt.sdk import HTTP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BYTES_MAX: Final = 5_000_000
_VERBS: Final = ("get", "head", "options", "post", "put", "patch", "delete", "trace")


def read_config(path: Path, relative: str) -> tuple[list[Tool], list[Source], str | None]:
    """Return the tools and sources of one JSON (or YAML) file, and a reason where it could not be read.

    A file that is nothing of the kind gives nothing, and no reason.
    """
    try:
        if path.stat().st_size > BYTES_MAX:
            return [], [], None
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return [], [], None
    if not any(word in text for word in ("mcpServers", '"servers"', "openapi", "swagger", "parameters", "input")):
        return [], [], None
    if path.suffix == ".json":
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return [], [], None
    else:
        if not re.search(r"^[\"']?(openapi|swagger|mcpServers)[\"']?\s*:", text, re.MULTILINE):
            return [], [], None
        try:
            import yaml  # type: ignore[import-untyped]  # Optional, and without types.
        except ImportError:
            return [], [], "YAML is not read without PyYAML: pip install pyyaml"
        try:
            found = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            return [], [], f"{type(error).__name__}"
    lines = text.splitlines()
    return list(_tools(found, relative, lines)), list(_servers(found, relative, lines)), None


def _line(lines: list[str], word: str) -> int:
    quoted = json.dumps(word)
    for number, line in enumerate(lines, 1):
        if quoted in line or line.strip().startswith(f"{word}:"):
            return number
    return 1


def _servers(found: Any, relative: str, lines: list[str]) -> Iterator[Source]:
    if not isinstance(found, dict):
        return
    inner = found.get("mcp")
    for holder in (found, inner if isinstance(inner, dict) else {}):
        for key in ("mcpServers", "servers"):
            servers = holder.get(key)
            if not isinstance(servers, dict):
                continue
            for name, server in servers.items():
                if isinstance(server, dict) and server.keys() & {"command", "url", "serverUrl", "httpUrl"}:
                    yield Source(
                        what=f"MCP server {name!r}", framework="mcp", path=relative, line=_line(lines, str(name))
                    )


def _tools(found: Any, relative: str, lines: list[str]) -> Iterator[Tool]:
    if isinstance(found, dict) and ("openapi" in found or "swagger" in found) and isinstance(found.get("paths"), dict):
        yield from _operations(found["paths"], relative, lines)
        return
    listed = found.get("tools", found.get("functions")) if isinstance(found, dict) else found
    if isinstance(listed, list):
        for one in listed:
            if (tool := _schema(one, relative, lines)) is not None:
                yield tool


def _operations(paths: dict[str, Any], relative: str, lines: list[str]) -> Iterator[Tool]:
    for path, item in paths.items():
        if not isinstance(item, dict):
            continue
        for verb, operation in item.items():
            if verb.lower() not in _VERBS or not isinstance(operation, dict):
                continue
            name = operation.get("operationId")
            known = isinstance(name, str) and bool(name)
            if not known:
                name = re.sub(r"[\W_]+", "_", f"{verb}_{path}").strip("_")
            parameters = [
                (str(p["name"]), "", not p.get("required", False))
                for p in operation.get("parameters", [])
                if isinstance(p, dict) and "name" in p
            ]
            yield Tool(
                name=str(name),
                frameworks=("tool-list",),
                kind="schema",
                path=relative,
                line=_line(lines, str(name) if known else str(path)),
                place=f"{verb.upper()} {path}",
                parameters=tuple(parameters),
                doc=str(operation.get("summary", "")).splitlines()[0][:100] if operation.get("summary") else "",
                name_known=known,
                hints=(
                    Hint(effect=HTTP.get(verb.lower(), "read_only"), reason=f"HTTP {verb.upper()} {path} ({relative})"),
                ),
            )


def _schema(one: Any, relative: str, lines: list[str]) -> Tool | None:
    if not isinstance(one, dict):
        return None
    inner = one["function"] if isinstance(one.get("function"), dict) else one
    schema = next((inner[key] for key in ("parameters", "input_schema", "inputSchema") if key in inner), None)
    name = inner.get("name")
    if not isinstance(schema, dict) or not isinstance(name, str) or not name:
        return None
    fields = schema.get("properties", {})
    required = schema.get("required", [])
    hints = []
    notes = inner.get("annotations")
    if isinstance(notes, dict) and notes.get("readOnlyHint") is True:
        hints.append(Hint(effect="read_only", reason=f"readOnlyHint ({relative})"))
    if isinstance(notes, dict) and notes.get("destructiveHint") is True:
        hints.append(Hint(effect="irreversible", reason=f"destructiveHint ({relative})"))
    return Tool(
        name=name,
        frameworks=("tool-list",),
        kind="schema",
        path=relative,
        line=_line(lines, name),
        parameters=tuple((str(f), "", f not in required) for f in fields) if isinstance(fields, dict) else (),
        doc=str(inner.get("description", "")).strip().partition("\n")[0][:100],
        hints=tuple(hints),
    )
