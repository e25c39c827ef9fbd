"""The one connection of a process that commits to a log in PostgreSQL."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import InvariantViolation, LogFailed
from agent_saga.store.port import Stale
from agent_saga.store.rules import judge
from agent_saga_postgres.batch import Sending, stored
from agent_saga_postgres.holdings import Holdings
from agent_saga_postgres.link import Gone, Refused, pause
from agent_saga_postgres.removal import remove, stale
from agent_saga_postgres.schema import look, migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_saga.store.port import Item, Removal, Verdict
    from agent_saga_postgres.link import Link, Server
    from agent_saga_postgres.schema import Found

_ROUNDS_MAX: Final = 20
"""Rounds of one append: another one is needed when an item did not fit, and does now."""
_HEADS_MAX: Final = 10_000
_AGAIN: Final = ("40001", "40P01")
"""SQLSTATEs after which nothing was done, and the same may be tried at once: serialization failure, deadlock."""
_APPEND: Final = "CALL append($1::jsonb, $2, $3, $4, $5, NULL)"
_APPEND_NOW: Final = "SELECT append_now($1::jsonb, $2, $3, NULL)"
_REWRITE: Final = "SELECT append_now($1::jsonb, $2, $3, $4)"
_FLUSH: Final = "SELECT flush($1)"
_STORED: Final = "SELECT pos, body, hash FROM records WHERE saga = $1 AND n > $2 AND n <= $3 ORDER BY n"


class PostgresWriter:
    """Commits items; the caller lets in one thread at a time.

    An answer that does not come is never guessed: the writer connects again, looks whether the records are there, and
    sends those that are not once more. Both is safe because every append states the records that it follows: one that
    arrives late, or twice, does not fit any more. What was written without waiting for the device is remembered until
    it is durable, and sent again when the server lost it in a crash.
    """

    def __init__(self, server: Server, link: Link, found: Found, *, renew: Callable[[], None]) -> None:
        self._server, self._target, self._link, self._renew = server, server.target, link, renew
        self.found = found
        self._channel = channel_of(found.log)
        self._heads: dict[str, bytes] = {}
        self._unsynced: list[Sending] = []
        self._last_pos = 0
        self._alone = False
        self._durable_pos = 0
        self._failed = ""

    @classmethod
    def open(cls, server: Server, *, create: bool, renew: Callable[[], None]) -> PostgresWriter:
        """Connect for writing; make the log first when it is missing and `create` says so.

        Raises:
            LogFailed: it cannot be written.
            LogUnusable: there is something else.
        """
        location = server.target.location
        try:
            link, found = server.patiently(lambda: _opened(server, create=create))
        except (Gone, Refused) as error:
            raise LogFailed(f"the log {location} cannot be opened for writing: {error}") from error
        if found is None:
            link.close()
            raise LogFailed(f"there is no log at {location}")
        return cls(server, link, found, renew=renew)

    def append(self, items: Sequence[Item], *, durable: bool, owner: str | None) -> list[Verdict]:
        """See LogStore.append.

        Args:
            items: as there.
            durable: as there.
            owner: the token of this process, when it has published one; its lease is checked with the commit.
        """
        if self._failed:
            raise LogFailed(self._failed)
        batch = [Sending(item) for item in items]
        for sending in batch:
            sending.check()
        self._until_answered(lambda: self._commit(batch, durable=durable, owner=owner), batch)
        return [sending.verdict for sending in batch if sending.verdict is not None]

    def rewrite(self, item: Item, removals: Sequence[Removal], *, owner: str | None) -> Verdict:
        """See LogStore.rewrite; `scrub` is left to the caller."""
        if self._failed:
            raise LogFailed(self._failed)
        sending = Sending(item)
        sending.check()
        act = functools.partial(self._send_rewriting, sending, removals, owner=owner)
        self._until_answered(lambda: self._commit([sending], durable=True, owner=owner, send=act), [sending])
        self._heads.clear()
        assert sending.verdict is not None
        return sending.verdict

    def sync(self) -> None:
        """See LogStore.sync."""
        if self._failed:
            raise LogFailed(self._failed)
        if self._unsynced:
            self._until_answered(self._flush, [])

    # -- one append -----------------------------------------------------------------------------------------------

    def _commit(
        self,
        batch: list[Sending],
        *,
        durable: bool,
        owner: str | None,
        send: Callable[[], dict[str, Any] | None] | None = None,
    ) -> None:
        for _ in range(_ROUNDS_MAX):
            waiting = [sending for sending in batch if sending.verdict is None]
            if not waiting:
                break
            answer = self._send(waiting, durable=durable, owner=owner) if send is None else send()
            if answer is None:
                break
            if "lease" in answer:
                self._look_after_lease(answer["lease"])
                continue
            self._take(waiting, answer, durable=durable)
            self._explain([sending for sending in waiting if sending.verdict is None])
        else:
            raise InvariantViolation("the database and the rules do not agree on an item")
        if durable and self._unsynced and any(sending in self._unsynced for sending in batch):
            self._flush()  # Some were found in the log after an answer was lost; now they are durable, too.

    def _send(self, waiting: list[Sending], *, durable: bool, owner: str | None) -> dict[str, Any]:
        if any(sending.is_weighed for sending in waiting):
            answer = self._send_weighed(waiting, owner=owner)
            if durable and answer.get("wrote"):
                self._take(waiting, answer, durable=False)
                self._flush()
            return answer
        level = self.found.level if durable else None
        ((answered,),) = self._link.run(_APPEND, self._spell(waiting), owner, self._channel, level, self._alone)
        return _decoded(answered)

    def _send_weighed(self, waiting: list[Sending], *, owner: str | None, again: bool = False) -> dict[str, Any]:
        """Let the rules look at what items require and spend, in the transaction that commits them."""
        link = self._link
        link.run_script("BEGIN")
        try:
            link.run("SELECT pos FROM ends FOR UPDATE")
            holdings = Holdings.read(link, [sending.item for sending in waiting])
            holdings.read_facts(sending.item for sending in waiting)
            for sending in waiting:
                holdings.weigh(sending, again=again)
            ((answered,),) = link.run(_APPEND_NOW, self._spell(waiting), owner, self._channel)
            link.run_script("COMMIT")
        except BaseException:
            if link.open:
                link.run_script("ROLLBACK")
            raise
        return _decoded(answered)

    def _send_rewriting(
        self, sending: Sending, removals: Sequence[Removal], *, owner: str | None
    ) -> dict[str, Any] | None:
        """Commit an item and what it says is removed in one transaction; None when it has a verdict without that."""
        link = self._link
        link.run_script("BEGIN")
        try:
            link.run("SELECT pos FROM ends FOR UPDATE")
            refusal = stale(link, removals)
            if refusal is not None:
                link.run_script("ROLLBACK")
                # It may be stale because it is done already, by a commit whose answer was lost.
                if sending.lost and self._is_there(sending):
                    self._unsynced.append(sending)
                    self._flush()
                else:
                    sending.verdict = refusal
                return None
            Holdings.read(link, [sending.item]).weigh(sending)
            spelled = self._spell([sending])
            ((answered,),) = link.run(_REWRITE, spelled, owner, self._channel, self.found.level)
            answer = _decoded(answered)
            if answer.get("wrote"):
                remove(link, removals)
            link.run_script("COMMIT" if answer.get("wrote") else "ROLLBACK")
        except BaseException:
            if link.open:
                link.run_script("ROLLBACK")
            raise
        return answer

    def _spell(self, waiting: Iterable[Sending]) -> bytes:
        """Return a batch as the server reads it. Of two items of one saga the first one says what the head is."""
        spelled, seen = [], set[str]()
        for sending in waiting:
            saga_id = sending.item.saga_id
            spelled.append(sending.spell(None if saga_id in seen else self._heads.get(saga_id)))
            seen.add(saga_id)
        return b"[" + b",".join(spelled) + b"]"

    def _take(self, waiting: list[Sending], answer: dict[str, Any], *, durable: bool, again: bool = False) -> None:
        written = []
        for sending, answered in zip(waiting, answer["answers"], strict=True):
            if answered is not None and (again or sending.verdict is None):
                pos, head = answered[0], bytes.fromhex(answered[1])
                sending.settle(pos, head)
                self._remember(sending.item, head)
                written.append(sending)
        if answer["pos"] > self._last_pos:
            self._alone = answer["before"] == self._last_pos  # Nobody else has appended since this process did.
            self._last_pos = answer["pos"]
        if not durable:
            self._unsynced += written
        elif written:
            self._are_durable()

    def _remember(self, item: Item, head: bytes) -> None:
        if item.row is not None and item.row.owner is None:
            self._heads.pop(item.saga_id, None)
            return
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        self._heads[item.saga_id] = head

    def _are_durable(self) -> None:
        """A flush takes everything with it that was written before."""
        self._unsynced.clear()
        self._durable_pos = self._last_pos

    def _flush(self) -> None:
        self._link.run(_FLUSH, self.found.level)
        self._are_durable()

    def _explain(self, unfit: list[Sending]) -> None:
        """Say why items did not fit; one that fits by now is left without a verdict, and sent again."""
        for sending in unfit:
            if sending.lost and self._is_there(sending):  # It was still on its way when we looked before.
                self._unsynced.append(sending)
        unfit = [sending for sending in unfit if sending.verdict is None]
        if not unfit:
            return
        holdings = Holdings.read(self._link, [sending.item for sending in unfit])
        for sending in unfit:
            item = sending.item
            sending.verdict = judge(item, holdings)
            current, head = holdings.saga(item.saga_id), self._heads.get(item.saga_id)
            if sending.verdict is None and current is not None and head not in {None, current.head}:
                raise self._stop(
                    f"saga {item.saga_id!r} has other records than this process wrote: somebody changed the log, or "
                    "the server lost some of it (a failover to a replica that was behind?)"
                )
            if isinstance(sending.verdict, Stale):
                self._heads.pop(item.saga_id, None)

    def _look_after_lease(self, state: str) -> None:
        if state == "over":
            self._renew()
            return
        raise self._stop(
            "the lease of this process has ended, and another process has taken it for dead: it may append nothing more"
        )

    # -- a lost connection ----------------------------------------------------------------------------------------

    def _until_answered(self, act: Callable[[], None], batch: list[Sending]) -> None:
        until: float | None = None
        tries = 0
        lost = False
        while True:
            try:
                if lost:
                    self._come_back(batch)
                    lost = False
                act()
                return
            except Gone as gone:
                now, lost = time.monotonic(), True
                until = now + self._target.wait_s if until is None else until
                if now >= until:
                    reason = f"the server of the log {self._target.location} is gone ({gone})"
                    raise self._stop(f"{reason}; what was on its way may be in the log or not") from gone
                pause(until)
            except Refused as refused:
                tries += 1
                if refused.sqlstate not in _AGAIN or tries > _ROUNDS_MAX:
                    raise self._stop(f"a commit to the log {self._target.location} failed: {refused}") from refused

    def _come_back(self, batch: list[Sending]) -> None:
        """Connect again, see that the log is still the one that it was, and find out what became of what was sent.

        Raises:
            Gone: the server is not back yet.
            LogFailed: it lost what it had called durable, or holds another log.
        """
        if not self._link.open:
            self._link = self._server.connect()
        found = look(self._link.run, self._target.schema, self._target.location)
        if found is None or found.log != self.found.log:
            raise self._stop(f"the server at {self._target.location} came back without the log that this process wrote")
        ((pos,),) = self._link.run("SELECT pos FROM ends")
        if pos < self._durable_pos:
            raise self._stop(
                f"the server at {self._target.location} came back with a log that ends at position {pos}; up to "
                f"{self._durable_pos} it had called it durable (a failover to a replica that was behind, or fsync=off?)"
            )
        unsynced, self._unsynced = self._unsynced, []
        try:
            self._restore(unsynced)
        except BaseException:
            self._unsynced = unsynced
            raise
        for sending in batch:
            if sending.verdict is None and self._is_there(sending):
                self._unsynced.append(sending)
            sending.lost = True

    def _restore(self, unsynced: list[Sending]) -> None:
        """Send again what was written, and lost by a crash of the server before it was durable.

        Records that do not fit any more were replaced by another owner's: their saga is that one's now, and the next
        append of this process finds it stale.
        """
        for sending in unsynced:
            if not self._is_there(sending):
                self._heads.pop(sending.item.saga_id, None)
                self._take([sending], self._send_again(sending), durable=True, again=True)

    def _send_again(self, sending: Sending) -> dict[str, Any]:
        if sending.is_weighed:
            answer = self._send_weighed([sending], owner=None, again=True)
            self._link.run(_FLUSH, self.found.level)
            return answer
        spelled = b"[" + sending.spell(None) + b"]"
        ((answered,),) = self._link.run(_APPEND, spelled, None, self._channel, self.found.level, False)
        return _decoded(answered)

    def _is_there(self, sending: Sending) -> bool:
        item = sending.item
        rows = self._link.run(_STORED, stored(item.saga_id), item.count, item.count + len(item.drafts))
        if not sending.is_stored_as([(pos, body) for pos, body, _ in rows]):
            return False
        pos, _, head = rows[-1]
        sending.settle(pos, head)
        self._remember(item, head)
        return True

    def _stop(self, reason: str) -> LogFailed:
        """Nothing later may be called durable in this process."""
        self._failed = reason
        return LogFailed(reason)

    def close(self) -> None:
        """Make everything durable and close.

        Raises:
            LogFailed: what was written could not be made durable.
        """
        try:
            if not self._failed:
                self.sync()
        finally:
            self._link.close()

    def inherited(self) -> object:
        """Return what a forked child must keep referenced and never close: the connection is its parent's."""
        return self._link


def _opened(server: Server, *, create: bool) -> tuple[Link, Found | None]:
    link, target = server.connect(), server.target
    try:
        found = look(link.run, target.schema, target.location)
        if create and (found is None or found.behind):
            migrate(link, target.schema)
            found = look(link.run, target.schema, target.location)
    except BaseException:
        link.close()
        raise
    return link, found


def channel_of(log: str) -> str:
    """Return the channel on which each append to a log is announced."""
    return f"agent_saga_{log}"


def _decoded(answered: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(answered)
    return answer
