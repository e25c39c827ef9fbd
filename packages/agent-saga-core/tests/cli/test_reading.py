"""`sagas`, `show`, `verify` and `export`: what they say of good logs, and their JSON shapes."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_saga import AgentKit, compensator
from agent_saga.cli.app import cli

SAGA_ID = re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b")


@compensator("cli-tests.put-back", idempotent=True)
def put_back(name: str) -> None:
    """The world of these tests is empty."""


def take(name: str) -> str:
    return name


def command(*words, code=0):
    """Run a command in this process; for commands that load nothing of the user."""
    done = CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def document(*words, code=0):
    return json.loads(command(*words, "--json", code=code).stdout)


@pytest.fixture
def kit(tmp_path):
    made = AgentKit(tmp_path / "some.db")
    yield made
    made.close()


def fill(kit, count, name="batch"):
    tool = kit.wrap(take, effect="compensable", compensate=put_back.bind(name="result"))
    for number in range(count):
        with kit.transaction(name, key=f"key-{number}"):
            tool(f"n{number}")


def test_a_list_has_pages(kit):
    """Pages are newest first, do not overlap, and end; `more:` is the exact command."""
    fill(kit, 7)
    seen, after = [], []
    while True:
        page = document("sagas", "--limit", 3, *after, "--log", kit.log)
        seen += [entry["key"] for entry in page["sagas"]]
        if page["next_after"] is None:
            break
        after = ["--after", page["next_after"]]
    assert seen == [f"key-{number}" for number in reversed(range(7))]
    told = command("sagas", "--limit", 3, "--log", kit.log).stdout
    words = told.partition("more: agent-saga ")[2].split()
    assert "key-3" in command(*words).stdout


def test_filters_narrow_the_list(kit):
    """--state and --name narrow; an empty list says so."""
    fill(kit, 1, name="first")
    fill(kit, 1, name="second")
    with pytest.raises(ZeroDivisionError), kit.transaction("third"):
        kit.wrap(take, effect="read_only", name="look")("x")
        raise ZeroDivisionError
    log = ("--log", kit.log)
    assert [entry["name"] for entry in document("sagas", "--name", "first", *log)["sagas"]] == ["first"]
    rolled_back = document("sagas", "--state", "rolled_back", "--state", "open", *log)
    assert [entry["name"] for entry in rolled_back["sagas"]] == ["third"]
    assert "no sagas" in command("sagas", "--needs-human", *log).stdout
    assert command("sagas", "--state", "gone", *log, code=2)


def test_needs_human_lists_what_no_retry_settles(shop):
    """--needs-human lists the saga until it is settled."""
    shop.run("shout")
    (entry,) = shop.data("sagas", "--needs-human")["sagas"]
    assert (entry["needs_human"], entry["sealed"]) == (1, False)
    assert "1, human" in shop.saga("sagas", "--needs-human").stdout
    shop.saga("settle", "order-shout", 1, "--as", "accept", "--evidence", "harmless", "--by", "anna")
    assert shop.data("sagas", "--needs-human")["sagas"] == []


def test_show_tells_the_whole_story(shop):
    """Steps with arguments, results and compensations; decisions; the cause."""
    shop.run("refused")
    told = shop.saga("show", "order-refused").stdout
    assert "rolled back, clean" in told
    assert re.search(r"cause +GateRefused: 'mail' was refused", told)
    assert "read          price(item='book')" in told
    assert "compensated   charge(customer='cus_1', amount=4200)" in told
    assert re.search(r"compensation: shop\.stop\(server='i-web'\): compensated", told)
    assert re.search(r"\ndecisions\n.*mail.*: mail is irreversible", told)
    story = shop.data("show", "order-refused")
    assert story["schema"] == "agent-saga/show/1"
    assert [step["bucket"] for step in story["steps"]] == [None, "compensated", "compensated"]
    assert story["steps"][1]["kwargs"] == {"customer": "cus_1", "amount": 4200}
    assert story["steps"][1]["compensation"]["attempts"][0]["state"] == "compensated"
    assert story["report"]["clean"] is True


def test_show_of_a_failure_names_the_cause(shop):
    """The exception that rolled the saga back is the cause."""
    shop.run("fail")
    assert "RuntimeError: out of stock" in shop.saga("show", "order-fail").stdout


def test_show_finds_by_id_prefix_step_and_key(kit):
    """A saga is named by id (any case), by the beginning of its id, by a step's id, or by its key."""
    fill(kit, 1)
    log = ("--log", kit.log)
    found = document("show", "key-0", *log)["saga"]["id"]
    for name in (found, found.upper(), found[:12], f"{found}:1"):
        assert document("show", name, *log)["saga"]["id"] == found


def test_an_ambiguous_beginning_is_refused(kit):
    """The candidates are named."""
    fill(kit, 2)
    refused = command("show", "01", "--log", kit.log, code=2)
    assert len(SAGA_ID.findall(refused.stderr)) == 2


def test_show_of_a_new_incarnation_by_key(shop):
    """A key names its newest incarnation; the older one is found by its id."""
    shop.run("fail")
    shop.run("fail")
    first, second = sorted(entry["saga"] for entry in shop.data("sagas")["sagas"])
    story = shop.data("show", "order-fail")
    assert (story["saga"]["id"], story["saga"]["incarnation"]) == (second, 2)
    assert shop.data("show", first)["saga"]["incarnation"] == 1


def test_verify_says_what_it_checked(kit):
    """A good log: exit 0, what was checked, and what was not."""
    fill(kit, 2)
    done = document("verify", "--log", kit.log)
    assert (done["schema"], done["undamaged"], done["sagas"]) == ("agent-saga/verify/1", True, 2)
    assert ["--anchor" in line for line in done["not_checked"]] == [True]
    Path(kit.log + "-mark").write_text("")
    told = command("verify", "--log", kit.log).stdout
    assert "not checked  the end of the log" in told


def test_export_is_a_line_for_each_record_in_order(kit):
    """JSON lines in order of position; the path and the count go to stderr."""
    fill(kit, 3)
    done = command("export", "--format", "jsonl", "--log", kit.log)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["pos"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["schema"] for line in lines} == {"agent-saga/record/1"}
    intent = next(line for line in lines if line["kind"] == "intent")
    assert intent["values"]["kwargs.name"] == "n0"
    assert kit.log in done.stderr


def test_export_of_one_saga(shop):
    """--saga gives its own records and those that amend it."""
    shop.run("shout")
    shop.run("die")
    shop.saga("settle", "order-shout", 1, "--as", "accept", "--evidence", "harmless", "--by", "anna")
    lines = [json.loads(line) for line in shop.saga("export", "--saga", "order-shout").stdout.splitlines()]
    assert {line["kind"] for line in lines} >= {"saga_opened", "intent", "settled", "saga_ended"}
    assert len({line["saga"] for line in lines}) == 2


def test_export_to_a_file_appears_complete_and_overwrites_nothing(kit, tmp_path):
    """--out makes a private file; it refuses an existing one, the log included, and leaves nothing half-written."""
    fill(kit, 1)
    out = tmp_path / "out.jsonl"
    done = document("export", "--out", out, "--log", kit.log)
    assert done["records"] == len(out.read_text().splitlines())
    assert out.stat().st_mode & 0o777 == 0o600
    for taken in (out, kit.log, tmp_path):
        assert "nothing is overwritten" in command("export", "--out", taken, "--log", kit.log, code=2).stderr
    command("export", "--out", tmp_path / "no" / "such", "--log", kit.log, code=2)
    command("export", "--out", "/dev/null", "--log", kit.log)
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.slow
def test_ten_thousand_sagas_are_read_by_page(kit):
    """A page of a long list costs its own sagas; the whole list, verify and export still work."""
    look = kit.wrap(take, effect="read_only", name="look")

    async def one(number):
        async with kit.transaction("batch"):
            look(str(number))

    async def many():
        for start in range(0, 10_000, 500):
            await asyncio.gather(*(one(number) for number in range(start, start + 500)))

    asyncio.run(many())
    log = ("--log", kit.log)
    assert len(document("sagas", *log)["sagas"]) == 50
    assert len(document("sagas", "--limit", 100_000, *log)["sagas"]) == 10_000
    assert document("verify", *log)["sagas"] == 10_000
    assert document("recover", *log)["sagas"] == []


def test_every_command_prints_the_absolute_path(kit, monkeypatch):
    """On stdout with text, on stderr when stdout carries data; AGENT_SAGA_LOG and --wal name the log too."""
    fill(kit, 1)
    monkeypatch.setenv("AGENT_SAGA_LOG", kit.log)
    for words in (("sagas",), ("show", "key-0"), ("verify",), ("recover",)):
        assert command(*words).stdout.startswith(f"log: {kit.log}\n")
        done = command(*words, "--json", "--wal", kit.log)
        assert done.stderr.startswith(f"log: {kit.log}\n")
        assert json.loads(done.stdout)["log"] == kit.log
    assert command("export").stderr.startswith(f"log: {kit.log}\n")
