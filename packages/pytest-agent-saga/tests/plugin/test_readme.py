"""The README's program and its tests, as they stand there. Rule ids: RM-n."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_passes(inner):
    """RM-1: the files of the README, in an empty folder, pass."""
    files = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", README.read_text("utf-8"), re.DOTALL))
    assert set(files) == {"shop.py", "test_shop.py"}
    for name, text in files.items():
        inner.write(name, text)
    code, printed = inner.pytest()
    assert code == 0, printed
    assert "14 passed" in printed
