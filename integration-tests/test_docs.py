"""The documents miss nothing that a user can meet, and say nothing that is not there."""

import ast
import inspect
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from agent_saga import AgentKit, Effect, RollbackReport, compensator, errors
from agent_saga.cli.app import COMMANDS, cli
from agent_saga.machine.states import SagaState, StepState

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
READMES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("packages/*/README.md"))]
TEXT = "\n".join(page.read_text("utf-8") for page in [*PAGES, *READMES])  # The READMEs are pages of the site, too.
WITH_COMMANDS = [page for page in [*PAGES, *READMES] if page.stem != "log-format"]  # It has prefixes of hashes.
SETTINGS = (ROOT / "docs" / "settings.md").read_text("utf-8")
HEADINGS = ["Context", "Options", "Decision", "Consequences", "How we would notice that we were wrong"]


def own_commands():
    return [*COMMANDS, *(found.name for found in entry_points(group="agent_saga.commands"))]


def section(title):
    """Return the settings of a section of the page: name -> default, as they are written there."""
    (text,) = re.findall(rf"^## {re.escape(title)}[^\n]*\n(.*?)(?=^## |\Z)", SETTINGS, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    return dict(rows)


def parameters(function, *without):
    return {name: each.default for name, each in inspect.signature(function).parameters.items() if name not in without}


@pytest.mark.parametrize("name", own_commands())
def test_every_command_is_on_a_page(name):
    """DOC-01: a page says what each command is for, those of other packages included."""
    assert re.search(rf"`{name}`|agent-saga {name}\b", TEXT)


def test_every_error_is_on_a_page():
    """DOC-02: errors.md has every code with its class, and no other."""
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    named = dict(re.findall(r"^\| (AS-\d{4}) \| `(\w+)`", page, re.MULTILINE))
    real = {
        thing.code: name
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, BaseException) and hasattr(thing, "code")
    }
    assert real.items() <= named.items()
    assert set(named) - set(real) == {"AS-0210"}  # of agent_saga.gates


@pytest.mark.parametrize("kind", [SagaState, StepState, Effect])
def test_every_state_is_explained(kind):
    """DOC-03: concepts.md has a row for each state and effect class."""
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {str(each.value) for each in kind} <= rows


def test_every_bucket_is_explained():
    """DOC-04: concepts.md names each bucket of a report."""
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    buckets = {"kept", "compensated", "in_doubt", "conflicted", "failed", "orphaned", "assumed_absent"}
    assert buckets <= set(RollbackReport.__dataclass_fields__)
    assert buckets <= set(re.findall(r"`(\w+)`", page))


@pytest.mark.parametrize(
    ("title", "function", "without"),
    [
        ("A kit", AgentKit, ()),
        ("A saga", AgentKit.transaction, ("self", "name")),
        ("A tool", AgentKit.wrap, ("self", "fn")),
        ("A compensator", compensator, ("name",)),
    ],
)
def test_every_setting_is_on_the_page_with_its_default(title, function, without):
    """DOC-05: settings.md has every parameter, no other, and the default that the signature has."""
    real, said = parameters(function, *without), section(title)
    assert set(said) == set(real)
    for name, default in real.items():
        if isinstance(default, bool | int | float | str):
            word = said[name].split(" ")[0].strip('`"')
            assert str(default).removesuffix(".0") == word, name


def test_every_environment_variable_is_on_a_page():
    """DOC-06: settings.md has what our code reads from the environment, but for what tests hand on."""
    sources = [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("scripts/*.py")]
    read = {name for source in sources for name in re.findall(r"\bAGENT_SAGA_[A-Z_]*[A-Z]", source.read_text("utf-8"))}
    inner = {name for name in read if name.startswith(("AGENT_SAGA_CRASH", "AGENT_SAGA_DEMO"))}
    assert {name for name in read - inner if f"`{name}`" not in SETTINGS} == set()


def commands_in(text):
    """Return each `agent-saga ...` of console blocks and inline code, without what a shell makes of it."""
    blocks = re.findall(r"^```(?:console|text|ini)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    lines += re.findall(r"`(agent-saga [^`\n]+)`", text)
    for line in lines:
        if line.startswith("agent-saga ") and not line.startswith("agent-saga --"):
            yield re.split(r" [|>&#] ?| && ", line.removeprefix("agent-saga "))[0]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_pages_exist(page):
    """DOC-07: whatever a page tells to type has a command and options that are there."""
    for line in commands_in(page.read_text("utf-8")):
        words = shlex.split(line)
        if words[0].isupper() or words[0] in {"...", "COMMAND"}:
            continue
        command = cli.get_command(None, words[0])
        assert command is not None, line
        known = {option for each in all_of(command) for parameter in each.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help", "-h"}, line


def all_of(command):
    yield command
    yield from getattr(command, "commands", {}).values()


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run_or_say_why_not(page):
    """DOC-08: a Python example runs (`scripts/test`, stage examples), or a comment above it says why it does not."""
    text = page.read_text("utf-8")
    skipped = len(re.findall(r"<!-- skip: next -->", text))
    reasons = re.findall(r"<!-- fragment: ([^>]+) -->\n<!-- skip: next -->\n+```python", text)
    assert skipped == len(reasons)
    for example in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        ast.parse(example)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("0*.md")), ids=lambda page: page.stem)
def test_decisions_have_one_form(page):
    """DOC-09: a decision says its context, options, decision, consequences, and how we would notice."""
    text = page.read_text("utf-8")
    assert re.match(rf"# {page.name[:4]}[:.] \S", text)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert page.stem in (page.parent / "index.md").read_text("utf-8")
