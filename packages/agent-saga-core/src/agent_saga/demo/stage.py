"""Where the demo plays, and how what it says is read back."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.demo import tools
from agent_saga.demo.world import World
from agent_saga.store.open import open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_saga.demo.world import Attempt
    from agent_saga.model.report import RollbackReport
    from agent_saga.store.port import LogStore

LOG: Final = "agent-saga.db"


class DemoFailed(Exception):
    """What was read back is not what the demo is about to say."""


def check(true: object, what: str) -> None:
    """Stop the demo unless a fact is as it must be.

    Raises:
        DemoFailed: it is not; `what` says what was found.
    """
    if not true:
        raise DemoFailed(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A folder with a world and a log; both stay when the demo is over."""

    folder: Path
    world: World

    @classmethod
    def build(cls, folder: Path) -> Stage:
        """Make a world in an empty folder, and connect the tools of this process to it."""
        world = World.create(folder / "world.db")
        tools.connect(world)
        return cls(folder=folder, world=world)

    @property
    def log(self) -> Path:
        """The log; the first record makes it."""
        return self.folder / LOG

    @contextmanager
    def reading(self) -> Iterator[LogStore]:
        """Open the log for the length of the block."""
        store = open_log(str(self.log), create=False)
        try:
            yield store
        finally:
            store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What an act left.

    Attributes:
        attempts: the requests that the world received, in order.
        standing: what the customer has in the world.
        report: the saga's; None without a saga.
    """

    attempts: list[Attempt]
    standing: list[str]
    report: RollbackReport | None = None

    @classmethod
    def by(cls, customer: str, world: World, *, after: int, report: RollbackReport | None = None) -> Played:
        """Read back what happened after attempt number `after`, all of it for one customer."""
        return cls(attempts=world.attempts(after=after), standing=world.standing(customer), report=report)
