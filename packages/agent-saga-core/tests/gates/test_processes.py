"""Budgets between processes."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = "import sys, spender; spender.main(sys.argv[1], 4, 4)"


@pytest.mark.slow
@pytest.mark.serial
def test_64_reservations_of_four_processes_do_not_exceed_a_budget(tmp_path):
    """GATE: of 64 calls of 0.1 from 4 processes against a budget of 1.0, 10 pass and 54 are refused with the reason."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "log.db")]
    processes = [
        subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    try:
        assert [process.stdout.readline().strip() for process in processes] == ["ready"] * 4
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        counts = [process.communicate(timeout=90)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 4
    assert sum(int(passed) for passed, _ in counts) == 10
    assert sum(int(refused) for _, refused in counts) == 54
