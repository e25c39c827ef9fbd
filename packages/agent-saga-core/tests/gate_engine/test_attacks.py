"""What somebody would try against the gate, end to end. None gets through, none hangs, each refusal says why.

More is in test_approvals (A), test_budgets (B), test_planted (F) and test_gate_processes (G). Rule ids: X-n.
"""

import asyncio
import contextlib
import threading
from decimal import Decimal

import apsw
import pytest
from gate_world import Says, make_kit, note, refund, world

from agent_saga import AgentKit, Allow, Ask, GateRefused, Refuse, SagaSuspended
from agent_saga.errors import CorruptLog, SagaRolledBack, StoreError
from agent_saga.gates import AllowTools, Bounds, Budget, DenyTools, Quorum, RateLimit
from agent_saga.runtime import decision, operators
from agent_saga.store.verify import verify

UNDO = {"customer": "kwargs.order", "amount": "kwargs.order"}
CAREFUL = (
    Bounds(tool="pay", argument="order.lines.*.amount", min=0, max=100, total=True),
    Budget(name="spend", limit=1000, amount="order.lines.*.amount", tool="pay"),
)


class Sly(int):
    """A number that says it is small."""

    def __gt__(self, other):
        return False

    __ge__ = __lt__ = __le__ = __gt__

    def __str__(self):
        return "1"

    __repr__ = __str__


class SlyText(str):  # noqa: SLOT000 - as somebody would write it.
    """A text that reads as another one."""

    def __str__(self):
        return "1"

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class SlyDict(dict):
    """A mapping that shows one amount and holds another one."""

    def __getitem__(self, name):
        return 1

    def get(self, name, default=None):
        return 1

    def values(self):
        return [1]


def pay_kit(log, *policies, **options):
    kit = make_kit(log, *policies, **options)
    kit.pay = kit.wrap(
        lambda order: note(f"pay {order}"), name="pay", effect="compensable", compensate=refund.bind(**UNDO)
    )
    return kit


AMOUNTS = [
    *("1e9", "1E+9", Decimal("1e9"), 10**9, 1e9, "nan", float("nan"), Decimal("nan"), Decimal("sNaN"), "inf", "-inf"),
    *(float("inf"), Decimal("-Infinity"), -5, "-5", -0.01, Decimal(-1), True, False, None, "", " 5", "5 ", "1_0"),
    *("1,0", "\uff15", "\u0665", "0x10", b"5", [5], {"amount": 5}, (5,), 5 + 0j, object(), Sly(5000), SlyText("5000")),
    *("5" * 5000, "1e999999999", Decimal("1e-999999"), 101, "100.0000000000000000000000000001"),
]


@pytest.mark.parametrize("amount", AMOUNTS, ids=range(len(AMOUNTS)))
def test_no_odd_amount_gets_through(amount):
    """X-1: nested, among good ones; the refusal names the argument or the limit."""
    kit = pay_kit("memory:", *CAREFUL)
    with kit.transaction("t"), pytest.raises(GateRefused, match=r"order\.lines|spend"):
        kit.pay({"lines": [{"amount": 1}, {"amount": amount}]})
    assert world() == []
    kit.close()


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"lines": []},
        {"lines": [{}]},
        {"lines": [{"amount": 60}, {"amount": 60}]},
        {"lines": [{"amount": 1}, {"Amount": 5000}]},
        {"lines": SlyDict(a=SlyDict(amount=5000))},
        {"lines": [SlyDict(amount=5000)]},
        SlyDict(lines=[{"amount": 5000}]),
        {"lines": iter([{"amount": 5000}])},
        {"lines": "amount"},
        None,
    ],
    ids=range(11),
)
def test_no_odd_shape_gets_through(order):
    """X-2: what is missing, hidden, or shows one thing and holds another is refused."""
    kit = pay_kit("memory:", *CAREFUL)
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.pay(order)
    assert world() == []
    kit.close()


@pytest.mark.parametrize(
    "name", ["p\u0430y", "Pay", "PAY", "pay ", "p\u200bay", "\uff50ay", "pa\u0443", "p\u00e1y", "pay\u0301"]
)
def test_no_tool_that_looks_like_another_gets_through(name):
    """X-3: neither past a bound, nor on to an allow list, nor off a deny list."""
    for policy in (Bounds(tool="pay", argument="amount", max=5), AllowTools("pay"), DenyTools("pay")):
        kit = AgentKit("memory:", policies=[policy])
        tool = kit.wrap(lambda amount: note("paid"), name=name, effect="compensable", compensate=lambda call: None)
        with kit.transaction("t"), pytest.raises(GateRefused):
            tool(5000)
        kit.close()
    assert world() == []


class Hangs:
    def __init__(self, how):
        self.how, self.ended = how, threading.Event()
        if how == "in its thread":
            self.decide_within_s = 0.05

    def decide(self, call, saga):
        return asyncio.sleep(3600) if self.how == "async" else self.ended.wait(30)


@pytest.mark.parametrize("how", ["async", "in its thread"])
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_policy_that_hangs_refuses(monkeypatch, how, driver):
    """X-4: after its time, in both drivers; the saga goes on."""
    monkeypatch.setattr(decision, "POLICY_S_MAX", 0.05)
    policy = Hangs(how)
    kit = pay_kit("memory:", policy)

    async def run():
        async with kit.transaction("t"):
            with pytest.raises(GateRefused, match="no answer in time"):
                await kit.amail("ann")

    try:
        if driver == "async":
            asyncio.run(run())
        else:
            with kit.transaction("t"), pytest.raises(GateRefused, match="no answer in time"):
                kit.charge("ann", 1)
    finally:
        policy.ended.set()
        kit.close()
    assert world() == []


NONSENSE = [
    *(None, True, 1, "allow", Allow, object(), [Allow()], Allow(requires="x"), Allow(requires=(5,))),
    *(Ask("?", quorum=0), Ask("?", quorum=True), Ask("?", expires_s=float("nan")), Ask("?", expires_s=-1)),
]


@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_refuses(answer):
    """X-5: what is no decision, or cannot be acted on, is a refusal that shows it."""
    kit = pay_kit("memory:", Says(lambda call: answer), approver=lambda call: True)
    with kit.transaction("t"), pytest.raises(GateRefused, match="returned|failed"):
        kit.charge("ann", 1)
    assert world() == []
    kit.close()


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError, StopIteration, TimeoutError, GateRefused])
def test_a_policy_that_raises_refuses(error):
    """X-6: whatever it is, before any other policy could let the call pass."""

    def decide(call):
        raise error("broken")

    kit = pay_kit("memory:", Says(decide), Says(Allow()))
    with kit.transaction("t"), pytest.raises(GateRefused, match="broken|in time"):
        kit.charge("ann", 1)
    assert world() == []
    kit.close()


PLANTS = [
    "INSERT INTO facts VALUES('approval', 'x:a1', 'x', 0, 'approved', 9000000000000000000)",
    "UPDATE facts SET value = 'approved' WHERE kind = 'approval'",
    "INSERT INTO facts VALUES('spend', 'budget:spend', 'x', 1, '-1000', 9000000000000000000)",
    "INSERT INTO facts VALUES('total', 'budget:spend', 'x', 1, '0', 1)",
    "INSERT INTO facts VALUES('resource', 'x', 'x', 0, '', 0)",
    "INSERT INTO keys VALUES('k2', 'x')",
    "INSERT INTO sagas VALUES('x', 'x', 'k9', 1, 'open', NULL, 1, 'resume', 1, NULL, 0, 0, 0, NULL, x'00', 1, 0, NULL)",
    "INSERT INTO records SELECT (SELECT max(pos) FROM records) + 1, 'x', 1, body, payload, hash FROM records LIMIT 1",
]


@pytest.mark.parametrize("plant", PLANTS, ids=range(len(PLANTS)))
def test_no_planted_row_lets_a_call_through(log, plant):
    """X-7: in whatever table; nothing more is allowed than before, and verify names it."""
    kit = pay_kit(log, *CAREFUL, Quorum(tool="charge", needed=2))
    with kit.transaction("t"):
        kit.pay({"lines": [{"amount": 90}]})
    with pytest.raises((GateRefused, StoreError, SagaRolledBack)), kit.transaction("u"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        db = apsw.Connection(log)
        db.execute(plant)
        db.close()
        with pytest.raises(CorruptLog):
            verify(kit.writer().store)
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        for _ in range(10):
            kit.pay({"lines": [{"amount": 100}]})
            kit.pay({"lines": [{"amount": 1}]})
        raise AssertionError("more than the budget was spent")
    assert not any(line.startswith("charge") for line in world())
    kit.close()


def test_two_threads_and_one_word(make):
    """X-8: equal calls side by side, one approval: one runs, and each other one says what it lacks."""
    kit = make(Quorum(tool="charge", needed=1))
    told = []
    with kit.transaction("t") as saga:
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        (known,) = operators.pending(kit.writer())
        operators.decide_approval(kit.writer(), known.id, "approved", by="bob")

        def call():
            try:
                kit.charge("ann", 1)
            except GateRefused as error:
                told.append(str(error))

        threads = [threading.Thread(target=saga.bind(call)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert world() == ["charge ann 1"]
    assert len(told) == 7
    assert all("approv" in text for text in told)


def test_arguments_changed_between_word_and_resume(start, log):
    """X-9: approved here, resumed by another process with another amount: that one asks for itself."""
    kit = make_kit(log, Says(lambda call: Ask("big", suspend=True, expires_s=3600)))
    with pytest.raises(SagaSuspended) as told, kit.transaction("order", key="k"):
        kit.charge("ann", 3)
    operators.decide_approval(kit.writer(), told.value.approval, "approved", by="bob")
    with pytest.raises(SagaSuspended) as again, kit.transaction("order", key="k"):
        kit.charge("ann", 3000)
    assert again.value.approval != told.value.approval
    with pytest.raises(SagaSuspended), kit.transaction("order", key="k"):
        kit.charge("eve", 3)
    with kit.transaction("order", key="k"):
        kit.charge("ann", 3)
    assert world() == ["charge ann 3"]
    kit.close()


def test_64_reservations_from_eight_processes(start, log):
    """X-10: eight processes with eight threads each, one budget of 10: ten are spent, 54 are told why not."""
    kit = make_kit(log)
    with kit.transaction("first"):
        kit.charge("nobody", 0)
    children = [start("spend", 10, 8) for _ in range(8)]
    for child in children:
        child.hear("ready")
    for child in children:
        child.tell()
    lines = [line for child in children for line in child.end()]
    spent = [line for line in lines if line == "spent"]
    refused = [line for line in lines if line.startswith("refused")]
    assert (len(spent), len(refused)) == (10, 54)
    assert all("has 0 left of 10, and 1 was asked" in line for line in refused)
    assert len(world()) == 11
    assert verify(kit.writer().store).sagas >= 65
    kit.close()


def test_a_rate_cannot_be_outrun(make, clock):
    """X-11: a rolling window has no seam: over any window's length at most so many calls run."""
    kit = make(RateLimit(name="r", calls=5, window=10))
    with kit.transaction("t"):
        for number in range(60):
            clock.jump(0.7)
            with contextlib.suppress(GateRefused):
                kit.charge("ann", number)
    ran = sorted(fact.at for fact in kit.writer().store.facts("spend"))
    assert len(ran) == len(world()) > 15
    assert all(sum(start <= at < start + 10 * 10**9 for at in ran) <= 5 for start in ran)


def test_refuse_is_the_last_word(make):
    """X-12: no question, budget or later policy turns a refusal round."""
    kit = make(Says(Ask("?")), Says(Refuse("no")), Says(Allow()), approver=lambda call: True)
    with kit.transaction("t"), pytest.raises(GateRefused, match="no"):
        kit.charge("ann", 1)
    assert world() == []
