"""Logs that are wrong in one way each, and the rules that must notice."""

from dataclasses import replace

from agent_saga.store import memory
from agent_saga.store.memory import MemoryLog
from agent_saga.store.port import Committed, FactsChange, Item, Stale, StoredRow, Taken


def changed(item, **fields):
    return Item(**{name: getattr(item, name) for name in item.__slots__} | fields)


def changed_row(stored, **fields):
    return StoredRow(**{name: getattr(stored, name) for name in stored.__slots__} | fields)


class Mutant(MemoryLog):
    """As the memory log; `seen` is what it does to items, one by one."""

    def seen(self, item):
        return item

    def append(self, items, *, durable):
        return super().append([self.seen(item) for item in items], durable=durable)

    def current(self, item):
        return self._state.currents.get(item.saga_id)


class LosesTheTail(Mutant):
    """The last record of a saga's end never arrives, and the answer says that it did."""

    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        for item in items:
            if item.row is not None and item.row.sealed and len(self._state.chains.get(item.saga_id, ())) > 1:
                self._state.chains[item.saga_id].pop()
        return verdicts


class IgnoresTheEpoch(Mutant):
    """A replaced owner goes on writing."""

    def seen(self, item):
        known = self.current(item)
        if known is None or item.claims:
            return item
        return changed(item, epoch=known.epoch, row=None)


class IgnoresTheCount(Mutant):
    """Whoever comes may append, whatever they saw."""

    def seen(self, item):
        known = self.current(item)
        return item if known is None or not item.count else changed(item, count=known.count)


class AppendsTwice(Mutant):
    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        if self._state.entries:
            self._state.entries.append(self._state.entries[-1])
        return verdicts


class ReadsStaleRows(Mutant):
    """A reader is shown the row before the last one."""

    def __init__(self):
        super().__init__()
        self.shown = {}

    def row(self, saga_id):
        now = super().row(saga_id)
        return self.shown.setdefault(saga_id, now)


class Reorders(Mutant):
    """The tail comes saga by saga."""

    def tail(self, *, after_pos=0, limit=1000):
        return sorted(super().tail(after_pos=after_pos, limit=limit), key=lambda one: (one.saga_id, one.n))


class ForgetsFacts(Mutant):
    def seen(self, item):
        return changed(item, facts=None)


class KeepsFacts(Mutant):
    """What a saga no longer holds stays held."""

    def seen(self, item):
        return item if item.facts is None else changed(item, facts=FactsChange(added=item.facts.added))


class ForgetsFactsOfAmendments(Mutant):
    def seen(self, item):
        if item.amended is None:
            return item
        fields = {name: getattr(item.amended, name) for name in item.amended.__slots__} | {"facts": None}
        return changed(item, amended=type(item.amended)(**fields))


class RequiresNothing(Mutant):
    def seen(self, item):
        return changed(item, requires=())


class MarksNothing(Mutant):
    """A refused intent looks like one that may start."""

    def append(self, items, *, durable):
        keep = memory.mark_refused
        memory.mark_refused = lambda item, reason: None
        try:
            return super().append(items, durable=durable)
        finally:
            memory.mark_refused = keep


class RefusesWithFacts(Mutant):
    """A refused intent spends all the same."""

    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        for item, verdict in zip(items, verdicts, strict=True):
            if not isinstance(verdict, Committed | Stale | Taken):
                self._state.change_facts(item.facts)
        return verdicts


class AllOrNothing(Mutant):
    """One stale item fails its whole batch."""

    def append(self, items, *, durable):
        from agent_saga.store.rules import judge

        with self._lock:
            first = [judge(item, self._state) for item in items[:2]]
        bad = next((one for one in first if one is not None), None)
        return [bad] * len(items) if bad is not None else super().append(items, durable=durable)


class GivesKeysTwice(Mutant):
    """A key that is held opens another saga."""

    def append(self, items, *, durable):
        keys, self._state.keys = self._state.keys, {}
        try:
            return super().append(items, durable=durable)
        finally:
            self._state.keys = {**keys, **self._state.keys}


class TakesAnyIncarnation(Mutant):
    def seen(self, item):
        known = None if item.row is None or item.row.key is None else self._state.newest(item.row.key)
        if item.count == 0 and known is not None and item.row is not None:
            known.incarnation = item.row.incarnation - 1
        return item


class LeavesLeavesOpen(Mutant):
    """A sealed chain takes more records."""

    def append(self, items, *, durable):
        held = {}
        for item in items:
            known = self.current(item)
            if known is not None and known.leaf is not None:
                held[item.saga_id], known.leaf = known.leaf, None
        try:
            return super().append(items, durable=durable)
        finally:
            for saga_id, leaf in held.items():
                self._state.currents[saga_id].leaf = leaf


class NumbersLeavesByItem(Mutant):
    """Leaves are numbered with holes."""

    def seen(self, item):
        self._state.leaves += 1
        return item


class LeavesAmendedRows(Mutant):
    """The row of the saga that is amended stays as it was."""

    def seen(self, item):
        if item.amended is None:
            return item
        known = self._state.stored_rows[item.amended.saga_id]
        fields = {name: getattr(item.amended, name) for name in item.amended.__slots__} | {"row": known}
        return changed(item, amended=type(item.amended)(**fields))


class AmendsUnseen(Mutant):
    """An amendment that missed another one is taken."""

    def seen(self, item):
        if item.amended is None:
            return item
        known = self._state.currents[item.amended.saga_id]
        now = {"epoch": known.epoch, "count": known.count, "amendments": known.amendments}
        fields = {name: getattr(item.amended, name) for name in item.amended.__slots__} | now
        return changed(item, amended=type(item.amended)(**fields))


class ForgetsAmendments(Mutant):
    def amendments(self, saga_id):
        return super().amendments(saga_id)[1:]


class CountsAmendmentsWrong(Mutant):
    def row(self, saga_id):
        found = super().row(saga_id)
        return None if found is None else changed_row(found, amendments=0)


class ListsOldestFirst(Mutant):
    def rows(self, query):
        return super().rows(query)[::-1]


class IgnoresTheLimit(Mutant):
    def records(self, saga_id, *, after_n=0, limit=1000):
        return super().records(saga_id, after_n=after_n)


class SweepsSealedOnes(Mutant):
    """A sweep costs what is stored, not what is open."""

    def rows(self, query):
        if query.unsealed:
            self._state.unsealed.update(dict.fromkeys(self._state.currents))
        return super().rows(query)


class HidesNeedyOnes(Mutant):
    def rows(self, query):
        return [] if query.needs_human else super().rows(query)


class DropsPayloads(Mutant):
    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        entries = self._state.entries
        for number, (pos, saga_id, n, body, _payload, digest) in enumerate(entries):
            entries[number] = (pos, saga_id, n, body, None, digest)
            self._state.chains[saga_id][n - 1] = entries[number]
        return verdicts


class ForgetsWhoItIs(Mutant):
    """Each question gets another owner."""

    def owner(self):
        self._owner += "x"
        return super().owner()


class DeclaresItselfDead(Mutant):
    def prove_dead(self, owner):
        self._owner, keep = "", self._owner
        try:
            return super().prove_dead(owner)
        finally:
            self._owner = keep


class ProvesToEverybody(Mutant):
    def prove_dead(self, owner):
        self._proved.clear()
        return super().prove_dead(owner)


class WritesHalf(Mutant):
    """An append that is interrupted leaves what it had by then."""

    def append(self, items, *, durable):
        entries = len(self._state.entries)
        try:
            return super().append(items, durable=durable)
        except BaseException:
            if self._state.entries[:entries]:
                self._state.entries.append(self._state.entries[-1])
            raise


class TellsAnotherHead(Mutant):
    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        return [Committed(one.pos, b"\0" * 32) if isinstance(one, Committed) else one for one in verdicts]


class AlwaysTakes(Mutant):
    """What is stale is committed, as far as the answer goes."""

    def append(self, items, *, durable):
        verdicts = super().append(items, durable=durable)
        return [Committed(1, b"\0" * 32) if isinstance(one, Stale) else one for one in verdicts]


class SeesNoHalts(Mutant):
    def halts(self):
        return []


class SeesOldHalts(Mutant):
    """The halts are those of the first question."""

    known = None

    def halts(self):
        if self.known is None:
            self.known = super().halts()
        return self.known


class HaltsForAnything(Mutant):
    def halts(self):
        return sorted(fact for kind in list(self._state.facts) for fact in self.facts(kind))


class OpensTwice(Mutant):
    """An id that is in the log is opened again, over what was there."""

    def seen(self, item):
        if item.count == 0:
            self._state.currents.pop(item.saga_id, None)
        return item


class KeepsWhatWasRemoved(Mutant):
    """It says that it was removed, and keeps it."""

    def rewrite(self, item, removals):
        return super().append([item], durable=True)[0]


class RemovesToTheWrongRow(Mutant):
    """Whoever comes may remove, whatever they saw."""

    def rewrite(self, item, removals):
        rows = [self.row(one.row.saga_id) or one.row for one in removals]
        return super().rewrite(item, [replace(one, row=row) for one, row in zip(removals, rows, strict=True)])


class RemovesWithTheRow(Mutant):
    """A key that was used is free again."""

    def rewrite(self, item, removals):
        verdict = super().rewrite(item, removals)
        for removal in removals:
            if removal.records and isinstance(verdict, Committed):
                self._state.keys.pop(removal.row.row.key, None)
        return verdict


class Persisting(MemoryLog):
    """A log that is still there when it is opened again: what the mutants of reopening begin with."""

    logs = {}  # noqa: RUF012 - the disk.

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        if folder in self.logs:
            self._state = self.logs[folder]

    def close(self):
        self.logs[self.folder] = self._state


class LosesTheTailAtTheEnd(Persisting):
    """What was written last is gone when the log is opened again."""

    def close(self):
        if self._state.entries:
            _, saga_id, *_ = self._state.entries.pop()
            self._state.chains[saga_id].pop()
        super().close()


class LosesFactsAtTheEnd(Persisting):
    def close(self):
        self._state.facts = {}
        super().close()


class LosesLeavesAtTheEnd(Persisting):
    """The numbers of leaves begin again."""

    def close(self):
        self._state.leaves = 0
        super().close()


class RemembersWhatWasRemoved(Persisting):
    """Payloads that were removed are there again when the log is opened again."""

    before = {}  # noqa: RUF012 - the backup.

    def rewrite(self, item, removals):
        for removal in removals:
            self.before.setdefault(self.folder, {})[removal.row.saga_id] = self._state.chains[removal.row.saga_id]
        return super().rewrite(item, removals)

    def close(self):
        self._state.chains.update(self.before.get(self.folder, {}))
        super().close()


class LosesEpochsAtTheEnd(Persisting):
    """After a restart the replaced owner may write again."""

    def append(self, items, *, durable):
        if getattr(self._state, "restarted", False):
            items = [IgnoresTheEpoch.seen(self, IgnoresTheCount.seen(self, item)) for item in items]
        return super().append(items, durable=durable)

    def current(self, item):
        return self._state.currents.get(item.saga_id)

    def close(self):
        self._state.restarted = True
        super().close()


MUTANTS = [
    cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, MemoryLog) and cls not in {MemoryLog, Mutant, Persisting}
]
