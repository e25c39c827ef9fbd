"""The facts that the log holds now, as far as somebody asked, with the changes that are about to be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.machine.gate import Fact
from agent_saga_postgres.batch import restored, stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.store.port import FactsChange
    from agent_saga_postgres.link import Link

_FACTS: Final = (
    "SELECT kind, facts.name, facts.saga, no, facts.value, at FROM facts JOIN jsonb_array_elements($1::jsonb) AS w "
)
_OF_NAMES: Final = _FACTS + "ON kind = w.value->>0 AND facts.name = w.value->>1"
_OF_SAGAS: Final = _FACTS + "ON kind = w.value->>0 AND facts.name = w.value->>1 AND facts.saga = w.value->>2"


class KnownFacts:
    """See totals.Facts. What was not read yet is read when it is asked for, in the transaction that is open."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._facts: dict[tuple[str, str], dict[tuple[str, int], Fact]] = {}
        self._whole: set[tuple[str, str]] = set()
        self._sagas: set[tuple[str, str, str]] = set()
        self._changed: set[tuple[str, str, str, int]] = set()

    def read_names(self, names: Iterable[tuple[str, str]]) -> None:
        """Read all facts of these kinds and names."""
        wanted = sorted(set(names) - self._whole)
        if wanted:
            self._put(self._link.run(_OF_NAMES, as_json([kind, stored(name)] for kind, name in wanted)))
            self._whole.update(wanted)

    def read_sagas(self, sagas: Iterable[tuple[str, str, str]]) -> None:
        """Read all facts of these kinds, names and sagas."""
        wanted = sorted({one for one in sagas if one not in self._sagas and one[:2] not in self._whole})
        if wanted:
            rows = self._link.run(_OF_SAGAS, as_json([kind, stored(name), stored(saga)] for kind, name, saga in wanted))
            self._put(rows)
            self._sagas.update(wanted)

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        """See totals.Facts.facts_of_name."""
        self.read_names([(kind, name)])
        return list(self._facts.get((kind, name), {}).values())

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See totals.Facts.fact."""
        self.read_sagas([(kind, name, saga_id)])
        return self._facts.get((kind, name), {}).get((saga_id, no))

    def change(self, change: FactsChange) -> None:
        """Follow a change that is about to be committed."""
        for fact in change.removed:
            self._facts.get((fact.kind, fact.name), {}).pop((fact.saga_id, fact.no), None)
            self._changed.add(fact[:4])
        for fact in change.added:
            self._facts.setdefault((fact.kind, fact.name), {})[fact.saga_id, fact.no] = fact
            self._changed.add(fact[:4])

    def _put(self, rows: Iterable[tuple[str, str, str, int, str, int]]) -> None:
        for kind, name, saga, no, value, at in rows:
            fact = Fact(kind, restored(name), restored(saga), no, restored(value), at)
            if fact[:4] not in self._changed:  # What an item before this one changes counts, and is not there yet.
                self._facts.setdefault((fact.kind, fact.name), {})[fact.saga_id, fact.no] = fact


def as_json(values: Iterable[object]) -> bytes:
    """Return a list of values as a parameter."""
    return msgspec.json.encode(list(values))
