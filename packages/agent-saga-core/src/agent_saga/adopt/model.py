"""What a scan finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Class = Literal["read_only", "reversible", "compensable", "irreversible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """One reason to think that a tool has this effect. A hint decides nothing.

    Attributes:
        effect: what it speaks for.
        reason: what was seen, with its line.
    """

    effect: Class
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """A way to offset a tool that was found.

    Attributes:
        name: of the compensator's function.
        parameters: its parameters, by name, with their annotations.
        bind: where they come from.
        code: what the body could do, as text.
        reason: why it fits.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    bind: dict[str, str]
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Attributes:
        name: as the model sees it, as far as the source tells.
        frameworks: those that are told of it.
        kind: `function`, `class`, `method`, `builtin` (of an installed package), `hosted`, `schema` (data only).
        path: file, from the project's folder; `line` in it.
        place: the function or class.
        parameters: name, annotation, whether it has a default; without what a framework injects.
        name_known: False where the name is made at run time; then it is a guess.
        seen: a digest of signature and effects, so that a later scan knows what has changed.
    """

    name: str
    frameworks: tuple[str, ...]
    kind: str
    path: str
    line: int
    place: str = ""
    parameters: tuple[tuple[str, str, bool], ...] = ()
    returns: str = ""
    is_async: bool = False
    doc: str = ""
    name_known: bool = True
    hints: tuple[Hint, ...] = ()
    inverse: Inverse | None = None
    seen: str = ""

    def signature(self) -> str:
        """Return the signature for people."""
        inside = ", ".join(f"{n}: {a}" if a else n for n, a, _ in self.parameters)
        return f"{self.name}({inside})" + (f" -> {self.returns}" if self.returns else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that gives tools which only a run can name.

    Attributes:
        what: the class or call; `server` of an MCP configuration by its name.
    """

    what: str
    framework: str
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a file of the project.

    Attributes:
        before: the file's text; `after` the same with the change.
        lines: where something was put, from 1.
    """

    path: str
    before: str
    after: str
    encoding: str
    lines: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Scan:
    """All that was found in a project.

    Attributes:
        frameworks: framework -> files that use it.
        unfollowed: places where a tool list could not be followed.
        unread: files that could not be parsed.
    """

    tools: list[Tool] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    frameworks: dict[str, list[str]] = field(default_factory=dict)
    unfollowed: list[str] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        from dataclasses import asdict

        return {
            "files": self.files,
            "frameworks": self.frameworks,
            "tools": [asdict(tool) for tool in self.tools],
            "sources": [asdict(source) for source in self.sources],
            "unfollowed": self.unfollowed,
            "unread": [{"path": path, "reason": reason} for path, reason in self.unread],
        }
