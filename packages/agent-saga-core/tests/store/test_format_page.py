"""docs/log-format.md says what the code does. Rule ids: L-n."""

import inspect
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from agent_saga.model import records as r
from agent_saga.model.values import _FORMS, _UNTAG
from agent_saga.store.schema import APPLICATION_ID, TABLES

PAGE = (Path(__file__).parents[4] / "docs" / "log-format.md").read_text()
KINDS = {struct.__struct_config__.tag: struct for struct in get_args(r.AnyRecord)}
HEADER = len(r.Record.__struct_fields__)


def test_the_page_has_the_tables():
    """L-1: the page shows each table as it is made, and names each index and trigger."""
    for statement in TABLES:
        if statement.startswith("CREATE TABLE"):
            assert statement + ";" in PAGE
        else:
            name = re.search(r"(?:INDEX|TRIGGER) (\w+)", statement)[1]
            assert f"`{name}`" in PAGE
    assert f"{APPLICATION_ID:#x}" in PAGE


def shown(struct, skip):
    """The fields of a struct, as the page spells them."""
    for field in msgspec.structs.fields(struct)[skip:]:
        if field.required:
            yield f"`{field.name}`"
            continue
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        text = "" if default is None else "=" + msgspec.json.encode(default).decode()
        yield f"`{field.name}?`{text}"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_page_has_the_fields_of_each_kind(kind):
    """L-2: the page lists each kind with its fields, in order, with their defaults."""
    row = re.search(rf"^\| `{kind}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None, f"add: | `{kind}` | {', '.join(shown(KINDS[kind], HEADER))} |"
    assert row[1] == ", ".join(shown(KINDS[kind], HEADER))


def test_the_page_has_the_recipe_and_no_other_kinds():
    """L-3: the recipe's fields are there; a kind on the page is one in the code."""
    assert ", ".join(shown(r.Recipe, 0)) in PAGE
    table = PAGE.split("## Kinds")[1].split("## The fold")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == KINDS.keys()


def test_the_page_has_the_forms_of_values():
    """L-4: each tagged form is on the page."""
    assert _FORMS
    for tag in _UNTAG:
        assert f'{{"{tag}":' in PAGE


def test_the_format_version():
    """L-5: the page is about the version that the code writes."""
    assert f"Format {r.FORMAT}, minor version {r.FORMAT_MINOR}." in PAGE
    assert "previous + body" in inspect.getsource(r.chain_hash)
