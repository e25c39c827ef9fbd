"""Connections that are lost at each message, in each way: the saga goes on, and nothing is done or recorded twice."""

import pytest
from cut_proxy import CUT, LOSE_ANSWER, MUTE, PASS, STALL, CutProxy
from fault_world import make_kit, recover, seen, wait_for_death

from agent_saga.errors import LogFailed, SagaError, SagaSuspended
from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from agent_saga.store.verify import verify


def run(url, tag):
    """A saga that commits, one that rolls back, and a budget-like write between them; returns their reports."""
    kit, put = make_kit(url)
    with kit.transaction("good", key=f"good-{tag}") as good:
        put(item=f"{tag}-a")
        put(item=f"{tag}-b")
    with pytest.raises(ValueError, match="planned"), kit.transaction("bad") as bad:
        put(item=f"{tag}-c")
        raise ValueError("planned")
    kit.close()
    return good.report, bad.report


def records(url):
    log = open_log(url, create=False)
    try:
        report = verify(log)
        return report.sagas, report.records
    finally:
        log.close()


def check(world, tag, reports):
    assert [report.outcome for report in reports] == ["committed", "rolled_back"]
    assert [report.clean for report in reports] == [False, True]
    happened = {line: count for line, count in seen().items() if f" {tag}-" in line}
    assert happened == {f"do {tag}-{x}": 1 for x in "abc"} | {f"undo {tag}-c": 1}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [CUT, LOSE_ANSWER])
def test_a_connection_lost_at_each_message(way, saga_postgres_url, world):
    """PG-1: a request or an answer that is lost, at each message of two sagas, changes nothing of how they end."""
    url = f"{saga_postgres_url}?lease_ttl_s=20&wait_s=20"
    with CutProxy(url, lambda number: PASS) as proxy:
        check(world, "quiet", run(proxy.url, "quiet"))
        total = proxy.requests
    sagas, count = records(url)
    each = count
    for at in range(1, total + 1):
        with CutProxy(url, lambda number, at=at: way if number == at else PASS) as proxy:
            try:
                reports = run(proxy.url, f"n{at}")
            except (SagaError, SagaSuspended):
                assert at <= 4, "only a server that was never reached is not waited for"
                continue
        check(world, f"n{at}", reports)
        now = records(url)
        assert now == (sagas + 2, count + each)
        sagas, count = now


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", [STALL, MUTE])
@pytest.mark.parametrize("at", [25, 35, 45])
def test_a_network_that_swallows_what_it_is_given(at, way, saga_postgres_url, world):
    """PG-2: no answer in time is a lost connection, whatever the server got; the next one asks what became of it."""
    url = f"{saga_postgres_url}?lease_ttl_s=20&wait_s=1"
    with CutProxy(url, lambda number: way if number == at else PASS) as proxy:
        check(world, "slow", run(proxy.url, "slow"))
        assert proxy.requests > at
    assert records(url)[0] == 2


@pytest.mark.timeout(120)
def test_a_server_that_does_not_come_back_fails_closed(saga_postgres_url, world):
    """PG-3: when the wait is over nothing is called committed, no effect starts, and another process finishes."""
    url = f"{saga_postgres_url}?lease_ttl_s=1&wait_s=1"
    gone = []
    with CutProxy(url, lambda number: CUT if gone else PASS) as proxy:
        kit, put = make_kit(proxy.url)
        with pytest.raises((LogFailed, SagaSuspended)), kit.transaction("cut"):
            put(item="x-1")
            gone.append(True)
            put(item="x-2")
        kit.close()
    assert seen() == {"do x-1": 1}
    store = open_log(url, create=False)
    (row,) = store.rows(Query(unsealed=True))
    wait_for_death(store, row.row.owner)
    recover(store)
    store.close()
    assert seen() == {"do x-1": 1, "undo x-1": 1}
