"""A bundle: a log as files that any tool can read, with a checkpoint and a list of digests, for storage that keeps.

The same log gives the same bytes. `sha256sum -c SHA256SUMS` tells whether a file was changed, `check_bundle` whether
the log in them is whole, and with a key whether it is the one whose checkpoint was signed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import apsw
import msgspec

from agent_saga.audit.leaves import checkpoint_of
from agent_saga.audit.note import open_note, parse_checkpoint
from agent_saga.errors import CorruptLog, UsageError
from agent_saga.store.connection import WAIT_TO_READ_S, connect
from agent_saga.store.schema import ROW_COLUMNS, create_file
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import VerifyReport, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.audit.note import Checkpoint, Verifier

SUMS: Final = "SHA256SUMS"
CHECKPOINT: Final = "checkpoint.txt"
README: Final = "README.txt"
_TABLES: Final = {
    "meta.jsonl": ("meta", "name, value", "WHERE name <> 'sync' ORDER BY name"),
    "records.jsonl": ("records", "pos, saga, n, body, payload, hash", "ORDER BY pos"),
    "sagas.jsonl": ("sagas", ROW_COLUMNS, "ORDER BY saga"),
    "keys.jsonl": ("keys", "key, saga", "ORDER BY key"),
    "facts.jsonl": ("facts", "kind, name, saga, no, value, at", "ORDER BY kind, name, saga, no"),
}
"""File -> table, its columns, and what follows."""
_FILES: Final = frozenset({*_TABLES, CHECKPOINT, README})
_LINE_BYTES_MAX: Final = 1 << 30
_TEXT: Final = """A log of agent-saga, as files: one JSON object on a line for each row of a table.

  records.jsonl  every record: body and payload as they are stored, and the hash that chains it to the one before it
  sagas.jsonl    the state of each saga, which follows from its records
  keys.jsonl facts.jsonl meta.jsonl   what else the log holds; it follows from the records too, but for the log's id
  checkpoint.txt the root of the tree of sealed sagas, and the last record: a C2SP checkpoint, signed if a key was given
  SHA256SUMS     the digest of each of these files

Check the files:  sha256sum -c SHA256SUMS
Check the log:    agent-saga verify --bundle . --key PUBLIC-KEY
Without the key that signed the checkpoint nobody can tell that all of these files were made anew.
"""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def write_bundle(log: Path, folder: Path, *, signed: Callable[[Checkpoint], str]) -> Checkpoint:
    """Write a log into a new folder of read-only files; return the checkpoint in it.

    Args:
        log: the file of the log; live processes may write it meanwhile.
        folder: does not exist.
        signed: returns the text of the checkpoint's file.

    Raises:
        UsageError: the folder exists, or cannot be made.
        CorruptLog: the log is damaged; nothing is left.

    Durability:
        On return the files are complete and durable. The log is as it was at one moment.
    """
    if folder.exists():
        raise UsageError(f"{folder} exists already: nothing is overwritten")
    hidden = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.partial")
    try:
        hidden.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    try:
        with tempfile.TemporaryDirectory(prefix=".bundle-", dir=folder.parent) as passing:
            checkpoint = _fill(log, Path(passing) / "log.db", hidden, signed)
        for file in hidden.iterdir():
            _settle(file, 0o444)
        _settle(hidden, 0o555)
        hidden.rename(folder)
        _settle(folder.parent, None)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    finally:
        if hidden.exists():
            hidden.chmod(0o700)
            shutil.rmtree(hidden)
    return checkpoint


def _fill(log: Path, copy: Path, folder: Path, signed: Callable[[Checkpoint], str]) -> Checkpoint:
    _copy(log, copy)
    store = SqliteLog(copy, create=False)
    try:
        verify(store)
        checkpoint = checkpoint_of(store)
    finally:
        store.close()
    sums = {}
    for name, lines in (
        *((name, _lines(copy, *table)) for name, table in _TABLES.items()),
        (CHECKPOINT, iter([signed(checkpoint).encode()])),
        (README, iter([_TEXT.encode()])),
    ):
        digest = hashlib.sha256()
        with (folder / name).open("xb") as file:
            for line in lines:
                file.write(line)
                digest.update(line)
        sums[name] = digest.hexdigest()
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    (folder / SUMS).write_text(text, encoding="ascii")
    return checkpoint


def _copy(log: Path, copy: Path) -> None:
    source, _ = connect(log, vfs=None, wait_s=WAIT_TO_READ_S)
    target = apsw.Connection(str(copy))
    try:
        with target.backup("main", source, "main") as backup:
            backup.step(-1)
    finally:
        target.close()
        source.close()


def _lines(copy: Path, table: str, columns: str, rest: str) -> Iterator[bytes]:
    names = columns.split(", ")
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for values in connection.execute(f"SELECT {columns} FROM {table} {rest}"):  # noqa: S608 - constants.
            yield _encode({name: _plain(name, value) for name, value in zip(names, values, strict=True)}) + b"\n"
    finally:
        connection.close()


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON holds it: digests as hex, other bytes as the text that they are, or else as base64."""
    if not isinstance(value, bytes):
        return value
    if name in {"hash", "head"}:
        return value.hex()
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _stored(name: str, value: Any) -> Any:
    """Return what `_plain` was given."""
    if name in {"hash", "head"}:
        return bytes.fromhex(value)
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return value.encode() if name in {"body", "payload"} and value is not None else value


def _settle(path: Path, mode: int | None) -> None:
    """Make a file, or a folder's list of files, durable, and read-only if a mode says so."""
    if mode is not None:
        path.chmod(mode)
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_bundle(folder: Path, *, verifier: Verifier | None) -> tuple[VerifyReport, Checkpoint]:
    """Check a bundle: digests, every record, chain and derived row, and the checkpoint.

    Args:
        folder: the bundle.
        verifier: the key that must have signed the checkpoint; None takes it as it is.

    Raises:
        UsageError: it is no bundle.
        BadEvidence: the key did not sign the checkpoint.
        CorruptLog: something in it was changed.
    """
    _check_sums(folder)
    note = (folder / CHECKPOINT).read_text("utf-8")
    said = parse_checkpoint(note if verifier is None else open_note(note, verifier))
    with tempfile.TemporaryDirectory(prefix="bundle-") as passing:
        path = Path(passing) / "log.db"
        create_file(path)
        _restore(folder, path)
        store = SqliteLog(path, create=False)
        try:
            report = verify(store)
            now = checkpoint_of(store)
        finally:
            store.close()
    if (now.origin, now.size, now.root, now.tail) != (said.origin, said.size, said.root, said.tail):
        raise CorruptLog("the records in it are not those of its checkpoint: it was cut, or written anew")
    return report, said


def _check_sums(folder: Path) -> None:
    try:
        lines = (folder / SUMS).read_text("ascii").splitlines()
        there = {path.name for path in folder.iterdir()}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder} is no bundle: its {SUMS} cannot be read ({error})") from None
    told = {line[66:]: line[:64] for line in lines if line[64:66] == "  "}
    if told.keys() != _FILES or len(lines) != len(_FILES):
        raise CorruptLog(f"{SUMS} of the bundle does not name its files, each once")
    if there != {*_FILES, SUMS}:
        odd = sorted(there ^ {*_FILES, SUMS})
        raise CorruptLog(f"the bundle has files too many or too few: {', '.join(odd)}")
    for name, digest in told.items():
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise CorruptLog(f"{name} of the bundle is not the file that {SUMS} names: it was changed")


def _restore(folder: Path, path: Path) -> None:
    """Make a log of the files of a bundle.

    Raises:
        CorruptLog: a line is none that a bundle has.
    """
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM meta WHERE name <> 'sync'")
        for name, (table, columns, _) in _TABLES.items():
            names = columns.split(", ")
            sql = f"INSERT INTO {table} ({columns}) VALUES({', '.join('?' * len(names))})"
            with (folder / name).open("rb") as file:
                connection.executemany(sql, _values(file, names))
        connection.execute("COMMIT")
    except (apsw.Error, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CorruptLog(f"the bundle cannot be read as a log: {error}") from error
    finally:
        connection.close()


def _values(file: IO[bytes], names: list[str]) -> Iterator[list[Any]]:
    while line := file.readline(_LINE_BYTES_MAX):
        row = _decode(line)
        if [*row] != names:
            raise ValueError(f"a line has the fields {', '.join(row)}")
        yield [_stored(name, value) for name, value in row.items()]
