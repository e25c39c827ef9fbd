"""The confirmation card shows everything, as it is."""

import json
from dataclasses import dataclass
from decimal import Decimal

import pytest
from gate_cases import call
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.gates import UIConfirmationArtifact
from agent_saga.gates.card import TEXT_LENGTH_MAX, visible

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


def card(proposed, **options):
    return UIConfirmationArtifact.of(proposed, "because", **options)


def rows(made):
    return {row.path: row.value for row in made.arguments}


def test_nested_arguments_are_all_shown():
    """CARD: every value inside of every argument has a row."""

    @dataclass
    class Address:
        city: str
        lines: tuple[str, ...]

    made = card(
        call(order={"items": [{"sku": "a", "price": Decimal("9.90")}], "empty": []}, to=Address("X", ("y", "z")))
    )
    assert rows(made) == {
        "order.items.0.sku": "a",
        "order.items.0.price": '{"$decimal":"9.90"}',
        "order.empty": "[]",
        "to.city": "X",
        "to.lines.0": "y",
        "to.lines.1": "z",
    }
    assert made.complete


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4))
def test_every_card_is_json(kwargs):
    """CARD: whatever a call takes, its card is plain JSON, and the same in both forms."""
    proposed = call()
    made = card(type(proposed)(tool="pay", kwargs=kwargs, effect=proposed.effect))
    assert json.loads(json.dumps(made.to_dict(), allow_nan=False)) == made.to_dict()
    assert json.loads(made.to_json()) == made.to_dict()
    assert made.complete


@given(st.text())
def test_nothing_unseen_is_on_a_card(text):
    """CARD: characters that are not seen, or turn the text around, are escaped."""
    shown = visible(text)
    assert shown.isprintable()
    assert not set(shown) & set("\u202e\u2066\u200b\ufeff\u00a0\u2028\n\r\t\x1b")


def test_a_card_says_what_happens_and_what_takes_it_back(moved_clock):
    """CARD: the effect in one sentence, and until when which compensation works."""
    irreversible = card(call("mail", "irreversible", compensator=None))
    assert irreversible.sentence == "The agent wants to call mail which cannot be taken back."
    assert (irreversible.compensation.exists, irreversible.compensation.until) == (False, None)
    lasting = card(call("pay")).compensation
    assert (lasting.exists, lasting.name, lasting.until) == (True, "refund", None)
    short = card(call("pay", valid_for_s=3600, lives_in="/trash")).compensation
    assert (short.until, short.lives_in) == ("2026-12-01T01:00:00Z", "/trash")
    assert "refund takes it back for 3600 s" in short.sentence
    assert not card(call("pay", valid_for_s=0)).compensation.exists
    assert "from its result" in card(call("pay", compensator=None)).compensation.sentence


def test_a_card_of_a_recorded_request_says_how_to_answer():
    """CARD: id, digest, expiry, quorum and the commands belong to the request."""
    made = card(
        call("wire", amount=5),
        saga_id="s1",
        approval="s1:a1",
        digest="ab" * 32,
        expires_at_ns=1_796_083_200 * 10**9,
        quorum=2,
        signed=True,
    )
    assert (made.approval, made.digest, made.expires_at, made.saga) == (
        "s1:a1",
        "ab" * 32,
        "2026-12-01T00:00:00Z",
        "s1",
    )
    assert made.title == "Approve (2 people): wire"
    assert [(option.id, option.label) for option in made.options] == [
        ("approve", "Approve and sign"),
        ("reject", "Reject"),
    ]
    assert made.options[0].command == "agent-saga approvals approve s1:a1 --by NAME"


@pytest.mark.parametrize(
    "other",
    [
        call("pay", amount=5, to={"b": 1}),
        call("pay2", amount=5, to={"a": 1}),
        call("pay", amount="5", to={"a": 1}),
        call("pay", "irreversible", amount=5, to={"a": 1}),
        call("pay", amount=5, to={"a": 1}, x=None),
        call("pay", amount=5),
    ],
    ids=range(6),
)
def test_any_change_of_a_call_changes_its_digest(other):
    """CARD: tool, effect, names, types and nested values are all in the digest; order of names is not."""
    one = card(call("pay", amount=5, to={"a": 1}))
    assert one.digest == card(call("pay", to={"a": 1}, amount=5)).digest
    assert one.digest != card(other).digest


def test_what_is_left_out_is_said():
    """CARD: hidden and very long values are marked, and the card is not complete."""
    made = card(call(token="secret", note="x" * (TEXT_LENGTH_MAX + 5)), hide=["token"])
    assert not made.complete
    token, note = made.arguments
    assert (token.value, token.whole) == ("<hidden>", False)
    assert "SHA-256" in note.value
    assert str(TEXT_LENGTH_MAX + 5) in note.value
    assert "secret" not in made.to_json()
    wide = card(call(items=list(range(5_000))))
    assert (len(wide.arguments), wide.complete) == (2_000, False)


def test_a_card_can_be_made_of_anything():
    """CARD: cyclic and foreign values have a row too."""
    cycle = []
    cycle.append(cycle)
    made = card(call(cycle=cycle, thing=object(), data=b"\x00\xff"))
    assert {row.path.split(".")[0] for row in made.arguments} == {"cycle", "thing", "data"}
    json.dumps(made.to_dict(), allow_nan=False)
