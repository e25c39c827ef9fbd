"""Golden logs of every format version: later code reads the same from them. Rule ids: G-n."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from build_golden import facts

from agent_saga.store.open import open_log
from agent_saga.store.verify import verify

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.db")))
def test_a_golden_log_reads_the_same(name, tmp_path):
    """G-1: fold, rows, heads and root of a golden log are what they were when it was built."""
    shutil.copy(GOLDEN / f"{name}.db", tmp_path / "log.db")
    with contextlib.closing(open_log(str(tmp_path / "log.db"), create=False)) as log:
        verify(log)
        assert facts(log) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_there_is_a_golden_log():
    """G-2: the current format has one."""
    assert (GOLDEN / "format-1.0.db").is_file()
