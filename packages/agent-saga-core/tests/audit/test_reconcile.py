"""Reconciliation: probes and verifiers are asked, and no answer is no confirmation. Rule ids: RC-n."""

import pytest

from agent_saga import AgentKit, Landed, NotLanded, Unknowable, compensator
from agent_saga.audit.prune import prune
from agent_saga.audit.reconcile import reconcile

WORLD: dict[str, object] = {}


def stands(key, kwargs):
    answer = WORLD["probe"]
    if isinstance(answer, Exception):
        raise answer
    return answer


def is_back(charge: str) -> object:
    return WORLD["verify"]


def pay_now(amount: int) -> dict:
    return {"id": "ch_1"}


@compensator("reconcile.refund", idempotent=True, verify=is_back)
def refund(charge: str) -> None:
    """Gives it back."""


@pytest.fixture
def kit():
    made = AgentKit(log="memory:")
    yield made
    made.close()


def verdicts(kit, *, fail=False, probe=stands):
    pay = kit.wrap(
        pay_now,
        name="pay",
        effect="compensable",
        compensate=refund.bind(charge="result.id"),
        probe=probe,
    )
    WORLD["verify"] = True
    try:
        with kit.transaction("pay"):
            pay(amount=5)
            if fail:
                raise ValueError("no")
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Landed({"id": "ch_1"}), "confirmed"),
        (NotLanded(), "drift"),
        (Unknowable("down"), "unverifiable"),
        (OSError("down"), "unverifiable"),
        ("yes", "unverifiable"),
    ],
)
def test_a_standing_effect(kit, answer, verdict):
    """RC-1: a probe confirms or contradicts; what is no answer confirms nothing."""
    verdicts(kit)
    WORLD["probe"] = answer
    assert [one.verdict for one in reconcile(kit.writer().store)] == [verdict]


@pytest.mark.parametrize(("answer", "verdict"), [(True, "confirmed"), (False, "drift"), (None, "unverifiable")])
def test_a_compensated_effect(kit, answer, verdict):
    """RC-2: the compensator's verifier is asked about what was compensated."""
    verdicts(kit, fail=True)
    WORLD["verify"] = answer
    assert [one.verdict for one in reconcile(kit.writer().store)] == [verdict]


def test_without_a_probe_or_values(kit):
    """RC-3: without a probe, or without the arguments, nobody can be asked."""
    verdicts(kit, probe=None)
    verdicts(kit)
    WORLD["probe"] = Landed()
    store = kit.writer().store
    assert sorted(one.verdict for one in reconcile(store)) == ["confirmed", "unverifiable"]
    prune(store, before_ns=10**19, by="ann", payloads_only=True)
    assert {one.verdict for one in reconcile(store) if one.tool} == {"unverifiable"}
