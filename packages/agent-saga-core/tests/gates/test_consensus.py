"""Consensus: enough independent yeses, and nothing but True is one."""

import asyncio
import threading

import pytest
from gate_cases import Facts, allowed, asked, call, refused

from agent_saga.errors import DeclarationError
from agent_saga.gates import Consensus, when


def yes(proposed):
    return True


def also_yes(proposed):
    return proposed.tool == "pay"


async def async_yes(proposed):
    await asyncio.sleep(0)
    return True


def no(proposed):
    return False


def run(rule, proposed=None):
    async def main():
        return await rule.decide(proposed or call(), Facts())

    return asyncio.run(main())


def test_three_of_three_let_a_large_transfer_through():
    """GATE: 3 of 3, sync and async, before a large transfer, and nobody is asked about a small one."""
    rule = when(Consensus(tool="pay", verifiers=(yes, also_yes, async_yes)), argument="amount", at_least=1000)
    allowed(run(rule, call(amount="1e9")))
    allowed(rule.decide(call(amount=999), Facts()))


class Blocked:
    """A verifier that answers when a test lets it."""

    def __init__(self):
        self.may_go = threading.Event()
        self.gone = threading.Event()

    def __call__(self, proposed):
        self.may_go.wait(60)
        self.gone.set()
        return True


async def hanging(proposed):
    await asyncio.Event().wait()


class Truthy:
    def __bool__(self):
        return True

    def __eq__(self, other):
        return True

    __hash__ = None


def raising(proposed):
    raise ValueError("no idea")


def exiting(proposed):
    raise SystemExit(0)


async def async_raising(proposed):
    raise KeyError("x")


def later(proposed):
    """Return an awaitable, though it is no async function itself."""
    return async_raising(proposed)


@pytest.mark.parametrize(
    ("verifier", "why"),
    [
        (no, "no"),
        (raising, "ValueError: no idea"),
        (exiting, "SystemExit"),
        (async_raising, "KeyError"),
        (hanging, "no answer within"),
        (lambda proposed: 1, "returned 1"),
        (lambda proposed: "yes", "returned 'yes'"),
        (lambda proposed: None, "returned None"),
        (lambda proposed: Truthy(), "returned"),
        (later, "KeyError"),
    ],
    ids=["no", "raises", "exits", "raises async", "hangs", "1", "text", "None", "truthy", "lambda of async"],
)
def test_whatever_is_not_true_is_a_no(verifier, why):
    """GATE: a verifier that raises, hangs or returns anything but True has not agreed."""
    rule = Consensus(tool="pay", verifiers=(yes, also_yes, verifier), timeout_s=0.2)
    reason = refused(run(rule))
    assert "2 of 3 verifiers agreed, 3 must" in reason
    assert why in reason


def test_a_thread_that_hangs_is_a_no():
    """GATE: a sync verifier that does not answer in time has not agreed."""
    blocked = Blocked()
    try:
        assert "no answer" in refused(run(Consensus(tool="pay", verifiers=(yes, blocked), timeout_s=0.1)))
    finally:
        blocked.may_go.set()
        assert blocked.gone.wait(60)


def test_the_answer_comes_as_soon_as_it_is_certain():
    """GATE: k of n does not wait for those whose answer changes nothing."""
    allowed(run(Consensus(tool="pay", verifiers=(yes, also_yes, hanging), needed=2, timeout_s=3600)))
    refused(run(Consensus(tool="pay", verifiers=(no, hanging, also_yes), needed=3, timeout_s=3600)))


def test_each_verifier_has_its_own_arguments():
    """GATE: a verifier that changes what it was shown changes neither the call nor what others see."""
    seen = []

    def tampering(proposed):
        proposed.kwargs["order"]["amount"] = 1
        return True

    def looking(proposed):
        seen.append(proposed.kwargs["order"]["amount"])
        return True

    proposed = call(order={"amount": 10**6})
    allowed(run(Consensus(tool="pay", verifiers=(tampering, looking)), proposed))
    assert seen == [10**6]
    assert proposed.kwargs == {"order": {"amount": 10**6}}


def test_what_cannot_be_copied_is_refused():
    """GATE: arguments that cannot be shown to each verifier alone are refused."""
    assert "cannot be copied" in refused(
        run(Consensus(tool="pay", verifiers=(yes,), then="allow"), call(lock=threading.Lock()))
    )


def test_a_disagreement_can_be_asked_about():
    """GATE: then="ask" turns a missing consensus into a question."""
    assert "0 of 1" in asked(run(Consensus(tool="pay", verifiers=(no,), then="ask"))).reason


@pytest.mark.parametrize(
    "options",
    [
        {"verifiers": ()},
        {"verifiers": (yes, yes)},
        {"verifiers": (yes,), "needed": 2},
        {"verifiers": (yes,), "needed": 0},
        {"verifiers": ("yes",)},
        {"verifiers": (yes,), "timeout_s": 0},
    ],
)
def test_a_consensus_that_cannot_work_is_refused_where_it_is_written(options):
    """GATE: the same function twice is not two verifiers."""
    with pytest.raises(DeclarationError):
        Consensus(tool="pay", **options)
