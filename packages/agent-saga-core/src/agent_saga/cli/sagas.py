"""`agent-saga sagas`: the list, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import Output, columns, moment, visible

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore, StoredRow
    from agent_saga.store.reader import Loaded

STATES = ("open", "rolling_back", "committed", "rolled_back", "suspended", "abandoned")
_COLOURS = {"committed": "green", "rolled_back": "green", "open": "blue"}


@click.command(short_help="List sagas, newest first.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this state; repeatable.")
@click.option("--name", help="Only sagas of this name.")
@click.option("--needs-human", is_flag=True, help="Only sagas with a step that no retry can settle.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Sagas on a page.")
@click.option("--after", metavar="ID", help="Continue after this saga, the last of a page.")
@log_command()
def sagas(
    session: Session, states: tuple[str, ...], name: str | None, *, needs_human: bool, limit: int, after: str | None
) -> int:
    """List sagas, newest first. Each is read and checked; a damaged one is listed as that, and the exit code is 1."""
    from agent_saga.store.port import Query

    with session.reading() as store:
        query = Query(states=states or None, name=name, needs_human=needs_human, after=after, limit=limit + 1)
        page = store.rows(query)
        entries = [_entry(store, row) for row in page[:limit]]
        more = page[limit - 1].saga_id if len(page) > limit else None
    damaged = any(entry["damage"] is not None for entry in entries)
    if session.out.as_json:
        fields: dict[str, Any] = {"log": session.place, "sagas": entries, "next_after": more}
        session.out.document("sagas/1", {**fields, "exit": FINDING if damaged else FINE})
    else:
        _print(session.out, entries)
        if more is not None:
            session.out.line(f"more: {_next_page(session, states, name, more, limit, needs_human=needs_human)}")
    return FINDING if damaged else FINE


def _entry(store: LogStore, row: StoredRow) -> dict[str, Any]:
    """Return one saga for the list, from its records and not from its row, which is only derived."""
    from agent_saga.errors import CorruptLog, RecordsPruned
    from agent_saga.store.reader import load

    try:
        loaded = load(store, row.saga_id)
    except RecordsPruned:
        return _stays(row)
    except CorruptLog as error:
        if error.saga_id is None:
            raise
        return {"saga": row.saga_id, "name": str(row.row.name), "state": "damaged", "damage": str(error)}
    assert loaded is not None  # Rows are never removed.
    return _fields(loaded)


def _stays(row: StoredRow) -> dict[str, Any]:
    """Return what the row alone says: all that stays of a saga that was pruned."""
    kept = row.row
    return {
        "saga": row.saga_id,
        "name": kept.name,
        "state": kept.state,
        "key": kept.key,
        "incarnation": kept.incarnation,
        "opened_at": kept.opened_at,
        "changed_at": None,
        "steps": None,
        "work": kept.work,
        "needs_human": kept.human,
        "sealed": kept.sealed,
        "cause": None,
        "damage": None,
        "pruned": True,
    }


def _fields(loaded: Loaded) -> dict[str, Any]:
    from agent_saga.machine.row import row_of

    view = loaded.view
    row = row_of(view)
    return {
        "saga": view.id,
        "name": view.name,
        "state": view.state.value,
        "key": view.key,
        "incarnation": view.incarnation,
        "opened_at": view.opened_at,
        "changed_at": view.changed_at,
        "steps": len(view.steps),
        "work": row.work,
        "needs_human": row.human,
        "sealed": row.sealed,
        "cause": view.cause,
        "damage": None,
    }


def _print(out: Output, entries: list[dict[str, Any]]) -> None:
    if not entries:
        out.line("no sagas")
        return
    head = ("SAGA", "STATE", "LEFT", "STEPS", "OPENED", "NAME", "KEY")
    rows = [head, *(_cells(entry) for entry in entries)]
    lines = columns(rows)
    out.line(out.paint(lines[0], "bold"))
    for entry, line in zip(entries, lines[1:], strict=True):
        out.line(_painted(out, entry, line))
        if entry["damage"] is not None:
            out.line(f"  damage: {visible(entry['damage'], length_max=300)}")


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    if entry["damage"] is not None:
        return visible(entry["saga"]), "DAMAGED", "?", "?", "?", visible(entry["name"]), ""
    work, human = entry["work"], entry["needs_human"]
    left = "-" if not work else f"{work}, human" if human else str(work)
    key = "" if entry["key"] is None else visible(entry["key"], length_max=40)
    return (
        entry["saga"],
        entry["state"].replace("_", " "),
        left,
        "pruned" if entry["steps"] is None else str(entry["steps"]),
        moment(entry["opened_at"]),
        visible(entry["name"], length_max=40),
        key,
    )


def _painted(out: Output, entry: dict[str, Any], line: str) -> str:
    if entry["damage"] is not None:
        return out.paint(line, "red")
    colour = "yellow" if entry["work"] else _COLOURS.get(entry["state"], "yellow")
    return out.paint(line, colour)


def _next_page(
    session: Session, states: tuple[str, ...], name: str | None, more: str, limit: int, *, needs_human: bool
) -> str:
    words = [word for state in states for word in ("--state", state)]
    words += ["--name", name] if name is not None else []
    words += ["--needs-human"] if needs_human else []
    return session.command_line("sagas", *words, "--limit", str(limit), "--after", more)
