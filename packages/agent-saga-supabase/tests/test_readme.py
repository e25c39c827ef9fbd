"""The programs in the README run and say what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import KEY


def test_the_programs_of_the_readme(bare_world, tmp_path):
    """The migration is applied, and the complete program prints the restored stock."""
    bare_world.run('create table stock (item text primary key, "left" int)')
    text = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    setup, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    environment = {
        **os.environ,
        "DATABASE_URL": bare_world.url,
        "SUPABASE_URL": bare_world.address,
        "SUPABASE_KEY": KEY,
    }
    for code in (setup, program):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    assert done.stdout == "[{'left': 5}] True\n"
