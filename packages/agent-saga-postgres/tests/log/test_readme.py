"""The program in the README, run as it stands on a real server."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
PLACE = "postgresql://shop@db.example.com/shop?sslmode=verify-full"


def test_the_program_runs(log_url, tmp_path):
    """PG-61: the charge is refunded, and the report says so."""
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert PLACE in program
    (tmp_path / "shop.py").write_text(program.replace(PLACE, log_url))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "lamp is sold out; payments: {}" in done.stdout
    assert "rolled back, clean" in done.stdout
