"""The program in the README runs and says what it says."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_program_of_the_readme(tmp_path):
    """The complete program prints the restored stock."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "5 True\n"


def test_the_example(tmp_path):
    """The agent's order is taken back, and what another program sold meanwhile is kept."""
    example = Path(__file__).parents[1] / "examples" / "order_stock.py"
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "stock {'cup': 2, 'tea': 5}, 0 orders, clean: True, verified: True\n"
