"""The contract of a log, as tests. Rule ids: P-n."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agent_saga.store.port import Query, Stale
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import Scribe, dump, everything, load, saga_id
from pytest_agent_saga.conformance.store_case import StoreCase
from pytest_agent_saga.conformance.store_chains import ChainRules
from pytest_agent_saga.conformance.store_child import STEPS
from pytest_agent_saga.conformance.store_facts import FactRules
from pytest_agent_saga.conformance.store_removals import RemovalRules
from pytest_agent_saga.conformance.suite import rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_saga.store.port import LogStore
    from pytest_agent_saga.conformance.suite import Variant

PERSISTS: Final = "persists"
"""What was committed is there when the log is opened again."""
PROCESSES: Final = "processes"
"""Several processes may write the log, and one may die at any time: `LogStoreSuite.url` names it for them."""
PROCESS_S: Final = 60.0


class LogStoreSuite(ChainRules, FactRules, RemovalRules):
    """Subclass it, open your log in `open`, and run pytest. See `docs/conformance.md`.

    Attributes:
        capabilities: what the log can do, beyond what every log must: `persists`, `processes`.
        missing: for each of these that it cannot do, why.
        death_seen_s: how long after its death an owner may still count as alive, where a lease proves that it lives.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({PERSISTS, PROCESSES})
    missing: ClassVar[dict[str, str]] = {}
    death_seen_s: ClassVar[float] = 0.0

    def open(self, folder: Path) -> LogStore:
        """Open the log of this folder; the first time there is none, and it is made."""
        raise NotImplementedError

    def url(self, folder: Path) -> str:
        """Return the URL by which another process opens the log of this folder (`processes`)."""
        raise NotImplementedError

    def declared(self) -> frozenset[str]:
        """See Suite.declared."""
        return self.capabilities

    def optional(self) -> frozenset[str]:
        """See Suite.optional."""
        return frozenset({PERSISTS, PROCESSES})

    def gaps(self) -> dict[str, str]:
        """See Suite.gaps."""
        return self.missing

    @contextlib.contextmanager
    def case(self, folder: Path, variant: Variant) -> Iterator[StoreCase]:
        """See Suite.case."""
        made = StoreCase(folder, self.open)
        try:
            yield made
        finally:
            made.close()

    # -- after the end of its process -------------------------------------------------------------------------------

    @rule(PERSISTS)
    def test_a_reopened_log_is_the_same(self, case: StoreCase) -> None:
        """P-101: records, payloads, rows, leaves, facts, keys and amendments are the same when opened again."""
        before = dump(everything(case.store))
        kinds = ("resource", "spend", "approval", "halt", "drain", "quarantine", "key")
        facts = [case.store.facts(kind) for kind in kinds]
        assert any(facts)
        assert before == dump(case.reopen())
        assert facts == [case.store.facts(kind) for kind in kinds]
        verify(case.store)

    @rule(PERSISTS)
    def test_a_reopened_log_goes_on(self, case: StoreCase) -> None:
        """P-102: positions, leaves and epochs go on where they were; a closed owner is dead."""
        owner = case.store.owner()
        first = Scribe(case.store, 1, owner=owner).open().step()
        Scribe(case.store, 2).open().step().end()
        store = case.reopen()
        proof = store.prove_dead(owner)
        assert proof is not None
        proof.close()
        new = Scribe(store, 1, owner="owner-2")
        new.view = load(store, first.id).view
        new.write(new.fact("claimed", owner="owner-2", epoch=2), claims=True)
        first.store = store
        assert isinstance(first.put(first.item(first.intent(2))), Stale)
        new.roll_back()
        assert [record.pos for record in store.tail()] == list(range(1, len(store.tail()) + 1))
        assert store.row(first.id).leaf == 2
        verify(store)

    # -- several processes ------------------------------------------------------------------------------------------

    @rule(PROCESSES)
    def test_processes_share_a_log(self, case: StoreCase) -> None:
        """P-103: processes that write at the same time lose nothing, and keep each chain in order."""
        with self._children(case, [("write", 1), ("write", 2)]) as children:
            for child in children:
                assert _heard(child) == ["ready"]
            for child in children:
                _tell(child)
            for child in children:
                assert _heard(child) == ["done"]
        assert verify(case.store).records == 2 * (2 + 2 * STEPS)
        assert [case.store.row(saga_id(number)).count for number in (1, 2)] == [2 + 2 * STEPS] * 2

    @rule(PROCESSES)
    def test_a_killed_process_leaves_what_it_wrote(self, case: StoreCase) -> None:
        """P-104: what an append returned for survives SIGKILL; only then is its owner provably dead, and replaced."""
        with self._children(case, [("die", 1)]) as (child,):
            _, owner, count = _heard(child)
            assert case.store.row(saga_id(1)).count == int(count)
            assert case.store.prove_dead(owner) is None
            _tell(child)
            child.wait(PROCESS_S)
        assert case.store.row(saga_id(1)).count == int(count)
        (row,) = case.store.rows(Query(unsealed=True))
        assert row.row.owner == owner
        proof = self._proof(case.store, owner)
        assert proof is not None
        new = Scribe(case.store, 1, owner=case.store.owner())
        new.view = load(case.store, saga_id(1)).view
        new.write(new.fact("claimed", owner=new.owner, epoch=2), claims=True)
        proof.forget()
        proof.close()
        verify(case.store)

    def _proof(self, store: Any, owner: str) -> Any:
        until = time.monotonic() + self.death_seen_s
        while (proof := store.prove_dead(owner)) is None and time.monotonic() < until:
            time.sleep(0.02)  # A lease runs out by itself: there is nothing that would tell us.
        return proof

    @contextlib.contextmanager
    def _children(self, case: StoreCase, tasks: list[tuple[str, int]]) -> Iterator[list[Any]]:
        command = [sys.executable, "-m", "pytest_agent_saga.conformance.store_child", self.url(case.folder)]
        started = [
            subprocess.Popen(  # noqa: S603 - our own module.
                [*command, task, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for task, number in tasks
        ]
        try:
            yield started
            for child in started:
                child.wait(PROCESS_S)
        finally:
            for child in started:
                child.kill()
                child.wait()
                for stream in (child.stdin, child.stdout):
                    if stream is not None:
                        stream.close()


def _heard(child: Any) -> list[str]:
    return str(child.stdout.readline()).split()


def _tell(child: Any) -> None:
    child.stdin.write("go\n")
    child.stdin.flush()
