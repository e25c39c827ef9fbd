"""Writes what is supported where readers look for it: the packages table of README.md, and docs/support.md.

Everything in them comes from elsewhere: names and descriptions from each pyproject.toml, ranges, capabilities and gaps
from each adapter's `AdapterInfo`, the release of the common environment from constraints.txt, the others from
scripts/tested-releases.json, which `scripts/test-adapter NAME --latest` writes when all tests have passed.
`--check` writes nothing and ends with 1 when something would change.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from environment import ROOT

from agent_saga.spi import AdapterInfo

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "support.md"
RELEASES = ROOT / "scripts" / "tested-releases.json"
HEAD = """# What is supported

Written by `scripts/support.py` from what each adapter declares and the tests showed: do not edit it by hand. *Oldest*
and *newest* are the releases that `scripts/test-adapter NAME --lowest` and `--latest` last passed with, each adapter in
an environment of its own; *together* is the release of the environment in which all frameworks live, which
`scripts/test` uses.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/support.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not up to date")
    check = parser.parse_args().check
    wanted = {README: with_table(README.read_text("utf-8")), PAGE: page()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text("utf-8") != text]
    for file in stale:
        print(f"{'not up to date, run scripts/support.py: ' if check else 'written: '}{file.relative_to(ROOT)}")
        if not check:
            file.write_text(wanted[file], "utf-8")
    sys.exit(check and bool(stale))


def projects() -> list[dict[str, Any]]:
    """Returns each package's table `project`, core first."""
    found = [tomllib.loads(file.read_text("utf-8"))["project"] for file in ROOT.glob("packages/*/pyproject.toml")]
    return sorted(found, key=lambda project: (project["name"] != "agent-saga-core", project["name"]))


def adapters() -> Iterator[tuple[str, AdapterInfo]]:
    """Yields each adapter's package and what it says of itself."""
    for project in projects():
        for target in project.get("entry-points", {}).get("agent_saga.adapters", {}).values():
            module, _, attribute = target.partition(":")
            yield project["name"], getattr(import_module(module), attribute)


def releases(info: AdapterInfo) -> tuple[str, str, str]:
    """Returns the releases tested: the oldest, the one of the common environment, the newest; `-` where none was."""
    framework = re.split(r"[<>=!~ \[]", info.framework)[0]
    alone = json.loads(RELEASES.read_text("utf-8")).get(info.name, {})
    pinned = re.search(rf"^{re.escape(framework)}==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    return alone.get("lowest", "-"), pinned[1] if pinned else "-", alone.get("latest", "-")


def with_table(readme: str) -> str:
    """Returns the README with the rows of its table of packages made anew."""
    tested = {package: (info.framework, *releases(info)) for package, info in adapters()}
    rows = ["| package | what it is | tested with |", "|---|---|---|"]
    for project in projects():
        name = project["name"]
        range_, oldest, together, newest = tested.get(name, ("", "", "", ""))
        framework = re.split(r"[<>=!~ \[]", range_)[0]
        shown = list(dict.fromkeys(each for each in (oldest, together, newest) if each not in {"", "-"}))
        rows.append(f"| [`{name}`](packages/{name}) | {project['description']} | {framework} {', '.join(shown)} |")
    before, _, rest = readme.partition("## Packages\n\n")
    after = rest[rest.index("\n\n") :] if "\n\n" in rest else ""
    table = "\n".join(re.sub(r" +\|$", " |", row) for row in rows)
    return f"{before}## Packages\n\n{table}{after}"


def page() -> str:
    parts = [HEAD, "| adapter | supported | oldest | together | newest |", "|---|---|---|---|---|"]
    found = list(adapters())
    parts += [f"| {name} | `{info.framework}` | {' | '.join(releases(info))} |" for name, info in found]
    for name, info in found:
        parts += [f"\n## {name}\n", "Covered: " + ", ".join(info.capabilities) + ".\n", "Known gaps:\n"]
        parts += [f"* {gap}" for gap in info.gaps]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
