"""Values whose plain form cannot be hashed although the value could."""

import dataclasses

import pytest

from agent_saga.model.values import decode, encode


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


@pytest.mark.parametrize(
    "value", [{Point(1)}, frozenset({Point(1)}), {Point(1): 2}, {(Point(1), "a")}, {1: {Point(1)}}]
)
def test_sets_and_keys_of_record_like_objects_decode(value):
    """What was encoded decodes: a set of dataclasses must not make its saga unreadable."""
    assert "1" in repr(decode(encode(value).text))


def test_a_set_of_plain_values_stays_a_set():
    """The fallback is for unhashable items only."""
    assert decode(encode({1, (2, "a")}).text) == {1, (2, "a")}
