"""The commands, as a user runs them, and the pictures in a real browser."""

import subprocess
import sys

import pytest


def saga(*words, code=0):
    command = [sys.executable, "-m", "agent_saga", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.mark.parametrize("form", ["svg", "mermaid", "dot"])
def test_graph(path, tmp_path, form):
    """graph prints the newest saga, or writes a new file and overwrites nothing."""
    shown = saga("graph", "--format", form, "--log", path).stdout
    assert shown
    saga("graph", "--format", form, "--log", path, "--out", tmp_path / "out")
    assert (tmp_path / "out").read_text("utf-8") == shown
    assert "cannot be made" in saga("graph", "--log", path, "--out", tmp_path / "out", code=2).stderr


def test_replay(path, tmp_path):
    """replay shows one state or all, as text, JSON or a page."""
    whole = saga("replay", "--log", path).stdout
    assert "[1 of" in whole
    assert "[1 of" not in saga("replay", "--at", "-1", "--log", path).stdout
    saga("replay", "--at", "999", "--log", path, code=2)
    saga("replay", "--html", tmp_path / "page.html", "--log", path)
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    assert '"schema": "agent-saga/replay/1"' in saga("replay", "--json", "--log", path).stdout


def test_users_mistakes(path, tmp_path):
    """No log is exit 3, no such saga is exit 2, and neither has a traceback."""
    saga("graph", "--log", tmp_path / "none.db", code=3)
    saga("viz", "nosuch", "--kind", "chain", "--log", path, code=2)


@pytest.mark.slow
def test_in_a_browser(path, tmp_path, chromium):
    """Chromium draws each picture, animated ones included, without an error, and something is seen."""
    (tmp_path / "page.html").write_text("")
    (tmp_path / "page.html").unlink()
    saga("replay", "--html", tmp_path / "page.html", "--log", path)
    saga("graph", "--log", path, "--out", tmp_path / "graph.svg")
    saga("animate", "--log", path, "--out", tmp_path / "animate.svg")
    for kind in ("fleet", "chain", "outcomes"):
        saga("viz", "--kind", kind, "--log", path, "--out", tmp_path / f"{kind}.svg")
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr --window-size=900,700"
    )
    for file in ("page.html", "graph.svg", "animate.svg", "fleet.svg", "chain.svg", "outcomes.svg"):
        shot = tmp_path / f"{file}.png"
        command = [chromium, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={shot}"]
        command.append((tmp_path / file).as_uri())
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert shot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", done.stderr
        assert shot.stat().st_size > 5000, f"{file} is blank"
        assert "CONSOLE" not in done.stderr
