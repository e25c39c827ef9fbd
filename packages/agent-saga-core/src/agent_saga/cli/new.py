"""`agent-saga new`: a small project that runs, and passes its rollback test on the first day."""

from __future__ import annotations

import keyword
import re
import shlex
from pathlib import Path
from typing import Final

import click

from agent_saga.cli.session import FINE, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import SagaError, UsageError

FRAMEWORKS: Final = {
    "plain": "",
    "langgraph": "LangChain and LangGraph",
    "crewai": "CrewAI",
    "openai-agents": "the OpenAI Agents SDK",
    "autogen": "AutoGen",
    "llama-index": "LlamaIndex",
    "semantic-kernel": "Semantic Kernel",
}
"""Name for `--framework` -> what people call it."""

_DECLARATION: Final = 'effect="compensable", compensate=cancel.bind(booking="key"), no_effect_on=FullyBooked'
_LOOP: Final = f"""

for name in ("book_flight", "book_hotel"):
    kit.declare(name, {_DECLARATION})
"""
_TEMPLATES: Final = Path(__file__).with_name("templates")


@click.command(short_help="Write a small project that passes its rollback test.")
@click.argument("name", metavar="NAME")
@click.option(
    "--framework", type=click.Choice(list(FRAMEWORKS)), default="plain", show_default=True, help="What runs the agent."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def new(name: str, *, framework: str, as_json: bool) -> None:
    """Write a project into a new folder NAME: tools with compensations, an agent, and a test that proves its rollback.

    The model is scripted, so that it runs without a key. A folder that is there already is not touched.
    """
    out = Output(as_json=as_json)
    try:
        code = _new(out, Path(name), framework)
    except SagaError as error:
        code = report_error(out, error)
    click.get_current_context().exit(code)


def _new(out: Output, folder: Path, framework: str) -> int:
    files = project(folder.name, framework)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"there is a {folder.absolute()} already; nothing was written. Choose another name") from None
    except OSError as error:
        raise UsageError(f"{folder.absolute()} cannot be made: {error.strerror}") from error
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    if out.as_json:
        fields = {"path": str(folder.absolute()), "framework": framework, "files": list(files), "exit": FINE}
        out.document("new/1", fields)
    for path in files:
        out.line(f"wrote {visible(folder / path, length_max=None)}")
    out.line(f"next: cd {shlex.quote(str(folder))} && pip install -e '.[test]' && pytest")
    return FINE


def project(name: str, framework: str) -> dict[str, str]:
    """Return the files of a new project: path -> text.

    Args:
        name: of the project; its package has `_` for each `-`, `.` and space.
        framework: one of `FRAMEWORKS`.

    Raises:
        UsageError: no package can have that name.
    """
    package = re.sub(r"[-. ]+", "_", name.strip()).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]|[a-z]", package) or keyword.iskeyword(package):
        raise UsageError(
            f"{visible(name)!r} cannot be the name of a package; use letters, digits and '-', as in my-shop"
        )
    if package in _TAKEN:
        raise UsageError(f"{package!r} is the name of another package, which the new one would hide; choose another")
    plain = framework == "plain"
    words = {
        "name": package.replace("_", "-"),
        "package": package,
        "by": "" if plain else f" with {FRAMEWORKS[framework]}",
        "requirement": f"agent-saga-{'core' if plain else framework + '[framework]'}~={_version()}",
        "version": _version(),
        "tool": f"@kit.tool({_DECLARATION})\n" if plain else "",
        "declarations": "" if plain else _LOOP,
        "model_row": "" if plain else f"| `{package}/model.py` | a scripted model, so that it runs without a key |\n",
    }
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        ".gitignore": "gitignore",
        f"{package}/__init__.py": "init.py",
        f"{package}/__main__.py": "main.py",
        f"{package}/tools.py": "tools.py",
        f"{package}/agent.py": f"agent_{framework}.py",
        **({} if plain else {f"{package}/model.py": f"model_{framework}.py"}),
        "tests/test_rollback.py": "test_rollback.py",
    }
    return {path: _filled((_TEMPLATES / f"{source}.txt").read_text("utf-8"), words) for path, source in sources.items()}


_TAKEN: Final = frozenset(
    {"agent_saga", "agents", "autogen", "crewai", "langchain", "langgraph", "llama_index", "openai", "semantic_kernel"}
    | {"pytest", "tests", "tools", "test", "pip", "sqlite3", "setuptools"}
)
"""Packages that the project itself imports or sits beside."""


def _version() -> str:
    """Return ours: all packages have it. Without it pip takes the highest, and strangers' have names like ours."""
    from importlib.metadata import version

    return version("agent-saga-core")


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: words[found[1]], text)
