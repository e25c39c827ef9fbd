"""What a terminal gets: nothing from a log breaks a line or moves the cursor, and colour only adds."""

import os
import pty
import re

import pytest

from agent_saga import AgentKit
from agent_saga.cli.terminal import columns, moment, visible

ODD = "two\nlines\r\t\x1b[2J\x07 \u202erevers\u2066 \u200b \x9b31m \ud800 end"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]")


def look(what: str) -> str:
    return what


@pytest.fixture
def odd(shop):
    """A log with odd names, keys, arguments and causes."""
    kit = AgentKit(shop.log)
    tool = kit.wrap(look, effect="read_only")
    text = ODD.replace("\ud800", "")
    with pytest.raises(RuntimeError), kit.transaction(text, key=text, tags=[text]):
        tool(ODD)
        raise RuntimeError(text)
    with kit.transaction("n" * 10_000, key="k" * 10_000):
        tool("v" * 10_000)
    with kit.transaction("日本語の名前", key="/etc/passwd"):
        tool("x")
    kit.close()
    return shop


@pytest.mark.parametrize("environment", [{}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_odd_names_break_nothing(odd, environment):
    """Control characters, directions and newlines are escaped, and 10,000 characters are shortened, in any encoding."""
    odd.environment |= environment
    odd.environment.pop("PYTHONUTF8" if not environment else "", None)
    lists = odd.saga("sagas").stdout
    assert len(lists.splitlines()) == 5
    told = [odd.saga("show", entry["saga"]).stdout for entry in odd.data("sagas")["sagas"]]
    for text in (lists, *told, odd.recover().stdout):
        assert CONTROL.search(text) is None
        assert max(map(len, text.splitlines())) < 1000
    assert "... (10000 characters)" in lists


def test_json_has_names_whole(odd):
    """--json keeps every character."""
    names = [entry["name"] for entry in odd.data("sagas")["sagas"]]
    assert names == ["日本語の名前", "n" * 10_000, ODD.replace("\ud800", "")]


def on_a_terminal(shop, *words):
    """Run a command whose stdout and stderr are a terminal; return what it wrote."""
    master, slave = pty.openpty()
    process = shop.start("-m", "agent_saga", *words, stdin=-3, stdout=slave, stderr=slave)
    os.close(slave)
    written = bytearray()
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:  # Linux reports the end of a terminal as an I/O error.
        pass
    finally:
        os.close(master)
        process.wait(timeout=60)
    return written.decode()


def test_colour_is_for_terminals_only_and_never_the_only_carrier(shop):
    """Escape sequences appear on a terminal, not in pipes, not with NO_COLOR; without them the words are the same."""
    shop.environment["TERM"] = "xterm"
    shop.run("fail")
    piped = shop.saga("show", "order-fail").stdout
    assert "\x1b" not in piped
    coloured = on_a_terminal(shop, "show", "order-fail").replace("\r\n", "\n")
    assert "\x1b[32m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == piped
    shop.environment["NO_COLOR"] = "1"
    assert "\x1b" not in on_a_terminal(shop, "show", "order-fail")
    del shop.environment["NO_COLOR"]
    shop.environment["TERM"] = "dumb"
    assert "\x1b" not in on_a_terminal(shop, "show", "order-fail")


def test_verify_shows_its_progress_on_a_terminal_only(shop):
    """A progress bar on stderr while somebody can see it."""
    shop.environment["TERM"] = "xterm"
    shop.run("ok")
    assert "verifying" in on_a_terminal(shop, "verify")
    assert "verifying" not in shop.saga("verify").stderr


def test_a_closed_pipe_is_no_error(shop):
    """`agent-saga export | head` ends quietly."""
    shop.run("ok")
    reader, writer = os.pipe()
    os.close(reader)
    process = shop.start("-m", "agent_saga", "export", stdin=-3, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141
    assert "Traceback" not in err
    assert "Exception" not in err


def test_visible_text():
    """One line, printable, bounded."""
    assert visible("a\nb") == "a\\nb"
    assert visible("é日本") == "é日本"
    assert visible("x" * 100, length_max=10) == "xxxxxxx... (100 characters)"
    assert visible(None) == "None"


@pytest.mark.parametrize("at", [-(1 << 80), 1 << 80, 253_402_300_800_000_000_000])
def test_times_that_no_calendar_has(at):
    """A clock that jumped, or a doctored row, does not break a list."""
    assert moment(at) == f"{at} ns"
    assert moment(None) == "-"


def test_wide_characters_count_twice():
    """Columns stay aligned."""
    assert columns([("日本", "a"), ("xxxx", "b")]) == ["日本  a", "xxxx  b"]


def test_help_loads_neither_the_engine_nor_rich(shop):
    """`agent-saga --help` imports click and the table of commands, nothing else of weight."""
    program = (
        "import sys, agent_saga.cli as c\ntry:\n c.main(['--help'])\nfinally:\n print(*sys.modules, file=sys.stderr)"
    )
    done = shop.process("-c", program)
    assert done.returncode == 0
    heavy = {"rich", "msgspec", "apsw", "asyncio", "importlib.metadata", "agent_saga.runtime", "agent_saga.store"}
    assert heavy & set(done.stderr.split()) == set()
