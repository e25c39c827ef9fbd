"""docs/cli.md is true: its commands are run, in order, and their real output is compared."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga.cli.app import COMMANDS, cli

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "cli.md"
FOLDER = "/srv/shop"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC"), "TIME"),
    (re.compile(r"\b\d+-[0-9a-f]{16}\b"), "OWNER"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "SALT"),
    (re.compile(r"process \d+"), "process N"),
    (re.compile(r'("at":) ?\d+'), r"\1 NS"),
    (re.compile(r"\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]"), "+KEY"),
    (re.compile(r"[A-Za-z0-9+/]{43,}={0,2}(?=\n)"), "BASE64"),
]
SAGA_ID = re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b")


def commands_of(block):
    """Return (command, expected output) for each command of a console block."""
    pairs = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append((line[2:].rstrip("\n"), []))
        else:
            pairs[-1][1].append(line)
    return [(command, "".join(lines)) for command, lines in pairs]


def run_all(page, folder, environment):
    """Run every command of the page in order; return (command, expected, real) for each."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (folder / "shop.py").write_text(program)
    code, done = 0, []
    for block in BLOCK.findall(page):
        for command, expected in commands_of(block):
            if command == "echo $?":
                done.append((command, expected, f"{code}\n"))
                continue
            words = command.replace("agent-saga ", f"{sys.executable} -m agent_saga ", 1)
            words = re.sub(r"^python ", f"{sys.executable} ", words)
            ran = subprocess.run(
                ["/bin/sh", "-c", f"exec {words}"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            code = ran.returncode
            done.append((command, expected, ran.stdout.replace(str(folder), FOLDER)))
    return done


def settled(text, names):
    """Return a text without what differs from run to run; saga ids are numbered as they appear."""
    text = SAGA_ID.sub(lambda found: names.setdefault(found.group(), f"SAGA{len(names)}"), text)
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("page", ["cli.md", "evidence.md"])
def test_the_page_shows_real_output(shop, page):
    """Each command of the page prints what the page says."""
    shop.environment["LOGNAME"] = "anna"
    done = run_all((DOCS / page).read_text("utf-8"), shop.folder, shop.environment)
    assert len(done) > 20
    expected_names, real_names = {}, {}
    for command, expected, real in done:
        assert settled(real, real_names) == settled(expected, expected_names), command


def test_the_page_has_every_command_and_option():
    """Nothing that a user can write is missing from the page."""
    page = PAGE.read_text("utf-8")
    for name in COMMANDS:
        assert f"`{name}`" in page, name
        if name == "demo":  # Its options are in its own help; it is played in the README.
            continue
        for parameter in cli.get_command(None, name).params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option in page, f"{name} {option}"
