"""Items on their way to the server: how they are spelled for it, and how they are found again in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import InvariantViolation
from agent_saga.model.records import ApprovalConsumed, ApprovalDecided, Intent, Reserved, encode_body
from agent_saga.store.port import Committed, Refused
from agent_saga.store.rules import Current, judge

if TYPE_CHECKING:
    from agent_saga.machine.gate import Fact
    from agent_saga.machine.row import Row
    from agent_saga.store.port import FactsChange, Item, Verdict

_MARKED: Final = Intent | Reserved | ApprovalConsumed | ApprovalDecided
_encode: Final = msgspec.json.Encoder().encode
_POSITION: Final = b',"pos":0,'
"""Where a body has its position. In a JSON text nothing before it can look the same: quotes inside are escaped."""


def stored(text: str) -> str:
    """Return a text as PostgreSQL can keep it: without NUL, and different for different texts."""
    if "\0" in text or "\x1b" in text:
        return text.replace("\x1b", "\x1b1").replace("\0", "\x1b0")
    return text


def restored(text: str) -> str:
    """Return the text that `stored` was given."""
    return text.replace("\x1b0", "\0").replace("\x1b1", "\x1b") if "\x1b" in text else text


def _stored(text: str | None) -> str | None:
    return None if text is None else stored(text)


@dataclass(slots=True, eq=False)
class Sending:
    """An item that is being committed.

    Attributes:
        item: what was asked for.
        halves: each body in two halves, around its position.
        refused: what it requires does not hold: its records go into the log marked.
        facts, amended_facts: the changes of facts with running totals, once they were found out (`Holdings.weigh`).
        verdict: what became of it, once that is known.
        lost: an answer about it was lost: the server may have it, or may be about to take it.
    """

    item: Item
    halves: list[tuple[bytes, bytes]] = field(default_factory=list)
    refused: Refused | None = None
    facts: FactsChange | None = None
    amended_facts: FactsChange | None = None
    verdict: Verdict | None = None
    lost: bool = False

    @property
    def is_weighed(self) -> bool:
        """Whether the rules must look at what the log holds, in the transaction that commits the item."""
        item = self.item
        changes = (item.facts, None if item.amended is None else item.amended.facts)
        return bool(item.requires) or any(
            fact.kind == "spend"
            for change in changes
            if change is not None
            for fact in (*change.added, *change.removed)
        )

    def check(self) -> None:
        """Let the rules look at the item itself, whatever the log holds.

        Raises:
            InvariantViolation: it contradicts itself; nothing of it may be written.
        """
        judge(self.item, _Fitting(self.item))

    def unmark(self) -> None:
        """Forget an earlier judgement of what the item requires."""
        if self.refused is not None:
            self.refused = None
            for draft in self.item.drafts:
                if isinstance(draft.body, _MARKED):
                    draft.body.refused = None

    def spell(self, head: bytes | None) -> bytes:
        """Return the item as the server reads it.

        Args:
            head: the hash of the saga's last record as this process wrote it, or None where it did not.

        Raises:
            InvariantViolation: a record cannot be encoded.
        """
        item = self.item
        try:
            self.halves = [_halves(draft.body, item.count + no) for no, draft in enumerate(item.drafts, start=1)]
            drafts = [
                (before.decode(), after.decode(), None if draft.payload is None else draft.payload.decode())
                for (before, after), draft in zip(self.halves, item.drafts, strict=True)
            ]
            return _encode(self._plain(drafts, head))
        except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError, OverflowError) as error:
            raise InvariantViolation(f"a record cannot be encoded, nothing was written: {error}") from error

    def _plain(self, drafts: list[Any], head: bytes | None) -> dict[str, Any]:
        item = self.item
        plain: dict[str, Any] = {"saga": stored(item.saga_id), "count": item.count, "drafts": drafts}
        if item.count:
            plain["seen"] = item.epoch - 1 if item.claims else item.epoch
        if head is not None:
            plain["head"] = head.hex()
        if item.row is not None:
            plain["row"] = _line(item.row)
        facts = self.facts or item.facts
        if facts is not None and self.refused is None:
            plain["facts"] = _change(facts)
        amended = item.amended
        if amended is not None:
            plain["amended"] = {
                "saga": stored(amended.saga_id),
                "epoch": amended.epoch,
                "count": amended.count,
                "amendments": amended.amendments,
                "row": _line(amended.row),
            }
            facts = self.amended_facts or amended.facts
            if facts is not None:
                plain["amended"]["facts"] = _change(facts)
        return plain

    def settle(self, pos: int, head: bytes) -> None:
        """Note that the item is in the log, and number its bodies as they are there."""
        first = pos - len(self.item.drafts)
        for no, draft in enumerate(self.item.drafts, start=1):
            draft.body.n, draft.body.pos = self.item.count + no, first + no
        self.verdict = self.refused or Committed(pos, head)

    def is_stored_as(self, bodies: list[tuple[int, bytes]]) -> bool:
        """Tell whether these records (position, body) are the item's: who lost an answer asks for it in this way."""
        return len(bodies) == len(self.halves) > 0 and all(
            body == before + str(pos).encode() + after
            for (pos, body), (before, after) in zip(bodies, self.halves, strict=True)
        )


class _Fitting:
    """What a log would hold for an item to fit: the rules then find only what is wrong with the item itself."""

    def __init__(self, item: Item) -> None:
        self._item = item

    def saga(self, saga_id: str) -> Current | None:
        item = self._item
        if saga_id == item.saga_id:
            if item.count == 0:
                return None
            return Current(saga_id, epoch=item.epoch - 1 if item.claims else item.epoch, count=item.count)
        amended = item.amended
        if amended is not None and saga_id == amended.saga_id:
            return Current(saga_id, epoch=amended.epoch, count=amended.count, amendments=amended.amendments)
        return Current(saga_id)

    def newest(self, key: str) -> Current | None:
        return None


def _halves(body: Any, n: int) -> tuple[bytes, bytes]:
    body.n, body.pos = n, 0
    data = encode_body(body)
    at = data.index(_POSITION) + len(_POSITION) - 2
    return data[:at], data[at + 1 :]


def _line(row: Row) -> tuple[Any, ...]:
    return (
        stored(row.name),
        _stored(row.key),
        row.incarnation,
        row.state,
        _stored(row.owner),
        row.epoch,
        row.on_crash,
        row.opened_at,
        row.due_at,
        row.work,
        row.human,
        bool(row.sealed),
        _stored(row.amends),
    )


def _change(change: FactsChange) -> dict[str, Any]:
    return {
        "removed": [(fact.kind, stored(fact.name), stored(fact.saga_id), fact.no) for fact in change.removed],
        "added": [_fact(fact) for fact in change.added],
    }


def _fact(fact: Fact) -> tuple[Any, ...]:
    return fact.kind, stored(fact.name), stored(fact.saga_id), fact.no, stored(fact.value), fact.at
