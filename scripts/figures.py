"""Follows docs/start.md literally: runs its commands in an empty folder, compares what they print, and the pictures.

Without --check it writes what differs into the page and into docs/figures.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import FOREIGN, ROOT, VENV

PAGE = ROOT / "docs" / "start.md"
FIGURES = ROOT / "docs" / "figures"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LEFT_OUT = ("pip install", "agent-saga adopt", "agent-saga doctor", "venv")
COMMAND_S = 120
CHANGING = (  # What differs from run to run, and what the page has in its place. Saga ids are numbered.
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC"), "2026-12-01 12:00:00.000 UTC"),
    (re.compile(r"passed in [\d.]+s"), "passed in 2.10s"),
)
SAGA_ID = re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/figures.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something differs")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="agent-saga-start-") as folder:
        made = follow(PAGE.read_text("utf-8"), Path(folder))
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what its commands give{'' if check else ': written anew'}")
        if not check:
            path.write_text(made[path], "utf-8")
        else:
            print(made[path])
    print(f"{len(made)} files, {len(stale)} differ")
    sys.exit(bool(check and stale))


def follow(page: str, folder: Path) -> dict[Path, str]:
    """Returns what the page and its pictures should be: path -> text."""
    home, names = folder, dict[str, str]()

    def play(found: re.Match[str]) -> str:
        nonlocal home
        lines = [line for line in found[1].splitlines() if line.startswith("$ ")]
        if any(word in line for word in LEFT_OUT for line in lines):
            return found[0]
        shown = []
        for line in lines:
            shown.append(line)
            if line.startswith("$ cd "):
                home /= line.removeprefix("$ cd ")
            else:
                shown += settled(run(line[2:], home), folder, names).splitlines()
        return "\n".join(["```console", *shown, "```"])

    made = {PAGE: BLOCK.sub(play, page)}
    for picture in sorted(home.glob("*.svg")):
        made[FIGURES / picture.name] = settled(picture.read_text("utf-8"), folder, names)
    return made


def run(command: str, folder: Path) -> str:
    """Returns what a command prints, as a terminal shows it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environ |= {"PATH": f"{VENV / 'bin'}{os.pathsep}{environ['PATH']}", "PYTEST_ADDOPTS": "-p no:asyncio"}
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {command}"],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    return done.stdout + ("Killed\n" if done.returncode == -signal.SIGKILL else "")


def settled(text: str, folder: Path, names: dict[str, str]) -> str:
    """Returns a text without what differs from run to run."""
    text = text.replace(str(folder.resolve()), "/srv").replace(str(folder), "/srv")
    text = SAGA_ID.sub(lambda found: names.setdefault(found[0], f"01m8pxer5zjj874btsdrkaq9t{len(names)}"), text)
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text


if __name__ == "__main__":
    main()
