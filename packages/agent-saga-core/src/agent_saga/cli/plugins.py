"""Sub-commands of other packages: entry points, found without `importlib.metadata`, which costs 40 ms to import."""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP: Final = "agent_saga.commands"
"""`name = "package.module:command"`, a `click.Command`."""

PACKAGE_OF: Final[dict[str, str]] = {
    "dashboard": "agent-saga-dashboard",
    "serve": "agent-saga-server",
    "server": "agent-saga-server",
    "insights": "agent-saga-insights",
    "assurance": "agent-saga-assurance",
    "graph": "agent-saga-visuals",
    "animate": "agent-saga-visuals",
    "viz": "agent-saga-visuals",
    "replay": "agent-saga-visuals",
    "connectors": "agent-saga-connectors",
}
"""Commands of packages that may not be installed. An installed package is found by its entry points, not here."""


class Found(NamedTuple):
    """An entry point: where a command is, and which distribution brings it."""

    place: str
    package: str


@functools.cache
def installed() -> dict[str, Found]:
    """Return the commands of other packages that are installed, by name; nothing of them is imported."""
    found: dict[str, Found] = {}
    for package, text in _entry_point_files():
        for name, place in _commands_in(text):
            found.setdefault(name, Found(place, package))
    return found


def _entry_point_files() -> Iterator[tuple[str, str]]:
    """Yield (distribution, text) of each `entry_points.txt` on the path that names our group."""
    for directory in dict.fromkeys(sys.path):
        try:
            entries = [entry.name for entry in os.scandir(directory or ".")]
        except OSError:
            continue
        for entry in sorted(entries):
            if not entry.endswith((".dist-info", ".egg-info")):
                continue
            try:
                # No pathlib here: it is not loaded otherwise, and the help is to be fast.
                with open(f"{directory or '.'}/{entry}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if GROUP in text:
                yield entry.rpartition(".")[0].partition("-")[0].replace("_", "-"), text


def _commands_in(text: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, place = line.partition("=")
            yield name.strip(), place.partition("[")[0].strip()


def load(place: str, *, owner: str) -> click.Command:
    """Return the command at `module:name`.

    Raises:
        ClickException: it cannot be loaded; the message names the package that brings it.
    """
    module, _, name = place.partition(":")
    try:
        found = functools.reduce(getattr, name.split("."), import_module(module))
    except Exception as error:
        if owner == "agent-saga-core":
            raise
        raise click.ClickException(
            f"the command of {owner} cannot be loaded ({type(error).__name__}: {error}): reinstall the package"
        ) from error
    if not isinstance(found, click.Command):
        raise click.ClickException(f"{place} of {owner} is no command: a click.Command is needed")
    return found
