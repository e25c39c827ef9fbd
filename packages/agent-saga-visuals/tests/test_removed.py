"""Pictures of logs from which something was removed on purpose."""

from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.store.memory import MemoryLog
from agent_saga_visuals.chain import chain_damage, links
from agent_saga_visuals.fleet import cells
from agent_saga_visuals.outcomes import tallies
from pytest_agent_saga.conformance.sagas import committed


def test_a_redacted_chain_is_not_broken():
    """A link whose values were redacted, with a record that says so, is intact."""
    store = MemoryLog()
    saga = committed(store, 1)
    assert redact(store, saga.id, "kwargs", by="ann").values
    found = links(store, saga.id)
    assert chain_damage(store, saga.id, found) == []


def test_a_pruned_saga_is_not_drawn():
    """What was pruned is neither drawn as damaged nor counted."""
    store = MemoryLog()
    committed(store, 1)
    prune(store, before_ns=10**19, by="ann")
    kept = committed(store, 2)
    assert "damaged" not in {cell.word for cell in cells(store, limit=50)}
    assert kept.id in {cell.saga_id for cell in cells(store, limit=50)}
    assert tallies(store, limit=50)[1] == 0
