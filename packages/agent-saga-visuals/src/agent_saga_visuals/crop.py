"""What is drawn of a saga with very many steps: its beginning, its end, and every step whose effect is left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agent_saga_visuals.looks import LEFT, LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DRAWN: Final = 120
"""Steps drawn at each end of a saga that is cropped."""
WHOLE_MAX: Final = 400
"""Steps up to which a saga is drawn whole."""
_LEFT_MAX: Final = 200
"""Steps whose effect is left, drawn between the ends; more are counted."""


def cropped(states: Mapping[int, str]) -> Iterator[int | list[int]]:
    """Yield the number of each step that is drawn, and in their places lists of those that are not.

    Args:
        states: state by number of the step, in order.
    """
    numbers = list(states)
    if len(numbers) <= WHOLE_MAX:
        yield from numbers
        return
    inner = [no for no in numbers[DRAWN:-DRAWN] if states[no] in LEFT][:_LEFT_MAX]
    keep = {*numbers[:DRAWN], *inner, *numbers[-DRAWN:]}
    hidden: list[int] = []
    for no in numbers:
        if no not in keep:
            hidden.append(no)
            continue
        if hidden:
            yield hidden
            hidden = []
        yield no


def counted(states: Sequence[str]) -> str:
    """Return how many steps are in each state, in words."""
    return ", ".join(f"{count} {LOOKS[state].word}" for state, count in Counter(states).items())
