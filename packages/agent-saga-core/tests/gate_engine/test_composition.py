"""An approval and a budget in one decision; decisions that grow old; redacted arguments. Rule ids: K-n."""

import json
from decimal import Decimal

import pytest
from gate_world import Says, note, refund, world

from agent_saga import Ask, GateRefused, Refuse, compensator, spi
from agent_saga.gates import Bounds, Budget, Quorum, UIConfirmationArtifact, all_of
from agent_saga.model import records as r
from agent_saga.runtime import operators
from agent_saga.store.reader import checked_records


@compensator("gate.backup_of", idempotent=True, lives_in="/var/backups", valid_for_s=60)
def from_backup(box):
    note(f"from backup {box}")


PAYS = {"customer": "kwargs.customer", "amount": "kwargs.amount"}


def spent(kit, name):
    return [fact.value for fact in kit.writer().store.facts("spend", name)]


@pytest.mark.parametrize("form", ["one decision", "a list", "all_of"])
def test_a_question_and_a_budget_compose(make, form):
    """K-1: what is asked about is reserved when it runs, in the same transaction, and refused beyond the limit."""
    budget, asks = Budget(name="b", limit=10, amount="amount"), Quorum(tool="charge", needed=1)

    def both(call):
        return Ask("big", requires=budget.decide(call, None).requires)

    policies = {"one decision": [Says(both)], "a list": [budget, asks], "all_of": [all_of(budget, asks)]}[form]
    kit = make(*policies, approver=lambda call: True)
    with kit.transaction("t") as saga:
        kit.charge("ann", 6)
        with pytest.raises(GateRefused, match="has 4 left of 10, and 6"):
            kit.charge("bob", 6)
        kit.charge("bob", 4)
    assert (world(), spent(kit, "budget:b")) == (["charge ann 6", "charge bob 4"], ["6", "4"])
    records = [record for _, record, _ in checked_records(kit.writer().store, saga.id)]
    used = [one.refused is None for one in records if isinstance(one, r.ApprovalConsumed)]
    assert used == [True, False, True]


def test_a_rejection_reserves_nothing(make):
    """K-2: only what runs is spent."""
    kit = make(
        all_of(Budget(name="b", limit=10, amount="amount"), Quorum(tool="*", needed=1)), approver=lambda c: False
    )
    with kit.transaction("t"), pytest.raises(GateRefused, match="rejected"):
        kit.charge("ann", 6)
    assert (world(), spent(kit, "budget:b")) == ([], [])


@pytest.mark.parametrize("requires", [("nonsense",), None, 5], ids=repr)
def test_what_a_question_requires_must_be_checkable(make, requires):
    """K-3: as with Allow, what the log could not check refuses."""
    kit = make(Says(Ask("big", requires=requires)), approver=lambda call: True)
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.charge("ann", 1)
    assert world() == []


def test_a_freeze_that_begins_during_the_wait(make, clock):
    """K-4: the policies are asked again, the people are not; the word is there, and the call is refused."""
    waiting = []

    def slow(call):
        waiting.append(call)
        clock.jump(120)
        return True

    kit = make(Says(lambda call: Refuse("too late") if waiting else Ask("?")), approver=slow)
    with kit.transaction("t"), pytest.raises(GateRefused, match="too late"):
        kit.charge("ann", 1)
    assert (world(), len(waiting)) == ([], 1)


def test_a_budget_of_the_day_is_that_of_the_intent(make, clock):
    """K-5: asked before midnight and approved after it, a call spends from the new day."""
    kit = make(
        all_of(Budget(name="b", limit=10, window="day"), Quorum(tool="*", needed=1, expires_s=1e6)),
        approver=lambda call: clock.jump(86_400) or True,
    )
    with kit.transaction("t"):
        kit.charge("ann", 1)
    (fact,) = kit.writer().store.facts("spend")
    assert (
        fact.name
        == Budget(name="b", limit=10, window="day").share.take(None, None, Decimal(1), Decimal(10)).requires[0].budget
    )


SECRET = "4111-1111-1111-1111-" + "9" * 60


def secret_kit(make, *policies, **options):
    kit = make(*policies, **options)
    kit.card = kit.wrap(
        lambda customer, amount, card: note(f"card {customer} {amount}"),
        name="card",
        effect="compensable",
        compensate=refund.bind(**PAYS),
        redact=["card.number"],
    )
    return kit


def test_a_card_shows_no_redacted_argument(make):
    """K-6: what leaves the process says that something is withheld; the function that is asked here sees it."""
    shown = []

    def approver(call):
        shown.append(UIConfirmationArtifact.of(call, "?").to_dict())
        return call.kwargs["card"]["number"] == SECRET

    kit = secret_kit(make, Quorum(tool="*", needed=1), approver=approver)
    with kit.transaction("t"):
        kit.card("ann", 1, {"number": SECRET})
    (card,) = shown
    assert (card["complete"], SECRET in json.dumps(card), world()) == (False, False, ["card ann 1"])
    assert [row["value"] for row in card["arguments"] if row["path"] == "card"] == ["<hidden>"]


def test_the_card_of_a_recorded_request(make):
    """K-9: a UI of another process shows all that the log holds, and what would take the effect back."""
    kit = make(Quorum(tool="*", needed=2, signed=True))
    kit.wrap(lambda box: None, name="keep", effect="compensable", compensate=from_backup.bind(box="kwargs.box.id"))
    with kit.transaction("t") as saga:
        with pytest.raises(GateRefused):
            spi.guard("keep", {"box": {"id": [1, {"x": "y\u202e"}]}}, lambda kwargs: None, adapter="test")
        (known,) = operators.pending(kit.writer())
        card = UIConfirmationArtifact.of_request(known).to_dict()
    rows = {row["path"]: row["value"] for row in card["arguments"]}
    assert rows == {"box.id.0": "1", "box.id.1.x": "y\\u202e"}
    assert (card["digest"], card["approval"], card["saga"]) == (known.request.digest, known.id, saga.id)
    assert (card["quorum"], card["signed"], card["complete"]) == (2, True, True)
    back = card["compensation"]
    assert (back["exists"], back["name"], back["lives_in"]) == (True, "gate.backup_of", "/var/backups")
    assert back["until"] is not None
    assert card["options"][0]["command"] == f"agent-saga approvals approve {known.id} --by NAME"
    json.dumps(card)


def test_a_redacted_argument_that_is_changed_meanwhile_is_not_run(make):
    """K-7: its stored form is the same, and the call is another one."""

    def approver(call):
        call.kwargs["card"]["number"] = "5555"
        return True

    kit = secret_kit(make, Quorum(tool="*", needed=1), approver=approver)
    with kit.transaction("t"), pytest.raises(GateRefused, match="was changed"):
        kit.card("ann", 1, {"number": SECRET})
    assert world() == []


@pytest.mark.parametrize("value", [SECRET, "~9~", -31337], ids=["long", "short", "number"])
@pytest.mark.parametrize("how", ["a rule", "refuses", "raises", "asks"])
def test_no_reason_quotes_a_redacted_argument(make, how, value):
    """K-8: a policy may quote the argument; the record, and what the model reads, do not."""

    def quotes(call):
        text = f"{call.kwargs['card']['number']} is stolen"
        if how == "raises":
            raise LookupError(text)
        return Ask(text) if how == "asks" else Refuse(text)

    rule = Bounds(tool="card", argument="card.number", max=5)
    kit = secret_kit(make, rule if how == "a rule" else Says(quotes), approver=lambda call: False)
    with kit.transaction("t") as saga, pytest.raises(GateRefused) as told:
        kit.card("ann", 1, {"number": value})
    records = [record for _, record, _ in checked_records(kit.writer().store, saga.id)]
    said = [str(told.value), *(getattr(record, name, "") for record in records for name in ("reason", "note"))]
    assert not any(part in text for text in said for part in (str(value), str(value)[:20]))
