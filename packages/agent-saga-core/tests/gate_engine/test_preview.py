"""kit.preview: a plan through gate and declarations, and nothing else. Rule ids: V-n."""

import json
from pathlib import Path

import pytest
from gate_world import Asks, Purse, Says, Stop, charge, make_kit, note, refund, world

from agent_saga import Allow, GateRefused, Refuse, SagaSuspended, compensator
from agent_saga.errors import LogFailed, UsageError
from agent_saga.gates import Bounds, Budget, CircuitBreaker, Consensus, RateLimit, UndoPath
from agent_saga.runtime import operators

PAYS = {"customer": "kwargs.customer", "amount": "kwargs.amount"}


@compensator("gate.from_backup", idempotent=True, lives_in="/var/backups", valid_for_s=60)
def from_backup(box):
    note(f"from backup {box}")


def decisions(preview):
    return [call.decision for call in preview.calls]


class Later:
    """An async policy."""

    async def decide(self, call, saga):
        return Refuse("nine is too much") if call.kwargs.get("amount") == 9 else Allow()


PLAN = [
    ("charge", {"customer": "ann", "amount": 4}),
    ("charge", {"customer": "ann", "amount": 9}),
    ("charge", {"customer": "bob", "amount": 7}),
    ("mail", {"to": "ann"}),
    ("nothing", {"x": 1}),
    ("charge", {"custmer": "ann", "amount": 4}),
    {"tool": "look", "kwargs": {}},
]


def policies():
    return Later(), Budget(name="spend", limit=10, amount="amount", tool=("charge",))


async def check_plan(kit, run):
    """V-1, V-2."""
    kit.declare_read_only("look")
    before = kit.writer().store.tail(), kit.writer().store.facts("spend")
    preview = await run(kit)
    assert decisions(preview) == ["allow", "refuse", "refuse", "ask", "refuse", "refuse", "allow"]
    reasons = [" ".join(call.reasons) for call in preview.calls]
    for reason, said in zip(
        reasons,
        [
            "",
            "nine is too much (Later)",
            "has 6 left of 10, and 7",
            "mail is irreversible",
            "kit.declare(",
            "do not fit",
            "",
        ],
        strict=True,
    ):
        assert said in reason
    assert [call.tool for call in preview.cannot_be_undone] == ["mail"]
    assert [f"{one.amount:f}" for one in preview.calls[0].reserves] == ["4"]
    assert (preview.clear, len(preview.refused), len(preview.asked)) == (False, 4, 1)
    json.dumps(preview.to_dict())
    text = preview.format_text()
    assert text.startswith("7 calls: 2 allowed, 1 to be asked about, 4 refused; 1 cannot be undone")
    assert "undo: gate.refund offsets it" in text
    assert (world(), kit.writer().store.tail(), kit.writer().store.facts("spend")) == ([], *before)


@pytest.mark.asyncio
async def test_each_call_of_a_plan_is_decided(make):
    """V-1: with its reason, async policies included, and what could not be undone; nothing is done or recorded."""

    async def run(kit):
        return kit.preview(PLAN)

    await check_plan(make(*policies()), run)


@pytest.mark.asyncio
async def test_from_an_event_loop(make):
    """V-2: the same, awaited."""
    await check_plan(make(*policies()), lambda kit: kit.apreview(PLAN))


def test_a_log_is_not_made_for_it(tmp_path):
    """V-3: a kit that has recorded nothing yet has no log afterwards."""
    kit = make_kit(str(tmp_path / "log.db"), *policies())
    assert decisions(kit.preview(PLAN[:1])) == ["allow"]
    assert not Path(tmp_path / "log.db").exists()
    kit.close()


def test_what_the_log_holds_counts(make):
    """V-4: budgets spent by others, resources held by others, halts, drains; nothing of it is changed."""
    kit = make(Budget(name="spend", limit=10, amount="amount"), RateLimit(name="calls", calls=3))
    with kit.transaction("t"):
        kit.account("ann", 8)
        plan = [("charge", {"customer": "bob", "amount": n}) for n in (1, 1, 1)]
        assert decisions(kit.preview(plan)) == ["allow", "allow", "refuse"]
        with kit.transaction("u", independent=True):
            (held,) = kit.preview([(kit.account, {"customer": "ann", "amount": 1})]).calls
    assert (held.decision, held.resources, "is held by saga" in held.reasons[0]) == ("refuse", ("account:ann",), True)
    for action, scope in (("halt", "tool:charge"), ("halt", "tag:eu"), ("drain", "*")):
        operators.act(kit.writer(), action, scope, by="ann", reason="fire")
        (call,) = kit.preview(plan[:1], tags=["eu"]).calls
        assert (call.decision, "fire" in call.reasons[0]) == ("refuse", True)
        operators.lift(kit.writer(), scope, by="ann")
    assert decisions(kit.preview(plan[:1])) == ["allow"]


def test_inside_a_saga_it_goes_on_from_there(make):
    """V-5: what stands counts, resources of the saga are free to it, and equal irreversible calls repeat."""
    kit = make(approver=lambda call: True)
    with kit.transaction("t") as saga:
        kit.account("ann", 1)
        kit.mail("ann")
        preview = kit.preview([("account", {"customer": "ann", "amount": 2}), ("mail", {"to": "ann"})])
        assert decisions(preview) == ["allow", "ask"]
        assert "again" in preview.calls[1].reasons[0]
        assert len(saga.steps()) == 2
        kit.charge("bob", 1)
    assert world() == ["charge ann 1", "mail ann null", "charge bob 1"]


def test_the_way_back_is_previewed(make):
    """V-6: a call that destroys what a call before it needs is refused; what could not be bound is told."""
    kit = make(UndoPath(tool="lift", destroys="kwargs.box"))
    kit.wrap(lambda box: None, name="keep", effect="compensable", compensate=from_backup.bind(box="kwargs.box"))
    kit.wrap(
        lambda box: None,
        name="odd",
        effect="compensable",
        compensate=refund.bind(customer="kwargs.box.x", amount="key"),
    )
    kit.wrap(
        lambda box: None, name="late", effect="compensable", compensate=lambda call: refund.with_(customer=1, amount=1)
    )
    plan = [("keep", {"box": "b"}), ("lift", {"box": "/var"}), ("odd", {"box": {}}), ("late", {"box": 1})]
    preview = kit.preview(plan)
    assert decisions(preview) == ["allow", "refuse", "allow", "allow"]
    assert "step 1 (keep) needs" in preview.calls[1].reasons[0]
    assert [call.undo.possible for call in preview.calls] == [True, True, False, None]
    assert [call.tool for call in preview.cannot_be_undone] == ["odd", "late"]
    assert (preview.calls[0].undo.valid_for_s, preview.calls[0].undo.lives_in) == (60, "/var/backups")


def test_a_function_is_a_plan(make):
    """V-7: its effectful calls are looked at, read-only ones run, results are what the test says, refusals raise."""
    kit = make(Bounds(tool="charge", argument="amount", max=5))
    look = kit.wrap(lambda: note("look") or 3, name="look", effect="read_only")

    def plan():
        receipt = kit.charge("ann", look())
        with pytest.raises(GateRefused, match="would be refused"):
            kit.charge("ann", 50)
        kit.charge(receipt["id"], 1)
        kit.charge("bob", kit.charge("bob", 1)["id"])
        raise Stop("enough")

    preview = kit.preview(plan, results={"charge": lambda kwargs: {"id": kwargs["amount"] + 1}})
    assert decisions(preview) == ["allow", "allow", "refuse", "allow", "allow", "allow"]
    assert [json.loads(call.kwargs["amount"]) for call in preview.calls[1:]] == [3, 50, 1, 1, 2]
    assert (preview.stopped, preview.clear, world()) == ("Stop: enough", False, ["look"])


def test_what_nobody_knows_is_no_value(make):
    """V-8: without a stated result a call returns a stand-in, which a rule that reads it refuses."""
    kit = make(Bounds(tool="charge", argument="amount", max=5))
    preview = kit.preview(lambda: kit.charge("ann", kit.charge("ann", 1)["id"]["x"].y))
    assert decisions(preview) == ["allow", "refuse"]
    assert preview.stopped.startswith("GateRefused")
    assert world() == []


@pytest.mark.asyncio
async def test_an_async_function_is_a_plan(make):
    """V-9: async tools are looked at too."""
    kit = make()

    async def plan():
        await kit.amail("ann")
        kit.charge("ann", 1)

    assert decisions(await kit.apreview(plan)) == ["ask", "allow"]
    with pytest.raises(UsageError, match="apreview"):
        kit.preview(plan)
    assert world() == []


def test_a_plan_opens_no_saga(make):
    """V-10: a transaction in it would be a real one."""
    kit = make()
    for options in ({}, {"independent": True}):

        def plan(options=options):
            with kit.transaction("t", **options):
                kit.charge("ann", 1)

        with pytest.raises(UsageError, match="cannot open"):
            kit.preview(plan)
    assert world() == []


def test_rules_learn_nothing_from_it(make):
    """V-11: an open circuit stays open, a closed one closed, and a budget stays as it is."""
    kit = make(CircuitBreaker(tool="*", failures=2, open_for_s=600))
    plan = [("charge", {"customer": "ann", "amount": 1})]
    for tries in (1, 2):
        with kit.transaction("t"), pytest.raises(ValueError, match="declined"):
            kit.declined("ann", 1)
        for _ in range(3):
            assert decisions(kit.preview([("declined", plan[0][1])])) == ["allow" if tries == 1 else "refuse"]


@pytest.mark.parametrize("words", [(True, True, True), (True, False, True)], ids=repr)
def test_verifiers_are_asked(make, words):
    """V-12: consensus, 3 of 3, is part of the gate."""
    kit = make(Consensus(tool="charge", verifiers=[lambda call, word=word: word for word in words]))
    assert decisions(kit.preview(PLAN[:1])) == ["allow" if all(words) else "refuse"]


def test_nobody_is_asked(make):
    """V-13: a question is told, and no approver hears of it; nothing is requested."""
    heard = []
    kit = make(Asks(quorum=2), Purse(3), approver=lambda call: heard.append(call) or True)
    (call,) = kit.preview(PLAN[:1]).calls
    assert (call.decision, call.reasons) == ("refuse", ("budget 'purse' has 3 left of 3, and 4 is asked",))
    (call,) = kit.preview([("charge", {"customer": "ann", "amount": 3})]).calls
    assert (call.decision, call.reasons) == ("ask", ("charge needs a word (Asks)",))
    assert (heard, operators.pending(kit.writer())) == ([], [])


def test_unreadable_signals_refuse(make, monkeypatch):
    """V-14: as before an intent, what cannot be read refuses."""
    kit = make(Purse(9))

    def broken(*args):
        raise LogFailed("gone")

    for name in ("halts", "facts"):
        with monkeypatch.context() as patch:
            patch.setattr(kit.writer().store, name, broken)
            (call,) = kit.preview(PLAN[:1]).calls
        assert (call.decision, "cannot be read" in " ".join(call.reasons)) == ("refuse", True)


def test_redacted_arguments_are_withheld(make):
    """V-15: the preview leaves the process."""
    kit = make(Says(lambda call: Refuse(f"no: {call.kwargs['customer']}")))
    kit.wrap(charge, name="secret", effect="compensable", compensate=refund.bind(**PAYS), redact=["customer"])
    told = json.dumps(kit.preview([("secret", {"customer": "hunter2hunter2", "amount": 1})]).to_dict())
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "plan",
    ["charge", None, 5, [5], [("charge",)], [("charge", [1])], [("charge", {1: 2})], [(5, {})], {"a": 1}],
    ids=repr,
)
def test_what_is_no_plan(make, plan):
    """V-16: it is an error, and says what a plan is."""
    with pytest.raises(UsageError):
        make().preview(plan)


def test_a_suspending_question_suspends_nothing(make):
    """V-17: the saga around goes on."""
    kit = make(Asks(suspend=True))
    with pytest.raises(SagaSuspended), kit.transaction("t"):
        assert decisions(kit.preview(PLAN[:1])) == ["ask"]
        kit.charge("ann", 1)
