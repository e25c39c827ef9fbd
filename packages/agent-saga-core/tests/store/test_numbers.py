"""Whole numbers where the log has floats."""

import types
import typing

import msgspec
import pytest

from agent_saga import AgentKit, compensator
from agent_saga.model import records as r
from agent_saga.spi import read_records


@compensator("numbers.back", timeout_s=3)
def back(thing: str) -> None: ...


_SPARE = {int: 1, str: "x", bool: True}


def _float_fields():
    for kind in vars(r).values():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                members = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
                if float in members:
                    yield pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")


@pytest.mark.parametrize(("kind", "name"), [*_float_fields()])
def test_every_float_of_a_record_takes_a_whole_number(kind, name):
    """A record whose float was given as a whole number is its own re-encoding."""
    needed = [one for one in msgspec.structs.fields(kind) if one.required]
    made = kind(**{one.name: _SPARE[one.type] for one in needed}, **{name: 60})
    body = r.encode_body(made)
    assert r.encode_body(msgspec.json.decode(body, type=kind)) == body
    assert getattr(made, name) == 60.0


def test_options_in_whole_seconds(tmp_path):
    """A saga whose options are whole seconds can be read, by recovery too."""

    kit = AgentKit(tmp_path / "x.db")
    tool = kit.wrap(
        lambda thing: thing,
        name="numbers.do",
        effect="compensable",
        compensate=back.bind(thing="kwargs.thing"),
        settle_s=1,
        timeout_s=2,
    )
    with kit.transaction("a", rollback_timeout_s=60, suspend_ttl_s=5, drain_s=1, deadline_s=9):
        tool("x")
    kit.close()
    assert [one["kind"] for one in read_records(str(tmp_path / "x.db"))][:2] == ["saga_opened", "intent"]
