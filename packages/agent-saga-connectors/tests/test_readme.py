"""The programs in the README and in `examples` run and say what they say; each claim names a test."""

import json
import re
import subprocess
import sys
from pathlib import Path

from agent_saga_connectors import guarantees

HERE = Path(__file__).parent


def test_the_program_of_the_readme(tmp_path):
    """The complete program refuses, runs and puts back."""
    text = (HERE.parent / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\nTrue ['notes.txt']\n"


def test_the_example(tmp_path):
    """The example loses a file and has it again."""
    program = HERE.parent / "examples" / "tidy_up.py"
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "left: []\nclean: True ['report.md']\n"


def test_guarantees():
    """Each claim names a test that is there, and the whole is JSON."""
    claims = json.loads(json.dumps(guarantees()))["claims"]
    for claim in claims:
        for test in claim["tests"]:
            file, _, name = test.rpartition("::")
            assert f"def {name}(" in (HERE / Path(file).name).read_text(), test
