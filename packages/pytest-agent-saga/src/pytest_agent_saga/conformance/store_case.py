"""What a rule of `LogStoreSuite` works with: a log in a folder of its own, closed at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.store.port import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGES_MAX: Final = 100
"""A log that never comes to its last page fails, and does not hang."""


class StoreCase:
    """One test's logs.

    Attributes:
        store: the log that is open now.
        folder: where it is.
    """

    def __init__(self, folder: Path, open_in: Callable[[Path], Any]) -> None:
        self._root, self._open = folder, open_in
        self._logs = 0
        self.folder = folder
        self.store: Any = None
        self.fresh()

    def fresh(self) -> Any:
        """Go on with a new log."""
        if self.store is not None:
            self.store.close()
        self._logs += 1
        self.folder = self._root / f"log-{self._logs}"
        self.folder.mkdir()
        self.store = self._open(self.folder)
        return self.store

    def reopen(self) -> Any:
        """Close the log, as its process does when it ends, and open it again."""
        self.store.close()
        self.store = self._open(self.folder)
        return self.store

    def close(self) -> None:
        """Close the log."""
        self.store.close()


def pages(store: Any, limit: int) -> Iterator[list[Any]]:
    """Yield the pages of all rows."""
    after = None
    for _ in range(PAGES_MAX):
        page = store.rows(Query(amendments=True, limit=limit, after=after))
        if not page:
            return
        yield page
        after = page[-1].saga_id
    raise AssertionError(f"no last page after {PAGES_MAX}")
