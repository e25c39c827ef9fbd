"""`agent-saga new`: what it writes and what it refuses. What it writes for each framework runs in integration-tests."""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner

from agent_saga.cli.new import FRAMEWORKS, new, project


def run(*words):
    return CliRunner().invoke(new, [str(word) for word in words])


def python(folder, *words):
    """Run Python in the project, as its README says; the log is ./agent-saga.db."""
    environment = {name: value for name, value in os.environ.items() if name != "AGENT_SAGA_LOG"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_project_is_whole(tmp_path, framework):
    """Every file is there, is valid, and has no blank that was not filled in; every line fits a screen."""
    done = run(tmp_path / "my-shop", "--framework", framework)
    assert done.exit_code == 0
    written = {str(path.relative_to(tmp_path / "my-shop")) for path in (tmp_path / "my-shop").rglob("*.*")}
    assert written >= {"pyproject.toml", "README.md", ".gitignore", "my_shop/tools.py", "tests/test_rollback.py"}
    for path, text in project("my-shop", framework).items():
        assert (tmp_path / "my-shop" / path).read_text("utf-8") == text
        assert "{{" not in text
        assert max(map(len, text.splitlines()), default=0) <= 124, path
        if path.endswith(".py"):
            compile(text, path, "exec")
    settings = tomllib.loads((tmp_path / "my-shop" / "pyproject.toml").read_text("utf-8"))
    assert settings["project"]["name"] == "my-shop"
    assert settings["tool"]["agent-saga"]["imports"] == ["my_shop.tools"]


def test_what_is_there_is_not_touched(tmp_path):
    """A folder or file of the name, even an empty one, is left as it is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("empty", "file"):
        done = run(tmp_path / name)
        assert done.exit_code == 2
        assert "nothing was written" in done.output
    assert list((tmp_path / "empty").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["1st", "class", "a/", "é", "openai", "agent-saga", "tests", "-", "a\nb"])
def test_names_that_cannot_be_imported_are_refused(tmp_path, name, monkeypatch):
    """What would be no package, or would hide one that the project needs, is refused before anything is written."""
    monkeypatch.chdir(tmp_path)
    done = run("--", name) if name != "a/" else run("--", "nowhere/..")
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_json(tmp_path):
    """--json names the folder and the files."""
    done = CliRunner().invoke(new, [str(tmp_path / "shop"), "--json"])
    document = json.loads(done.stdout)
    assert document["path"] == str(tmp_path / "shop")
    assert "tests/test_rollback.py" in document["files"]


def test_the_project_does_what_its_readme_says(tmp_path):
    """Oslo is booked, Atlantis is taken back, and what dies at the Styx is taken back by `agent-saga recover`."""
    assert run(tmp_path / "shop").exit_code == 0
    shop = tmp_path / "shop"
    booked = "bookings: [('flight', 'Oslo'), ('hotel', 'Oslo')]\n"
    assert python(shop, "-m", "shop", "Oslo").stdout.endswith(booked)
    assert python(shop, "-m", "shop", "Atlantis").stdout == "there is no hotel in Atlantis\n" + booked
    assert python(shop, "-m", "shop", "Styx").returncode == -9
    recovered = python(shop, "-m", "agent_saga", "recover")
    assert recovered.returncode == 0
    assert "1 saga recovered; nothing is left" in recovered.stdout
    assert python(shop, "-m", "shop", "Atlantis").stdout == "there is no hotel in Atlantis\n" + booked


@pytest.mark.slow
def test_its_test_notices_a_compensation_that_does_nothing(tmp_path):
    """The project's test fails when the compensation is broken; that it passes is tested in integration-tests."""
    assert run(tmp_path / "shop").exit_code == 0
    tools = tmp_path / "shop" / "shop" / "tools.py"
    source = tools.read_text("utf-8")
    tools.write_text(source.replace("DELETE FROM bookings WHERE key", "SELECT 1 FROM bookings WHERE key"), "utf-8")
    done = python(tmp_path / "shop", "-m", "pytest", "-q", "-p", "no:asyncio")
    assert done.stdout.strip().splitlines()[-1].startswith("2 failed"), done.stdout
    assert "the compensation says that it succeeded, and the effect stands" in done.stdout
