"""Measures the branch coverage of the machine, the store and recovery, child processes included; it has to be whole.

What a process did that was killed is lost, so these tests end their processes by themselves, or run in this one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "agent-saga-core"
MEASURED = (
    "machine/*",
    "store/*",
    *(f"runtime/{name}.py" for name in ("compensate", "ending", "late", "opening", "recover", "rollback", "settle")),
    "runtime/verdict.py",
)
SUITES = ("machine", "engine", "gate_engine", "store", "crash", "cli", "audit", "model", "kit")
CHOSEN = "not slow and not exhaustive and not example"
SETTINGS = """
[run]
branch = true
parallel = true
patch = _exit, fork, subprocess
data_file = {folder}/data
include =
    {measured}
[report]
show_missing = true
skip_covered = true
exclude_also =
    if TYPE_CHECKING:
    assert_never\\(
    @overload
    def .*: \\.\\.\\.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/branches.py", description=__doc__)
    parser.add_argument("suites", nargs="*", default=SUITES, help="folders or files below tests/ of agent-saga-core")
    parser.add_argument("--under", type=float, default=100.0, help="fail below this many per cent")
    asked = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings"
        measured = [str(CORE / "src" / "agent_saga" / name) for name in MEASURED]
        settings.write_text(SETTINGS.format(folder=folder, measured="\n    ".join(measured)), "utf-8")
        tool = [sys.executable, "-m", "coverage"]
        tests = [str(CORE / "tests" / suite) for suite in asked.suites if (CORE / "tests" / suite).exists()]
        run = [*tool, "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", CHOSEN]
        environ = {**os.environ, "PYTHONWARNINGS": ""}
        # Each suite in a process of its own, as in scripts/test: handlers are registered process-wide.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            codes = pool.map(
                lambda one: subprocess.run([*run, one], cwd=ROOT, env=environ, check=False).returncode, tests
            )
            failed = max(codes)
        subprocess.run([*tool, "combine", "-q", f"--rcfile={settings}"], cwd=ROOT, check=True)
        told = [*tool, "report", f"--rcfile={settings}", f"--fail-under={asked.under}"]
        missing = subprocess.run(told, cwd=ROOT, check=False).returncode
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    sys.exit(failed or missing)


if __name__ == "__main__":
    main()
