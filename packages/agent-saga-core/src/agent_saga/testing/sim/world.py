"""The simulated outside world: what happened in it, however often it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Event = tuple[str, str, str]
"""Kind, item, key. Kinds: `effect`, `again` (a repeat that changed nothing), `undo`, `undo again`, `undo nothing`,
`undo failed`."""

TRAVEL_S: Final = 4.0
"""How long a request travels that lands although its caller got no answer."""


class Refused(Exception):
    """The remote says no: nothing happened."""


@dataclass(slots=True)
class World:
    """A remote that answers honestly and knows repeated keys.

    Attributes:
        events: everything that happened, in order.
        landed, undone: how often, by item.
        tries: how often a tool or compensator of an item was started.
        keys: keys that were used up.
        travelling: effects on their way: when they land, item, key.
    """

    events: tuple[Event, ...] = ()
    landed: dict[str, int] = field(default_factory=dict)
    undone: dict[str, int] = field(default_factory=dict)
    tries: dict[tuple[str, str], int] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    travelling: tuple[tuple[int, str, str], ...] = ()

    def copy(self) -> World:
        """Return a copy that lives on its own."""
        return World(self.events, dict(self.landed), dict(self.undone), dict(self.tries), self.keys, self.travelling)

    @property
    def digest(self) -> int:
        """A number that differs between worlds that differ."""
        return hash((self.events, self.travelling, tuple(self.tries.items())))

    def started(self, what: str, item: str) -> int:
        """Count a start, and return which one it is."""
        count = self.tries[what, item] = self.tries.get((what, item), 0) + 1
        return count

    def standing(self, item: str) -> bool:
        """Tell whether an effect of the item stands."""
        return self.landed.get(item, 0) > self.undone.get(item, 0)

    def land(self, item: str, key: str) -> None:
        """Let an effect happen; a key that was used up changes nothing."""
        if key and key in self.keys:
            self.note("again", item, key)
            return
        self._use(key)
        self.landed[item] = self.landed.get(item, 0) + 1
        self.note("effect", item, key)

    def undo(self, item: str, key: str) -> None:
        """Let a compensation happen."""
        if key and key in self.keys:
            self.note("undo again", item, key)
            return
        if not self.standing(item):
            self._use(key)
            self.note("undo nothing", item, key)
            return
        self._use(key)
        self.undone[item] = self.undone.get(item, 0) + 1
        self.note("undo", item, key)

    def _use(self, key: str) -> None:
        if key:
            self.keys |= {key}

    def note(self, kind: str, item: str, key: str) -> None:
        """Add an event."""
        self.events = (*self.events, (kind, item, key))

    def arrive(self, now_ns: int) -> bool:
        """Let what travelled long enough land; tells whether something did."""
        due = [entry for entry in self.travelling if entry[0] <= now_ns]
        for _, item, key in due:
            self.land(item, key)
        self.travelling = tuple(entry for entry in self.travelling if entry[0] > now_ns)
        return bool(due)
