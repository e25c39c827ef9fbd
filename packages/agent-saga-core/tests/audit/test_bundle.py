"""Bundles: a log as files for storage that keeps. Rule ids: BU-n."""

import hashlib
import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_saga.audit.bundle import README, SUMS, check_bundle, write_bundle
from agent_saga.audit.note import Checkpoint, sign, verifier_of
from agent_saga.cli.app import cli
from agent_saga.errors import BadEvidence, CorruptLog, UsageError
from agent_saga.store.sqlite import SqliteLog
from pytest_agent_saga.conformance.sagas import committed, everything

PRIVATE = "11" * 32


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    everything(SqliteLog(folder / "log.db", create=True)).close()
    write_bundle(folder / "log.db", folder / "out", signed=lambda known: sign(known.text(), "auditor", PRIVATE))
    return folder


def writable(source, target):
    """Copy a bundle so that it can be doctored."""
    shutil.copytree(source, target)
    target.chmod(0o700)
    for file in target.iterdir():
        file.chmod(0o600)
    return target


def summed(folder):
    """Make the list of digests fit the files, as somebody who changes one would."""
    names = sorted(path.name for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines))


def test_a_bundle_is_whole_read_only_and_the_same_each_time(made, tmp_path):
    """BU-1: sha256sum and verify accept it, nobody may write its files, and it has no time or chance in it."""
    out = made / "out"
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", SUMS], cwd=out, check=True, timeout=60)
    report, checkpoint = check_bundle(out, verifier=verifier_of("auditor", PRIVATE))
    assert report.records > 100
    assert checkpoint.size > 10
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in out.iterdir())
    assert stat.S_IMODE(out.stat().st_mode) == 0o555
    write_bundle(made / "log.db", tmp_path / "again", signed=lambda known: sign(known.text(), "auditor", PRIVATE))
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()
    }
    with pytest.raises(UsageError, match="exists already"):
        write_bundle(made / "log.db", out, signed=Checkpoint.text)
    assert [path.name for path in made.iterdir() if path.name.endswith((".partial", ".bundle"))] == []


@pytest.mark.parametrize("name", ["records.jsonl", "sagas.jsonl", "facts.jsonl", "checkpoint.txt", README, SUMS])
def test_every_changed_byte_is_noticed(made, tmp_path, name):
    """BU-2: one byte of any file, anywhere."""
    copy = writable(made / "out", tmp_path / "copy")
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises((CorruptLog, UsageError)):
        check_bundle(copy, verifier=None)


def edit_payload(rows):
    row = next(row for row in rows if row["payload"])
    row["payload"] = row["payload"].replace("cus_1", "cus_2")


def cut_the_last(rows):
    rows.pop()


def drop_one(rows):
    del rows[len(rows) // 2]


def swap_two(rows):
    rows[3]["pos"], rows[4]["pos"] = rows[4]["pos"], rows[3]["pos"]


@pytest.mark.parametrize("edit", [edit_payload, cut_the_last, drop_one, swap_two])
def test_who_makes_the_digests_anew_is_noticed(made, tmp_path, edit):
    """BU-3: digests that fit a doctored record list do not help: the chains do not."""
    copy = writable(made / "out", tmp_path / "copy")
    rows = [json.loads(line) for line in (copy / "records.jsonl").read_text("utf-8").splitlines()]
    edit(rows)
    text = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
    (copy / "records.jsonl").write_text(text, "utf-8")
    summed(copy)
    with pytest.raises(CorruptLog):
        check_bundle(copy, verifier=None)


def test_a_bundle_of_another_log_is_not_that_of_the_key(made, tmp_path):
    """BU-4: a bundle made anew as a whole verifies, and is not signed by the key: who made it is what a key tells."""
    with_one = SqliteLog(tmp_path / "log.db", create=True)
    committed(with_one, 1)
    with_one.close()
    write_bundle(tmp_path / "log.db", tmp_path / "forged", signed=Checkpoint.text)
    check_bundle(tmp_path / "forged", verifier=None)
    with pytest.raises((BadEvidence, UsageError)):
        check_bundle(tmp_path / "forged", verifier=verifier_of("auditor", PRIVATE))
    mixed = writable(tmp_path / "forged", tmp_path / "mixed")
    shutil.copy(made / "out" / "checkpoint.txt", tmp_path / "note")
    (mixed / "checkpoint.txt").write_bytes((tmp_path / "note").read_bytes())
    summed(mixed)
    with pytest.raises(CorruptLog, match="checkpoint"):
        check_bundle(mixed, verifier=verifier_of("auditor", PRIVATE))


def test_files_too_many_or_too_few(made, tmp_path):
    """BU-5: a file more, or one less, is noticed."""
    copy = writable(made / "out", tmp_path / "copy")
    (copy / "note.txt").write_text("x")
    with pytest.raises(CorruptLog, match="note.txt"):
        check_bundle(copy, verifier=None)
    (copy / "note.txt").unlink()
    (copy / "keys.jsonl").unlink()
    with pytest.raises(CorruptLog, match="keys.jsonl"):
        check_bundle(copy, verifier=None)
    with pytest.raises(UsageError):
        check_bundle(tmp_path, verifier=None)


def test_the_commands(made, tmp_path):
    """BU-6: bundle and verify --bundle, with exit codes."""
    key = tmp_path / "key"
    assert CliRunner().invoke(cli, ["keys", "new", str(key)]).exit_code == 0
    log, out = str(made / "log.db"), str(tmp_path / "out")
    done = CliRunner().invoke(cli, ["bundle", out, "--log", log, "--key", str(key), "--name", "acme"])
    assert done.exit_code == 0, done.output
    public = done.output.rpartition("public key: ")[2].strip()
    good = CliRunner().invoke(cli, ["verify", "--bundle", out, "--key", public])
    assert (good.exit_code, "signed by that key" in good.output) == (0, True)
    copy = writable(Path(out), tmp_path / "copy")
    (copy / "sagas.jsonl").write_text("")
    bad = CliRunner().invoke(cli, ["verify", "--bundle", str(copy), "--json"])
    assert (bad.exit_code, json.loads(bad.stdout)["error"]["code"]) == (1, "AS-0604")
    assert CliRunner().invoke(cli, ["verify", "--bundle", str(tmp_path / "none")]).exit_code == 2
