"""`agent-saga redact` and `prune`: what leaves a log on purpose, with a record that says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.audit.prune import Pruning

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@click.command(short_help="Destroy values of a sealed saga; the log stays verifiable.")
@click.argument("saga")
@click.argument("path")
@click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Why; recorded.")
@log_command()
def redact(session: Session, saga: str, path: str, by: str, reason: str) -> int:
    """Destroy what PATH names in the values of SAGA (id, beginning of an id, or key), and of what amends it.

    PATH is dotted: kwargs.card, kwargs.items.0.cvv, kwargs.items.*.cvv, result.token, kwargs (all of them). Texts and
    salts leave the log's file, its -wal and its free pages, which are written anew; chains, leaves, proofs and
    checkpoints stay. It cannot be taken back. Exit code 1: nothing matched, or a copy of a removed text is elsewhere in
    the saga.
    """
    from agent_saga.audit.redact import redact as destroy
    from agent_saga.cli.find import find_saga

    with session.writing() as writer:
        done = destroy(writer.store, find_saga(writer.store, saga), path, by=by, reason=reason)
    code = FINE if done.values and not done.copies else FINDING
    if session.out.as_json:
        places = {"values": done.values, "copies": done.copies}
        fields = {name: [{"saga": s, "n": n, "value": v} for s, n, v in found] for name, found in places.items()}
        session.out.document("redact/1", {"log": session.place, "saga": done.saga_id, **fields, "exit": code})
        return code
    for saga_id, n, name in done.values:
        session.out.line(f"redacted  record {n} of saga {saga_id}: {visible(name)}")
    for saga_id, n, name in done.copies:
        session.out.line(f"a copy    record {n} of saga {saga_id}: {visible(name)} still holds a text that was removed")
    if not done.values:
        session.out.line("nothing redacted: the path names no value that is there (what it named may be gone already)")
    return code


@click.command(short_help="Remove payloads or records of old sealed sagas; leaves stay.")
@click.option("--before", metavar="TIME", help="Sagas over since before this: 2026-01-31, or with a time; UTC.")
@click.option("--older-than", metavar="AGE", help="Sagas that are over for longer: seconds, or 12h, 90d, 52w.")
@click.option("--payloads-only", is_flag=True, help="Remove only the values; kinds, states, names and times stay.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be removed.")
@click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Why; recorded.")
@log_command()
def prune(
    session: Session,
    *,
    before: str | None,
    older_than: str | None,
    payloads_only: bool,
    dry_run: bool,
    by: str,
    reason: str,
) -> int:
    """Remove the records of sealed sagas, whose newest fact is older than a time; each is checked first.

    Their rows, keys and leaves stay: the tree, checkpoints and proofs of other sagas hold as before, and a key that has
    committed stays committed. What is open, has work left or is in force (a halt, a key, an approval) stays whole. The
    file is written anew, and nothing of what was removed is left in it.
    """
    from agent_saga.audit.prune import prune as remove

    limit = _limit(before, older_than)
    with session.writing() as writer:
        done = remove(writer.store, before_ns=limit, by=by, reason=reason, payloads_only=payloads_only, dry_run=dry_run)
    if session.out.as_json:
        fields = {"sagas": done.sagas, "records": done.records, "kept": done.kept, "before": limit}
        flags = {"payloads_only": payloads_only, "dry_run": dry_run}
        session.out.document("prune/1", {"log": session.place, **fields, **flags, "exit": FINE})
    else:
        _say(session, done, payloads_only=payloads_only, dry_run=dry_run)
    return FINE


def _say(session: Session, done: Pruning, *, payloads_only: bool, dry_run: bool) -> None:
    what = "payloads of" if payloads_only else "all records of"
    verb = "would remove" if dry_run else "removed"
    session.out.line(f"{verb} {what} {done.sagas} sagas ({done.records} records)")
    if done.kept:
        session.out.line(f"kept {done.kept} sagas that are as old: not sealed, a newer fact, or something in force")


def _limit(before: str | None, older_than: str | None) -> int:
    """Return a moment in nanoseconds since 1970.

    Raises:
        UsageError: none is given, or both, or one that has no meaning.
    """
    import datetime as dt
    from time import time_ns

    if (before is None) == (older_than is None):
        raise UsageError("give either --before TIME or --older-than AGE")
    if older_than is not None:
        found = re.fullmatch(r"(\d{1,9})([smhdw]?)", older_than)
        if found is None:
            raise UsageError(f"--older-than '{visible(older_than)}' is no age: seconds, or 12h, 90d, 52w")
        return time_ns() - int(found[1]) * _UNITS[found[2]] * 10**9
    try:
        moment = dt.datetime.fromisoformat(str(before))
    except ValueError:
        raise UsageError(f"--before '{visible(str(before))}' is no time: 2026-01-31, or 2026-01-31T12:00:00") from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return int(aware.timestamp() * 10**9)
