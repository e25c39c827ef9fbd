"""What people who used the product as strangers found; each the kind of mistake, not the instance."""

import contextvars
import gc

import pytest

from agent_saga import AgentKit, GateRefused, RollbackIncomplete, compensator
from agent_saga.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::agent_saga.runtime.registry.UnreachableHandler")


@pytest.fixture
def kit():
    kit = AgentKit(log="memory:")
    yield kit
    kit.close()


def test_a_tool_that_changes_its_argument_is_compensated_with_what_it_was_given(kit):
    """A compensation is bound from the arguments of the call, as the log has them."""
    world = {}

    @compensator("strangers.take")
    def take(order):
        del world[order["id"]]

    def put(order):
        world[order["id"]] = 1
        order["id"] = "changed"
        order["lines"].append("more")

    put = kit.wrap(put, effect="compensable", compensate=take.bind(order="kwargs.order"))
    with kit.transaction("t") as saga:
        put({"id": "a", "lines": []})
        saga.roll_back("enough")
    assert saga.report.clean
    assert world == {}


def lost_while_handled():
    try:
        raise TimeoutError("read timed out")
    except TimeoutError:
        raise RuntimeError("payment failed")  # noqa: B904 - without `from` is the case.


def refused_elsewhere_after_it_was_lost():
    try:
        raise TimeoutError("read timed out")
    except TimeoutError as error:
        raise ConnectionRefusedError("the other host") from error


@pytest.mark.parametrize("body", [lost_while_handled, refused_elsewhere_after_it_was_lost])
def test_an_exception_raised_over_a_lost_answer_is_in_doubt(kit, body):
    """What was raised while a timeout was handled says no more about the effect than the timeout did."""

    @compensator(f"strangers.back.{body.__name__}")
    def back():
        raise AssertionError("nothing may be compensated that is in doubt")

    pay = kit.wrap(body, effect="compensable", compensate=back.bind())
    with pytest.raises(RollbackIncomplete) as raised, kit.transaction("t"):
        pay()
    assert [step.tool for step in raised.value.report.in_doubt] == [body.__name__]


def test_a_compensator_that_returns_a_future_has_not_compensated(kit):
    """A future says nothing about its end: the attempt is in doubt."""
    from concurrent.futures import Future

    def submit() -> Future[None]:
        return Future()

    take = compensator("strangers.submit")(submit)
    act = kit.wrap(lambda: None, name="strangers.act", effect="compensable", compensate=take.bind())
    with pytest.raises(RollbackIncomplete) as raised, kit.transaction("t") as saga:
        act()
        saga.roll_back("enough")
    assert [step.tool for step in raised.value.report.in_doubt] == ["strangers.act"]


def test_a_lost_scope_does_not_keep_its_thread(kit):
    """After a scope was lost, the next transaction in its context is a saga of its own."""

    def in_its_context():
        act = kit.wrap(lambda: None, name="strangers.step", effect="irreversible")
        lost = kit.transaction("lost")
        lost.__enter__()
        with pytest.raises(GateRefused):
            act()
        with pytest.warns(ResourceWarning, match="lost"):
            del lost
            gc.collect()
        with kit.transaction("next") as saga:
            pass
        assert saga.report.outcome == "committed"

    contextvars.copy_context().run(in_its_context)


def test_a_replayed_saga_cannot_be_rolled_back(kit):
    """A saga that has committed says so when a rollback is asked of its replay."""
    with kit.transaction("t", key="k"):
        pass
    with kit.transaction("t", key="k") as saga, pytest.raises(UsageError, match="has committed"):
        saga.roll_back("too late")
