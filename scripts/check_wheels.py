"""Builds every wheel and tries them as a stranger would: in a new environment, outside the workspace."""

import sys
import tempfile
import zipfile
from pathlib import Path

from environment import PINNED, ROOT, VENV, CommandFailed, run

SMOKE = ROOT / "scripts" / "smoke.py"
REQUIRED = ("/py.typed", "/licenses/LICENSE")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="agent-saga-wheels-") as folder:
        try:
            check(Path(folder))
        except CommandFailed as error:
            sys.exit(error.output)


def check(folder: Path) -> None:
    """Builds into `folder` and tries the wheels there: core alone, then all of them with all their extras."""
    uv = VENV / "bin" / "uv"
    run(uv, "build", "--quiet", "--all-packages", "--no-sources", "--wheel", *PINNED[2:], "--out-dir", folder)
    wheels = sorted(folder.glob("*.whl"))
    if missing := [f"{wheel.name}: no {name}" for wheel in wheels for name in REQUIRED if not holds(wheel, name)]:
        sys.exit("\n".join(missing))

    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    programs = folder / "venv" / "bin"
    core = [wheel for wheel in wheels if wheel.name.startswith("agent_saga_core-")]
    for chosen in (map(str, core), map(requirement, wheels)):
        run(uv, "pip", "install", "--python", programs / "python", *PINNED[:2], *chosen, cwd=folder)
        run(programs / "python", "-I", SMOKE, cwd=folder)
        run(programs / "agent-saga", "--help", cwd=folder)
    print(*(wheel.name for wheel in wheels), sep="\n")


def holds(wheel: Path, name: str) -> bool:
    return any(member.endswith(name) for member in zipfile.ZipFile(wheel).namelist())


def requirement(wheel: Path) -> str:
    """Returns the wheel with all its extras, by address: by name, the index could answer with a stranger's."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    extras = [line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")]
    return f"{wheel.name.partition('-')[0]}[{','.join(extras)}] @ {wheel.as_uri()}"


if __name__ == "__main__":
    main()
