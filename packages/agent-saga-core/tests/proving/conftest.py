"""A world to be broken: stock per item, and tools whose compensations are right, or wrong in one way each."""

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package.

from agent_saga import AgentKit, Landed, NotLanded, compensator
from agent_saga.runtime.registry import UnreachableHandler


class Shop:
    """A kit with tools that reserve items; `world` holds how many are reserved."""

    def __init__(self, log):
        self.world = {}
        self.kit = AgentKit(log=log)
        self.names = 0

    def reset(self):
        self.world.clear()

    def snapshot(self):
        return self.world

    def take(self, item):
        self.world[item] = self.world.get(item, 0) + 1

    def give_back(self, item):
        if self.world.get(item, 0) > 1:
            self.world[item] -= 1
        else:
            self.world.pop(item, None)

    def tool(self, undo=None, body=None, effect="compensable", name=None, handler="undo", **options):
        """Return a tool that takes an item; `undo(item)` is its compensator."""
        traits = {key: options.pop(key) for key in ("idempotent", "safe_if_absent") if key in options}
        if undo is not None:
            self.names += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnreachableHandler)
                made = compensator(f"{handler}-{id(self)}-{self.names}", **traits)(undo)
            options["compensate"] = made.bind(item="kwargs.item")

        def run(item):
            return (body or self.take)(item)

        return self.kit.wrap(run, effect=effect, name=name or f"tool_{self.names}", **options)

    def good(self, **options):
        """Return a tool whose compensator may run at any time, any number of times."""

        def undo(item):
            self.world.pop(item, None)

        return self.tool(undo, idempotent=True, safe_if_absent=True, **options)

    def async_good(self):
        """The same, async."""

        def undo(item):
            self.world.pop(item, None)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreachableHandler)
            handler = compensator(f"async-{id(self)}", idempotent=True, safe_if_absent=True)(undo)

        @self.kit.tool(effect="compensable", compensate=handler.bind(item="kwargs.item"))
        async def reserve(item):
            self.take(item)

        return reserve

    def probe(self, key, kwargs):
        return Landed(None) if kwargs["item"] in self.world else NotLanded()


@pytest.fixture
def shop():
    made = Shop("memory:")
    yield made
    made.kit.close()
