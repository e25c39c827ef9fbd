"""A server that is killed and started again at each message: what it called durable is there, and sagas go on."""

import pytest
from cut_proxy import PASS, CutProxy
from fault_world import seen
from test_lost_answers import check, records, run

from agent_saga.errors import SagaError, SagaSuspended


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_killed_at_each_message(mortal, mortal_url, world):
    """PG-4: SIGKILL of every process of the server before each message of two sagas, and a restart."""
    url = f"{mortal_url}?lease_ttl_s=20&wait_s=30"
    with CutProxy(url, lambda number: PASS) as proxy:
        check(world, "quiet", run(proxy.url, "quiet"))
        total = proxy.requests
    sagas, count = records(url)
    each = count
    for at in range(1, total + 1):

        def decide(number, at=at):
            if number == at:
                mortal.kill()
                mortal.start()
            return PASS

        with CutProxy(url, decide) as proxy:
            try:
                reports = run(proxy.url, f"k{at}")
            except (SagaError, SagaSuspended):
                assert at <= 4, "only a server that was never reached is not waited for"
                continue
        check(world, f"k{at}", reports)
        now = records(url)
        assert now == (sagas + 2, count + each)
        sagas, count = now
    assert sum(seen().values()) >= 4 * (total - 4)
