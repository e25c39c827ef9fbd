"""docs/errors.md has each error as the code has it."""

from pathlib import Path

import pytest

from agent_saga import errors

PAGE = (Path(__file__).parents[4] / "docs" / "errors.md").read_text("utf-8")
CLASSES = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BaseException)),
    key=lambda kind: kind.code,
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_page_has_the_error(kind):
    """Each class is on the page with its code, effect and retry; a code belongs to one class."""
    assert f"| {kind.code} | `{kind.__name__}` | {kind.effect} | {kind.retry} |" in PAGE
    assert [other for other in CLASSES if other.code == kind.code] == [kind]
