"""`agent-saga demo` as a person runs it: in a shell, with its options, and when things go wrong."""

import json
import os
import pty
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent_saga.spi import read_records

Run = Callable[..., subprocess.CompletedProcess[str]]
ESCAPE = "\x1b"


def ask(world: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(world)) as db:
        return db.execute(query).fetchall()


def test_it_prints_three_acts_and_what_to_do_next(shown: tuple[str, Path]) -> None:
    """DEMO-C1: at most 30 lines, in plain ASCII, without colour in a pipe, none too wide but the commands."""
    text, _ = shown
    lines = text.splitlines()
    assert [line.split("  ")[0] for line in lines if line[:1].strip()] == [
        "Act I",
        "Act II",
        "Act III",
        "Next, on the log that stays",
    ]
    assert len(lines) <= 30
    assert text.isascii()
    assert ESCAPE not in text
    assert [line for line in lines if len(line) > 100 and not line.startswith("  $")] == []


def test_every_line_about_the_world_is_in_the_world(shown: tuple[str, Path]) -> None:
    """DEMO-C2: the lines of the acts are the rows of the world's table of attempts, in their order."""
    text, folder = shown
    rows = ask(folder / "world.db", "SELECT tool, subject, answer FROM attempts ORDER BY no")
    tools = {tool for tool, _, _ in rows}
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    assert [tuple(line) for line in lines if line[0] in tools] == rows


def test_the_world_counts_attempts_apart_from_effects(shown: tuple[str, Path]) -> None:
    """DEMO-C3: ten attempts, eight effects: the registrar refused twice, and each compensation ran once."""
    _, folder = shown
    assert ask(folder / "world.db", "SELECT count(*), sum(effect) FROM attempts") == [(10, 8)]
    assert ask(folder / "world.db", "SELECT customer, refunded FROM charges") == [("ann", 0), ("ben", 1), ("cat", 1)]
    assert ask(folder / "world.db", "SELECT customer, running FROM servers") == [("ann", 1), ("ben", 0)]


def test_the_next_commands_work(shown: tuple[str, Path], shell: Run, tmp_path: Path) -> None:
    """DEMO-C4: the three commands at the end run as they are printed, from any folder, and find what the demo left."""
    text, _ = shown
    commands = [line.removeprefix("  $ ") for line in text.partition("Next")[2].splitlines()[1:]]
    assert [shlex.split(command)[:2] for command in commands] == [
        ["agent-saga", "sagas"],
        ["agent-saga", "show"],
        ["agent-saga", "verify"],
    ]
    saga_id = shlex.split(commands[1])[2]
    for command, found in zip(commands, [saga_id, "charge", "agent-saga.db"], strict=True):
        done = shell(command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert found in done.stdout


def test_the_recovery_that_it_prints_can_be_typed(shown: tuple[str, Path], shell: Run) -> None:
    """DEMO-C5: the `recover` line runs as it is printed, in the kept folder, and finds nothing to do."""
    text, folder = shown
    (command,) = re.findall(r"^  \$ (agent-saga recover .*)$", text, re.MULTILINE)
    before = list(read_records(str(folder / "agent-saga.db")))
    assert shell(command, cwd=folder).returncode == 0
    assert list(read_records(str(folder / "agent-saga.db"))) == before


def test_json_has_the_facts_of_each_act(shell: Run, tmp_path: Path) -> None:
    """DEMO-C6: with --json, stdout is one document whose facts are those of the world and of the log."""
    done = shell("agent-saga demo --json --keep kept", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["schema"] == "agent-saga/demo/1"
    assert [act["standing"] for act in facts["acts"]] == [["ch_1 paid 42.00", "srv_1 running"], [], []]
    assert [act["report"] and act["report"]["clean"] for act in facts["acts"]] == [None, True, True]
    attempts = [attempt for act in facts["acts"] for attempt in act["attempts"]]
    columns = "SELECT no, tool, subject, key, answer, effect FROM attempts ORDER BY no"
    assert [tuple(attempt.values()) for attempt in attempts] == ask(Path(facts["world"]), columns)
    last = facts["acts"][2]
    kinds = [record["kind"] for record in read_records(facts["log"], last["saga_id"])]
    assert kinds == last["killed"]["records"] + last["recoveries"][0]["records"]
    assert last["recoveries"][1]["records"] == last["recoveries"][1]["attempts"] == []
    assert len(facts["next"]) == 3


def test_it_keeps_a_temporary_folder_by_default(shell: Run, tmp_path: Path) -> None:
    """DEMO-C7: without --keep, log and world stay in a new folder, so that the next commands work."""
    done = shell("agent-saga demo --fast", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0
    (folder,) = tmp_path.iterdir()
    assert {"agent-saga.db", "world.db"} <= {file.name for file in folder.iterdir()}
    assert str(folder / "agent-saga.db") in done.stdout


def test_a_folder_in_use_is_refused(shell: Run, tmp_path: Path) -> None:
    """DEMO-C8: --keep takes a new or empty folder; another one is left as it is, and the exit code is 2."""
    (tmp_path / "mine.txt").write_text("mine")
    done = shell("agent-saga demo --fast --keep .", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not empty" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("place", ["mine.txt", "mine.txt/below"])
def test_a_file_is_no_folder(shell: Run, tmp_path: Path, place: str) -> None:
    """DEMO-C9: --keep with a file, or below one, is a usage error in words."""
    (tmp_path / "mine.txt").write_text("mine")
    done = shell(f"agent-saga demo --fast --keep {place}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def on_a_terminal(command: str, cwd: Path, environ: dict[str, str]) -> str:
    """What a command prints when its stdout is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(["/bin/sh", "-c", command], cwd=cwd, env=environ, stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 65536):
                text += chunk
        except OSError:  # Linux says so when the last writer is gone.
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    return text.decode()


@pytest.mark.parametrize(
    ("option", "more", "coloured"), [("", {}, True), ("--no-color", {}, False), ("", {"NO_COLOR": "1"}, False)]
)
def test_colour_only_adds(
    tmp_path: Path, environment: dict[str, str], option: str, more: dict[str, str], coloured: bool
) -> None:
    """DEMO-C10: a terminal gets colours unless --no-color or NO_COLOR; without them the text is the same."""
    command = f"agent-saga demo --fast --keep kept {option}"
    text = on_a_terminal(command, tmp_path, environment | {"TERM": "xterm"} | more)
    assert (ESCAPE in text) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "  left standing    nothing             report.clean: True\r\n" in plain


def test_it_needs_no_network(shell: Run, tmp_path: Path) -> None:
    """DEMO-C11: no process of the demo opens a connection."""
    watch = tmp_path / "watch"
    watch.mkdir()
    hook = (
        "import os, sys\nsys.addaudithook(lambda event, _: event in {'socket.connect', 'socket.bind'} and os._exit(9))"
    )
    (watch / "sitecustomize.py").write_text(hook)
    assert shell("agent-saga demo --fast --keep kept", cwd=tmp_path, PYTHONPATH=str(watch)).returncode == 0


def test_the_next_commands_work_where_the_program_is_not_on_the_path(shell: Run, tmp_path: Path) -> None:
    """DEMO-C14: started by its path, as scripts/demo does, the demo prints commands that begin with that path."""
    programs = Path(sys.executable).parent
    plain = "/usr/bin:/bin"
    for cwd, name in [(programs.parent, f"{programs.name}/agent-saga"), (tmp_path, f"{programs}/agent-saga")]:
        kept = tmp_path / f"from-{cwd.name}"
        done = shell(f"{name} demo --fast --keep {kept}", cwd=cwd, PATH=plain)
        commands = [line.removeprefix("  $ ") for line in done.stdout.partition("Next")[2].splitlines()[1:]]
        assert [command.split()[0] for command in commands] == [name] * 3
        assert [shell(command, cwd=cwd, PATH=plain).returncode for command in commands] == [0] * 3


def test_a_recovery_that_fails_fails_the_demo(shell: Run, tmp_path: Path) -> None:
    """DEMO-C12: when the recovering process breaks down, the demo says so, names the folder and exits with 1."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import os, sys\nif 'recover' in sys.orig_argv: os._exit(7)")
    done = shell("agent-saga demo --fast --keep kept", cwd=tmp_path, PYTHONPATH=str(broken))
    assert done.returncode == 1
    assert "recover exited 7" in done.stderr
    assert str(tmp_path / "kept") in done.stderr
    assert "Traceback" not in done.stderr
    assert "Act III" not in done.stdout


def test_a_full_disk_fails_the_demo(shell: Run, tmp_path: Path) -> None:
    """DEMO-C13: when nothing can be written, the exit code is 1, in words."""
    done = shell("ulimit -f 0; agent-saga demo --fast --keep kept", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the demo failed" in done.stderr
    assert "Traceback" not in done.stderr
