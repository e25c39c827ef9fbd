"""`agent-saga settle`: each word of a human, and what recovery makes of it."""

import shlex

import pytest


@pytest.fixture
def doubtful(shop):
    """A saga of which step 3 is in doubt, recovered as far as that goes."""
    shop.tell("die-after-launch")
    shop.run("die")
    shop.untell("die-after-launch")
    shop.recover(code=1)
    assert shop.world() == ["charge", "launch", "refund"]
    return shop


def settle(shop, *words, code=0):
    return shop.saga("settle", "order-die", 3, *words, "--evidence", "the console", "--by", "anna", code=code)


def test_happened_lets_recovery_compensate(doubtful):
    """`happened` with the result: the next recovery compensates the step."""
    told = settle(doubtful, "--as", "happened", "--result", '"i-web"')
    assert "next: agent-saga recover --saga" in told.stdout
    doubtful.recover()
    assert doubtful.world() == ["charge", "launch", "refund", "stop"]
    assert doubtful.data("sagas")["sagas"][0]["sealed"] is True


@pytest.mark.parametrize(
    ("word", "clean"), [("did-not-happen", True), ("compensated-by-hand", True), ("accept", False)]
)
def test_other_words_leave_nothing_to_do(doubtful, word, clean):
    """The other words settle the step for good; recovery runs nothing."""
    assert "nothing is left of this saga" in settle(doubtful, "--as", word).stdout
    doubtful.recover()
    assert doubtful.world() == ["charge", "launch", "refund"]
    story = doubtful.data("show", "order-die")
    assert story["work"] == []
    assert story["report"]["clean"] is clean
    assert story["settlements"][0]["values"]["evidence"] == "the console"
    assert story["amendments"][0]["by"] == "anna"
    assert doubtful.saga("verify").stdout.endswith("of 2 sagas\n")


def test_happened_needs_the_result_that_the_compensation_is_bound_from(doubtful):
    """Nothing is compensated with a result that nobody gave, and the placeholder is none."""
    assert "'result' was wanted" in settle(doubtful, "--as", "happened", code=2).stderr
    assert "VALUE" in settle(doubtful, "--as", "happened", "--result", '"VALUE"', code=2).stderr
    assert "not JSON" in settle(doubtful, "--as", "happened", "--result", "{", code=2).stderr
    assert "--as accept" in settle(doubtful, "--as", "accept", "--result", "1", code=2).stderr


@pytest.mark.parametrize("list_of_work", [("show", "order-die"), ("recover", "--import", "shop")])
def test_the_next_line_is_the_exact_command(doubtful, list_of_work):
    """What `show` and `recover` print after `next:` runs as it is, once the result is filled in."""
    told = doubtful.saga(*list_of_work, code=1 if "recover" in list_of_work else 0).stdout
    (line,) = [line for line in told.splitlines() if line.strip().startswith("next: ")]
    program, *words = shlex.split(line.partition("next: ")[2].replace("VALUE", "i-web"))
    assert program == "agent-saga"
    doubtful.saga(*words)
    doubtful.recover()
    assert doubtful.world()[-1] == "stop"


def test_an_orphan_is_settled(shop):
    """An effect without compensation is an orphan until a human says something."""
    shop.run("shout")
    told = shop.recover(code=1)
    assert "step 1 shout stands, an orphan, needs a human" in told.stdout
    shop.saga("settle", "order-shout", 1, "--as", "accept", "--evidence", "harmless", "--by", "anna")
    shop.recover()


def test_a_compensation_that_may_have_run_is_settled(shop):
    """A compensation without a known outcome, which may not run twice, waits for a human; then nothing runs."""
    shop.run("pack")
    shop.tell("die-after-unpack")
    assert shop.process("-m", "agent_saga", "recover", "--import", "shop").returncode < 0
    shop.untell("die-after-unpack")
    told = shop.recover(code=1)
    assert "step 1 pack may be compensated or not, needs a human" in told.stdout
    shop.saga("settle", "order-pack", 1, "--as", "compensated-by-hand", "--evidence", "empty box", "--by", "anna")
    shop.recover()
    assert shop.world().count("unpack") == 1


def test_a_conflict_is_tried_again_after_happened(shop):
    """`happened` on a conflict makes the next recovery try again."""
    shop.run("die")
    shop.tell("refund-conflicts")
    shop.recover(code=1)
    shop.untell("refund-conflicts")
    shop.saga("settle", "order-die", 2, "--as", "happened", "--evidence", "moved back", "--by", "anna")
    shop.recover()
    assert shop.world()[-1] == "refund"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("order-die", "9", "--as", "accept"), "has no step 9"),
        (("order-die", "2", "--as", "accept"), "it needs no word"),
        (("order-die", "two", "--as", "accept"), "is no step"),
        (("nobody", "3", "--as", "accept"), "no saga of this log"),
        (("order-die", "3", "--as", "maybe"), "is not one of"),
        (("order-die", "3"), "Missing option '--as'"),
    ],
)
def test_wrong_words_are_refused(doubtful, words, reason):
    """A wrong saga, step or word: exit 2, the reason, and nothing recorded."""
    before = doubtful.saga("export").stdout
    assert reason in doubtful.saga("settle", *words, "--evidence", "e", "--by", "me", code=2).stderr
    assert doubtful.saga("export").stdout == before


@pytest.mark.parametrize("empty", ["--evidence", "--by"])
def test_evidence_and_name_may_not_be_empty(doubtful, empty):
    """Others must be able to follow what was found, and by whom."""
    given = {"--evidence": "e", "--by": "me", empty: " "}
    words = [word for pair in given.items() for word in pair]
    assert f"{empty} is empty" in doubtful.saga("settle", "order-die", 3, "--as", "accept", *words, code=2).stderr
