"""Commands of other packages: entry points, and the package that brings a known command."""

import re

import pytest


def install(shop, name, entry_points):
    """Lay a distribution with entry points where Python finds it."""
    folder = shop.folder / "site" / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "entry_points.txt").write_text(entry_points)
    shop.environment["PYTHONPATH"] = f"{shop.folder / 'site'}:{shop.environment.get('PYTHONPATH', '')}"
    return shop.folder / "site"


def test_a_command_of_another_package_is_listed_and_run(shop):
    """The entry point group `agent_saga.commands` brings commands; the help lists them without importing them."""
    site = install(
        shop, "agent_saga_hello", "[console_scripts]\nx = y:z\n\n[agent_saga.commands]\nhello = hello_command:hello\n"
    )
    (site / "hello_command.py").write_text(
        "import click\nprint('imported')\n@click.command()\ndef hello(): click.echo('hello from afar')\n"
    )
    told = shop.saga("--help").stdout
    assert re.search(r"hello +\(from agent-saga-hello\)", told)
    assert "imported" not in told
    assert "hello from afar" in shop.saga("hello").stdout


@pytest.mark.parametrize(
    ("place", "reason"),
    [("no_module:x", "ModuleNotFoundError"), ("json:nothing", "AttributeError"), ("json:dumps", "is no command")],
)
def test_a_broken_package_breaks_only_its_own_command(shop, place, reason):
    """The package is named; the other commands work."""
    install(shop, "agent_saga_bad", f"[agent_saga.commands]\nbad = {place}\n")
    done = shop.saga("bad", code=1)
    assert "agent-saga-bad" in done.stderr
    assert reason in done.stderr
    assert shop.saga("--help").returncode == 0


def test_a_package_cannot_take_a_command_of_ours(shop):
    """`recover` stays ours, whatever a package says."""
    install(shop, "agent_saga_bad", "[agent_saga.commands]\nrecover = json:dumps\n")
    shop.run("ok")
    assert "nothing is left" in shop.saga("recover").stdout


def test_a_known_command_names_the_package_that_brings_it(shop):
    """The line that installs it."""
    assert "pip install agent-saga-dashboard" in shop.saga("dashboard", code=2).stderr


def test_the_demo_is_one_of_the_commands(shop):
    """`demo` is loaded when it is asked for."""
    assert "--keep" in shop.saga("demo", "--help").stdout
