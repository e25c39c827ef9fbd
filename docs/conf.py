# ruff: noqa: INP001 -- Sphinx imports this file by its path.
"""The site. Pages are Markdown; two comments are filled in: `<!-- page: FILE -->` and `<!-- api: MODULE -->`.

The first is a file of the repository, its links made to fit; the second the public names of a module, from their
docstrings, which are Markdown with Google's sections.
"""

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}  # its names are read below

project = "agent-saga"
author = "the authors of agent-saga"
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
html_theme = "furo"
html_title = "agent-saga"
html_copy_source = False
exclude_patterns = ["adr/template.md"]
suppress_warnings = ["misc.highlighting_failure"]  # examples of damaged JSON, and `...` in fragments

PAGES = {  # Files of the repository that are pages here.
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "STYLE.md": "style.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    **{
        f"packages/agent-saga-{name}/README.md": f"guides/{name}.md"
        for name in (
            *("autogen", "crewai", "langgraph", "llama-index", "openai-agents", "semantic-kernel"),
            *("connectors", "postgres", "sqlalchemy", "visuals"),
        )
    },
    "packages/pytest-agent-saga/README.md": "guides/pytest.md",
}
LINK = re.compile(r"(?<!\!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
CALL_LENGTH_MAX = 100  # longer ones have a line for each parameter
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Durability|Concurrency|Limits|Source|Example|Order):$")


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill)


def fill(_app: Sphinx, name: str, source: list[str]) -> None:
    """Fills a page's comments in, and makes its links fit."""
    page = DOCS / f"{name}.md"
    text = fitted(source[0], page, page)
    text = re.sub(r"<!-- page: (\S+) -->\n", lambda found: included(found[1], page), text)
    source[0] = re.sub(r"<!-- api: (\S+) -->\n", lambda found: "\n".join(api(found[1])), text)


def included(file: str, page: Path) -> str:
    text = (ROOT / file).read_text("utf-8")
    return fitted(re.sub(r"\A# .*\n", "", text), ROOT / file, page)


def fitted(text: str, written_for: Path, page: Path) -> str:
    """Returns the text with links as they are seen from the page; those to folders are no links."""

    def fit(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(written_for.parent / found[2]))
        inside = target.relative_to(ROOT).as_posix()
        if inside in PAGES:
            target = DOCS / PAGES[inside]
        elif target.is_dir() or not target.exists():
            if not target.exists():
                raise ValueError(f"{written_for.relative_to(ROOT)}: there is no {inside}")
            return found[1]
        return f"[{found[1]}]({os.path.relpath(target, page.parent)}{found[3] or ''})"

    parts = FENCE.split(text)
    return "".join(part if at % 2 else LINK.sub(fit, part) for at, part in enumerate(parts))


# -- the public names of a module -------------------------------------------------------------------------------------


def api(module: str) -> Iterator[str]:
    """Yields the lines for each public name of a module, sorted as people look for them."""
    home = importlib.import_module(module)
    own = [name for name, thing in vars(home).items() if getattr(thing, "__module__", "") == module and name[0] != "_"]
    for name in sorted(getattr(home, "__all__", own), key=str.lower):
        thing = getattr(home, name)
        yield f"### {name}\n"
        yield from described(name, thing)
        if inspect.isclass(thing):
            for member in sorted(vars(thing)):
                inner = inspect.unwrap(getattr(thing, member)) if not member.startswith("_") else None
                if isinstance(vars(thing)[member], property):
                    inner = vars(thing)[member]
                if inner is not None and (inspect.isroutine(inner) or isinstance(inner, property)) and inner.__doc__:
                    yield f"#### {name}.{member}\n"
                    yield from described(member, inner)


def described(name: str, thing: Any) -> Iterator[str]:
    if not (inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, property)):
        yield f"`{str(thing)[:200]}`, of `{type(thing).__name__}`.\n"
        return
    if not isinstance(thing, property):
        yield f"```text\n{signature(name, thing)}\n```\n"
    yield from sections(inspect.getdoc(thing) or "")
    yield ""


def signature(name: str, thing: Any) -> str:
    """Returns a call as it is written, one parameter a line when it is long."""
    try:
        seen = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parameters, star = [], False
    for each in seen.parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parameters.append("*")
        star = star or each.kind in {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL}
        if each.name != "self":
            parameters.append(plain(str(each)))
    given = "" if seen.return_annotation is inspect.Signature.empty else f" -> {plain(repr(seen.return_annotation))}"
    if len(short := f"{name}({', '.join(parameters)}){given}") <= CALL_LENGTH_MAX:
        return short
    return "\n".join([f"{name}(", *(f"    {each}," for each in parameters), f"){given}"])


def plain(text: str) -> str:
    """Returns annotations without the quotes that postponed evaluation leaves, and defaults without addresses."""
    text = re.sub(r"<([^>]*) at 0x[0-9a-f]+>", r"\1", text)
    return re.sub(r"""(^|: )(['"])(.*?)\2(?= = |$)""", r"\1\3", text)


def sections(text: str) -> Iterator[str]:
    """Yields a docstring as Markdown: sections get titles, their entries become lists."""
    inside = False
    for part in FENCE.split(text):
        for line in [part] if part.lstrip().startswith("```") else part.split("\n"):
            if SECTION.match(line):
                inside = True
                yield f"\n**{line[:-1]}**\n"
                continue
            if line and not line.startswith(" "):
                inside = False
            entry = re.match(r"    (\*{0,2}[\w., *]+): (.*)", line) if inside else None
            written = f"* `{entry[1]}`: {entry[2]}" if entry else line[4:] if inside and not entry else line
            yield written if part.lstrip().startswith("```") else escaped(written)


def escaped(line: str) -> str:
    """Returns a line in which `<` outside of code begins no tag."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))
