"""Names: allow rules match what they say, deny rules also what imitates it."""

import pytest
from gate_cases import Facts, allowed, call, refused
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.errors import DeclarationError
from agent_saga.gates import AllowTools, AllowValues, Bounds, DenyTools, DenyValues, EffectRule, first_of
from agent_saga.gates.confusables import LOOKS_LIKE
from agent_saga.gates.names import imitated, says

IMITATIONS = {
    "case": "Delete_File",
    "upper case": "DELETE_FILE",
    "space": "delete file",
    "trailing space": "delete_file ",
    "leading newline": "\ndelete_file",
    "tab": "delete\t_file",
    "no-break space": "delete_file\u00a0",
    "zero width space": "delete\u200b_file",
    "zero width joiner": "delete_\u200dfile",
    "byte order mark": "\ufeffdelete_file",
    "right-to-left mark": "delete_file\u200f",
    "soft hyphen": "del\u00adete_file",
    "tag": "delete_file\U000e0041",
    "variation selector": "delete_file\ufe0f",
    "hangul filler": "delete_file\u3164",
    "cyrillic e": "d\u0435lete_file",
    "greek": "d\u03b5lete_file",
    "full width": "\uff44\uff45\uff4c\uff45\uff54\uff45_file",
    "mathematical": "\U0001d41d\U0001d41e\U0001d425\U0001d41e\U0001d42d\U0001d41e_file",
    "accent": "d\u00e9lete_file",
    "combining": "de\u0301lete_file",
    "digit one": "de1ete_file",
    "capital i": "deIete_file",
    "roman numeral": "de\u217cete_file",
    "hyphen": "delete-file",
    "dot": "delete.file",
    "en dash": "delete\u2013file",
    "two underscores": "delete__file",
    "squared letter": "\U0001f173elete_file",
    "control": "delete\x00_file",
    "unknown letter": "d\u0259lete_file",
}


@pytest.mark.parametrize("name", IMITATIONS.values(), ids=IMITATIONS)
def test_an_imitation_matches_no_allow_rule_and_every_deny_rule(name):
    """GATE: a look-alike is not what it imitates, and is denied with it."""
    assert refused(AllowTools("delete_file").decide(call(name), Facts()))
    assert refused(DenyTools("delete_file").decide(call(name), Facts()))
    assert refused(DenyTools("delete_*").decide(call(name), Facts()))


@pytest.mark.parametrize("name", IMITATIONS.values(), ids=IMITATIONS)
def test_an_imitation_slips_past_no_rule_about_a_tool(name):
    """GATE: a rule about a tool neither passes over its imitation nor grants it anything."""
    bounds = Bounds(tool="delete_file", argument="count", max=1)
    grant = first_of(EffectRule("compensable", "allow", tool="delete_file"), otherwise="allow")
    assert "mistaken" in refused(bounds.decide(call(name, count=0), Facts()))
    assert "mistaken" in refused(grant.decide(call(name), Facts()))


@pytest.mark.parametrize(
    "name",
    [
        "delete_files",
        "deleted_file",
        "undelete_file",
        "read_file",
        "delete_fil",
        "\u524a\u9664",
        "\u0443\u0434\u0430\u043b\u0438\u0442\u044c",
        "file_delete",
        "x",
    ],
)
def test_other_names_are_left_alone(name):
    """GATE: a name that nobody could mistake for a denied one is not denied."""
    allowed(DenyTools("delete_file").decide(call(name), Facts()))
    allowed(Bounds(tool="delete_file", argument="count", max=1).decide(call(name), Facts()))


def test_a_whole_word_of_another_script_is_denied():
    """GATE: a name of Cyrillic letters only that looks like the denied one is denied."""
    assert refused(DenyTools("pay").decide(call("\u0440\u0430\u0443"), Facts()))


def test_patterns_of_allow_rules_match_plain_names_only():
    """GATE: what a * could stand for is printable ASCII; other names are named in full."""
    for name in ("get_\u200bx", "get_\u0430", "get_x ", "get_\n", "get_x\x7f"):
        assert refused(AllowTools("get_*").decide(call(name), Facts()))
    allowed(AllowTools("get_\u00fc").decide(call("get_\u00fc"), Facts()))
    allowed(AllowTools("get_*").decide(call("get_all"), Facts()))


def test_legitimate_neighbours_can_both_be_named():
    """GATE: two tools that look alike are each what they are, once a rule names both."""
    rule = Bounds(tool=("send_mail", "send-mail"), argument="count", max=1)
    for name in rule.tool:
        allowed(rule.decide(call(name, count=1), Facts()))


NAMES = st.text(st.sampled_from("abcdefgmnorxyz_"), min_size=1, max_size=10)


@given(NAMES, st.data())
def test_any_confusable_of_any_letter_is_denied_with_it(name, data):
    """GATE: replacing any letter by any character that looks like it changes nothing for a deny rule."""
    position = data.draw(st.integers(0, len(name) - 1))
    twins = [char for char, shown in LOOKS_LIKE.items() if shown == name[position]]
    if not twins:
        return
    twin = name[:position] + data.draw(st.sampled_from(twins)) + name[position + 1 :]
    assert imitated((name,), twin) == name
    assert not says((name, "*"), twin)


@given(st.text(max_size=20), st.text(max_size=20).filter(bool))
def test_an_allow_rule_matches_only_what_it_says(text, rule):
    """GATE: what an allow rule matches, the deny rule of the same words matches too."""
    if says((rule,), text):
        assert imitated((rule,), text) is not None


@given(NAMES, st.integers(0, 10), st.sampled_from("\u200b\u200c\u00ad\u2060\ufeff\u180e \t\u3164"))
def test_nothing_unseen_makes_a_difference(name, position, char):
    """GATE: an invisible character anywhere in a name is denied with it and not allowed."""
    changed = name[:position] + char + name[position:]
    assert imitated((name,), changed) == name
    assert not says((name,), changed)


def test_a_very_long_name_is_refused_soon():
    """GATE: matching takes time proportional to the lengths, and very long names are denied outright."""
    assert imitated(("a*a*a*a*a*a*b",), "\U0001f4a9a" * 2_000) is None
    assert imitated(("a*a*a*a*a*a*b",), "\U0001f4a9a" * 2_000 + "B") is not None
    assert imitated(("b",), "a" * 20_000) == "b"
    assert not says(("a*",), "a" * 20_000)


def test_values_are_allowed_exactly_and_denied_broadly():
    """GATE: lists of values: exact type and text to allow, look-alikes and other spellings to deny."""
    allow = AllowValues(argument="to", values=("alice", "eu-*", 7, True))
    for good in ("alice", "eu-west", 7, True):
        allowed(allow.decide(call(to=good), Facts()))
    for bad in (
        "Alice",
        "alice ",
        "\u0430lice",
        "7",
        7.0,
        1,
        "True",
        None,
        ["alice"],
        {"alice": 1},
        b"alice",
        "eu-\u200b",
    ):
        refused(allow.decide(call(to=bad), Facts()))
    deny = DenyValues(argument="to", values=("mallory", "ru-*", 13))
    for bad in ("mallory", "MALLORY", "ma11ory", "m\u0430llory", "ru-x", "RU-X", 13, "13", 13.0, ["x"], b"mallory"):
        refused(deny.decide(call(to=bad), Facts()))
    for good in ("alice", "eu-west", 12, None):
        allowed(deny.decide(call(to=good), Facts()))


def test_a_missing_value_is_refused_unless_said_otherwise():
    """GATE: missing="allow" lets a call without the argument pass, and only that."""
    for kind in (AllowValues, DenyValues):
        refused(kind(argument="a.b", values=("x",)).decide(call(), Facts()))
        rule = kind(argument="a.b", values=("x",), missing="allow")
        allowed(rule.decide(call(), Facts()))
        allowed(rule.decide(call(a={}), Facts()))
        refused(rule.decide(call(a="text"), Facts()))
    some = DenyValues(argument="items.*.to", values=("mallory",), missing="allow")
    refused(some.decide(call(items=[{"to": "mallory"}, {}]), Facts()))


def test_lists_of_nothing_are_refused_where_they_are_written():
    """GATE: an empty list allows or denies nothing, so it is a mistake."""
    for make in (AllowTools, DenyTools, lambda: AllowValues(argument="a", values=()), lambda: AllowTools("")):
        with pytest.raises(DeclarationError):
            make()


def test_effect_rules_are_about_one_effect_class():
    """GATE: an effect rule answers calls of its class and leaves the others to other rules."""
    rule = EffectRule("irreversible", "refuse", tool="mail*")
    assert refused(rule.decide(call("mail_all", "irreversible"), Facts())) == "mail_all is irreversible"
    allowed(rule.decide(call("mail_all", "compensable"), Facts()))
    allowed(rule.decide(call("post", "irreversible"), Facts()))


def test_patterns_of_deny_rules_reach_imitations_too():
    """GATE: every part of a shell pattern is matched against what a name looks like."""
    for name in ("Drop_Table7", "drop-table9", "dr\u03bfp_table1", "drop_table\u0259", "drop_table[0-9]"):
        assert imitated(("drop_table[0-9]",), name), name
    for name in ("drop_tablex", "drop_table", "drop_table10", "droptable7"):
        assert imitated(("drop_table[0-9]",), name) is None, name
    assert imitated(("?ay",), "\u0420ay") == "?ay"
    assert imitated(("a[b",), "A[B") == "a[b"
