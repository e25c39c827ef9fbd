"""Mistakes of users and of disks: a clear error, the right exit code, nothing lost, no traceback."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from agent_saga.cli.app import cli

READERS = [("sagas",), ("show", "x"), ("verify",), ("export",), ("recover",), ("recover", "--watch")]
SETTLE = ("settle", "x", "1", "--as", "accept", "--evidence", "e", "--by", "me")


def command(*words, code):
    done = CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def in_the_log(shop, *statements):
    """Change a log behind the program's back; its triggers are what keeps others from doing so."""
    with closing(sqlite3.connect(shop.log)) as connection, connection:
        triggers = list(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        for name, _ in triggers:
            connection.execute(f'DROP TRIGGER "{name}"')
        for statement in (*statements, *(sql for _, sql in triggers)):
            connection.execute(statement)


@pytest.fixture(params=[*READERS, SETTLE], ids=" ".join)
def words(request):
    return request.param


def test_a_missing_log_is_exit_3_and_is_not_made(words, tmp_path):
    """The message has the absolute path and how to name another log; nothing appears on the disk."""
    done = command(*words, "--log", tmp_path / "no.db", code=3)
    assert f"there is no log at {tmp_path / 'no.db'}" in done.stderr
    assert "AGENT_SAGA_LOG" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no database at all\n" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_log_is_exit_3(words, content, tmp_path):
    """An empty file, garbage, a broken header: exit 3 or, when it looks like a damaged database, exit 1."""
    file = tmp_path / "some.db"
    file.write_bytes(content)
    done = CliRunner().invoke(cli, [*words, "--log", str(file)], catch_exceptions=False)
    assert done.exit_code == 3, done.output
    assert str(file) in done.stderr
    assert file.read_bytes() == content


def test_other_places_that_are_no_log(words, tmp_path):
    """A directory, another program's database, a file as a directory, `memory:`, an unknown URL: exit 3."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    for place in (tmp_path, other, other / "deeper.db", "memory:", "mysql://host/x", "postgresql://host/x"):
        assert "error: " in command(*words, "--log", place, code=3).stderr


def test_errors_are_documents_with_json(tmp_path):
    """With --json an error is a document too: its code, its message, the exit code."""
    done = command("sagas", "--json", "--log", tmp_path / "no.db", code=3)
    document = json.loads(done.stdout)
    assert (document["schema"], document["error"]["code"], document["exit"]) == ("agent-saga/error/1", "AS-0602", 3)


@pytest.fixture
def damaged(shop):
    """Two sagas that dead processes left; the older one has an edited record."""
    shop.run("die")
    older = shop.only_saga()
    shop.run("pack")
    in_the_log(
        shop,
        f"UPDATE records SET body = CAST(replace(body, 'charge', 'chorge') AS BLOB) WHERE saga = '{older}' AND n = 3",
    )
    return shop, older


def test_damage_is_exit_1_and_names_saga_record_and_reason(damaged):
    """Every reader stops at the damage and says where it is."""
    shop, older = damaged
    for words in (("verify",), ("show", older), ("export",), ("recover", "--saga", older)):
        done = shop.saga(*words, code=1)
        assert older in done.stdout + done.stderr
        assert "record 3: the hash chain is broken" in done.stdout + done.stderr
    error = shop.data("show", older, code=1)["error"]
    assert (error["saga"], error["n"]) == (older, 3)
    assert shop.data("verify", code=1)["error"]["reason"] == "the hash chain is broken"


def test_a_damaged_saga_is_listed_as_that(damaged):
    """The list goes on past a damaged saga, and says so: nothing is left out."""
    shop, older = damaged
    entries = shop.data("sagas", code=1)["sagas"]
    assert [entry["state"] for entry in entries] == ["open", "damaged"]
    told = shop.saga("sagas", code=1).stdout
    assert "DAMAGED" in told
    assert f"saga '{older}', record 3" in told


def test_recovery_goes_on_past_a_damaged_saga(damaged):
    """A damaged saga is named and left as it is; the others are recovered all the same."""
    shop, older = damaged
    told = shop.recover(code=1)
    assert f"saga {older} checkout: damaged, left as it is" in told.stdout
    assert "1 saga recovered, 1 damaged" in told.stdout
    assert shop.world() == ["charge", "launch", "pack", "charge", "launch", "stop", "refund", "unpack"]
    assert [one["action"] for one in shop.data("recover", "--dry-run", code=1)["sagas"]] == ["damaged"]


def test_a_row_that_differs_from_its_records_is_damage(shop):
    """Derived rows are compared with the records, also in lists."""
    shop.run("ok")
    in_the_log(shop, "UPDATE sagas SET state = 'rolled_back'")
    assert "its row differs from its records in state" in shop.saga("show", "order-ok", code=1).stderr
    assert shop.data("sagas", code=1)["sagas"][0]["state"] == "damaged"


def test_a_lost_wal_is_damage(shop):
    """A log behind its mark is refused: a committed saga must not look open again."""
    shop.run("die")
    shop.log.with_name("agent-saga.db-wal").unlink()
    shop.log.with_name("agent-saga.db-shm").unlink(missing_ok=True)
    done = shop.process("-m", "agent_saga", "recover")
    assert done.returncode in {1, 3}
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr


def test_a_truncated_file_is_damage(shop):
    """Half of the database is missing: exit 1, and no traceback."""
    shop.run("ok")
    with closing(sqlite3.connect(shop.log)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = shop.log.read_bytes()
    shop.log.write_bytes(content[: len(content) // 2])
    done = shop.process("-m", "agent_saga", "verify")
    assert done.returncode in {1, 3}
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("./broken.py", "1 / 0\n", "ZeroDivisionError: division by zero"),
        ("broken", "1 / 0\n", "broken.py, line 1"),
        ("./broken.py", "def (:\n", "SyntaxError"),
        ("./broken.py", "import nothing_of_the_kind\n", "No module named 'nothing_of_the_kind'"),
        ("./broken.py", "raise SystemExit('bye')\n", "SystemExit: bye"),
        ("./broken.py", "raise ValueError('two\\nlines')\n", "two\\nlines"),
        (
            "./broken.py",
            "import agent_saga as s\ns.AgentKit().declare('t', effect='odd')\n",
            "DeclarationError: tool 't'",
        ),
        ("./missing.py", "", "there is no such file"),
        ("missing.module", "", "No module named 'missing'; it was looked for in"),
        ("..", "", "--import .."),
    ],
)
def test_an_import_that_fails_is_one_line(shop, name, content, reason):
    """The user's own error in one line, exit 2, and nothing was recovered."""
    shop.run("die")
    (shop.folder / "broken.py").write_text(content)
    done = shop.saga("recover", "--import", name, code=2)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert reason in line
    assert shop.world() == ["charge", "launch"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[tool.agent-saga\n", "is not valid TOML"), ('[tool.agent-saga]\nimports = "shop"\n', "must be a list")],
)
def test_wrong_settings_are_usage_errors(shop, content, reason):
    """A pyproject.toml that cannot work is named, with its path."""
    shop.run("die")
    (shop.folder / "pyproject.toml").write_text(content)
    done = shop.saga("recover", code=2)
    assert reason in done.stderr
    assert str(shop.folder / "pyproject.toml") in done.stderr


def test_readers_never_run_what_settings_name(shop):
    """Only `recover` loads code; reading a log in a stranger's folder executes nothing."""
    shop.run("ok")
    (shop.folder / "pyproject.toml").write_text('[tool.agent-saga]\nimports = ["./evil.py"]\n')
    (shop.folder / "evil.py").write_text("open('executed', 'w')\n")
    for words in (("sagas",), ("show", "order-ok"), ("verify",), ("export",)):
        shop.saga(*words)
    assert not (shop.folder / "executed").exists()


def test_a_handler_that_does_not_fit_any_more_is_named(shop):
    """Another major version of a compensator is not given what the log recorded."""
    shop.run("die")
    program = (shop.folder / "shop.py").read_text()
    changed = program.replace('"shop.refund", idempotent=True', '"shop.refund", version=2, idempotent=True')
    assert changed != program
    (shop.folder / "newer.py").write_text(changed)
    told = shop.saga("recover", "--import", "./newer.py", code=1).stdout
    assert "loaded in version 2, the log asks for version 1" in told
    other = program.replace("def refund(charge_id: str)", "def refund(charge: str)").replace(
        "bind(charge_id", "bind(charge"
    )
    (shop.folder / "other.py").write_text(other)
    assert "does not take the recorded arguments" in shop.saga("recover", "--import", "./other.py", code=1).stdout


def test_a_log_of_a_newer_format_is_exit_3(shop):
    """A log that a newer version wrote is named as that."""
    shop.run("ok")
    in_the_log(shop, "UPDATE meta SET value = '2' WHERE name = 'format'")
    assert "log format 2" in shop.saga("verify", code=3).stderr


@pytest.mark.slow
def test_a_locked_log_is_exit_3(shop):
    """Another program that holds the file is waited for, then named."""
    shop.run("ok")
    with closing(sqlite3.connect(shop.log, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE meta SET value = value")
        done = shop.process("-m", "agent_saga", "sagas")
    assert done.returncode == 3
    assert "locked by another program" in done.stderr


def test_wrong_usage_is_exit_2(shop):
    """Unknown commands, options and values; options before the command's name."""
    shop.run("ok")
    for words, reason in [
        (("recovr",), "did you mean 'recover'?"),
        (("--log", "x", "sagas"), "write --log after the command's name"),
        (("--wal=x", "sagas"), "write --wal after the command's name"),
        (("sagas", "--limit", "0"), "0 is not in the range"),
        (("recover", "--watch", "--dry-run"), "do not go together"),
        (("recover", "--saga", "nobody"), "no saga of this log"),
        (("show",), "Missing argument"),
        (("show", "a\nb\x1b[2J"), "a\\nb\\x1b[2J"),
        (("export", "--format", "xml"), "'xml' is not"),
    ]:
        assert reason in shop.saga(*words, code=2).stderr


def test_copies_of_a_log_are_read_without_its_process(shop, tmp_path_factory):
    """A log whose owners' folder is gone is still shown."""
    shop.run("die")
    folder = tmp_path_factory.mktemp("copy")
    for file in shop.folder.glob("agent-saga.db*"):
        if file.is_file():
            shutil.copy(file, folder)
    assert "its process is dead" in shop.saga("show", "order-die", "--log", folder / "agent-saga.db").stdout


def test_a_full_disk_stops_recovery_before_its_effects(shop):
    """A log that takes no more records: exit 1, nothing compensated unlogged; with space again it is finished once."""
    shop.run("die")
    blocks = shop.log.with_name("agent-saga.db-wal").stat().st_size // 512 + 1
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({blocks * 512}, r.RLIM_INFINITY)); "
    program = f"{limit}from agent_saga.cli import main; main()"
    done = shop.process("-c", program, "recover", "--import", "shop")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "a commit to the log" in done.stderr
    assert shop.world() == ["charge", "launch"]
    shop.recover()
    assert shop.world() == ["charge", "launch", "stop", "refund"]
