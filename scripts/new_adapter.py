"""Copies templates/adapter into packages/agent-saga-NAME, and says what else an adapter needs."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from environment import ROOT

TEMPLATE = ROOT / "templates" / "adapter"
MORE = """
The workspace has to know it. In pyproject.toml:
  packages:              "agent-saga-{name}[framework]",
  tool.uv.sources:       agent-saga-{name} = {{ workspace = true }}
  coverage source_pkgs:  "agent_saga_{module}"
In .importlinter: agent_saga_{module} as its siblings are (root packages, and every contract that lists them).
Then, and after each step, docs/adapter.md:
  python3 scripts/environment.py
  .venv/bin/pytest -q packages/agent-saga-{name}/tests
  .venv/bin/pytest -q integration-tests/test_workspace.py"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/new_adapter.py", description=__doc__)
    parser.add_argument("name", help="of the framework, as in agent-saga-NAME: lower-case letters, digits and -")
    name = parser.parse_args().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        parser.error(f"{name!r}: lower-case letters, digits and -, please")
    folder = ROOT / "packages" / f"agent-saga-{name}"
    try:
        copy(name, folder)
    except FileExistsError:
        sys.exit(f"{folder} is there already; nothing was written")
    print(f"wrote {folder.relative_to(ROOT)}", MORE.format(name=name, module=name.replace("-", "_")), sep="\n")


def copy(name: str, folder: Path) -> None:
    """Writes the package of an adapter.

    Raises:
        FileExistsError: the folder is there.
    """
    module = name.replace("-", "_")
    folder.mkdir()
    for source in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        target = folder / str(source.relative_to(TEMPLATE)).replace("myframework", module)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text("utf-8").replace("agent_saga_myframework", f"agent_saga_{module}")
        text = text.replace("MyFramework", name).replace("TestMyframework", "TestAdapter")
        target.write_text(text.replace("myframework", name), "utf-8")
    shutil.copy(ROOT / "LICENSE", folder)


if __name__ == "__main__":
    main()
