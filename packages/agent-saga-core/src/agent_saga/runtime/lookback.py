"""What policies ask of the steps of a saga, at a cost that does not grow with the saga."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.machine.states import StepState
from agent_saga.runtime.registry import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.runtime.live import LiveSaga

_GONE = frozenset({StepState.ABSENT, StepState.COMPENSATED, StepState.ACCEPTED})


class Lookback:
    """An index of a saga's effectful steps, brought up to date when it is asked; the caller holds the saga's lock.

    Each step is looked at once when it is new, and again while it has no compensation yet. A step whose effect is gone
    is dropped, and comes back when the saga says that it runs again or has landed after all (`LiveSaga.revived`).
    """

    def __init__(self, live: LiveSaga) -> None:
        self._live = live
        self._seen = 0
        self._revived = 0
        self._effects: list[int] = []
        self._unbound: set[int] = set()
        self._by_compensator: dict[str, list[int]] = {}

    def has_no_more(self, after: int) -> bool:
        """Tell, without the lock, whether there are no effectful steps but the first `after`."""
        return len(self._effects) == after and self._seen == len(self._live.view.steps)

    def effects(self) -> list[int]:
        """Return the numbers of the effectful steps, in order."""
        view = self._live.view
        while self._seen < len(view.steps):
            self._seen += 1
            step = view.steps[self._seen]
            if not step.read_only:
                self._effects.append(step.no)
                self._bind(step)
        return self._effects

    def needed(self) -> Iterator[tuple[str, StepView]]:
        """Yield each place in which a compensation lives that may still be needed, with the newest step needing it."""
        view = self._live.view
        self.effects()
        self._look_again(view)
        for name, numbers in self._by_compensator.items():
            while numbers and view.steps[numbers[-1]].state in _GONE:
                numbers.pop()
            place = place_of(name) if numbers else None
            if place is not None:
                yield place, view.steps[numbers[-1]]

    def _bind(self, step: StepView) -> None:
        if step.recipe is not None:
            self._by_compensator.setdefault(step.recipe.name, []).append(step.no)
        elif step.state not in _GONE and (step.state is not StepState.STANDING or step.compensation is not None):
            self._unbound.add(step.no)  # A callable `compensate=`, whose recipe comes with the answer.

    def _look_again(self, view: SagaView) -> None:
        unbound, self._unbound = self._unbound, set()
        revived = self._live.revived[self._revived :]
        self._revived += len(revived)
        for no in (*unbound, *revived):
            self._bind(view.steps[no])
