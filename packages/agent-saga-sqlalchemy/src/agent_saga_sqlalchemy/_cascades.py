"""Rows that the database itself deletes or changes, because a foreign key of theirs refers to a row that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from agent_saga_sqlalchemy._rows import Facts, Key, Reference, Row, find
from agent_saga_sqlalchemy._statements import NotCapturable

FactsOf = Callable[[str], Facts]
Place = tuple[str, Key]


@dataclass(slots=True, kw_only=True)
class Kid:
    """A row that refers to a changed one.

    Attributes:
        parent: table and key, before the statement, of what it refers to.
    """

    facts: Facts
    row: Row
    parent: Place
    reference: Reference

    @property
    def place(self) -> Place:
        """Its table and key before the statement."""
        return self.facts.name, self.facts.key_of(self.row)


def of_delete(connection: Connection, facts: Facts, rows: Sequence[Row], facts_of: FactsOf) -> list[Kid]:
    """Return, locked, the rows that are deleted or changed with these, each once, parents first.

    Raises:
        NotCapturable: some of them cannot be captured.
    """
    gone = {(facts.name, facts.key_of(row)) for row in rows}
    found: dict[Place, Kid] = {}
    todo = [(facts, list(rows))]
    while todo:
        parent, deleted = todo.pop(0)
        for reference in parent.referenced_by if deleted else ():
            kids = _kids(connection, parent, deleted, reference, facts_of) if reference.on_delete else []
            for kid in kids:
                if kid.place not in gone:
                    found.setdefault(kid.place, kid)
            if reference.on_delete == "CASCADE":
                new = [kid for kid in kids if kid.place not in gone]
                gone |= {kid.place for kid in new}
                todo += [(new[0].facts, [kid.row for kid in new])] if new else []
    return list(found.values())


def of_update(
    connection: Connection, facts: Facts, rows: Sequence[Row], changed: frozenset[str], facts_of: FactsOf
) -> list[Kid]:
    """Return, locked, the rows that change when these columns of the rows change, parents first.

    Raises:
        NotCapturable: some of them cannot be captured.
    """
    found: list[Kid] = []
    seen: set[tuple[Place, tuple[str, ...]]] = set()
    todo = [(facts, list(rows), changed)]
    while todo:
        parent, moved, columns = todo.pop(0)
        for reference in parent.referenced_by if moved else ():
            if not reference.on_update or columns.isdisjoint(reference.parent_columns):
                continue
            kids = _kids(connection, parent, moved, reference, facts_of)
            new = [kid for kid in kids if (kid.place, reference.columns) not in seen]
            seen |= {(kid.place, reference.columns) for kid in new}
            found += new
            todo += [(new[0].facts, [kid.row for kid in new], frozenset(reference.columns))] if new else []
    return found


def now(
    connection: Connection, kids: Sequence[Kid], parents: Mapping[Place, Row | None], *, deleted: bool
) -> list[tuple[Kid, Row | None]]:
    """Return what has become of each row, innermost first; its key may contain what it refers by.

    Raises:
        NotCapturable: one cannot be found again.
    """
    keys: dict[Place, Row] = {}
    for kid in kids:  # Parents first, so that a key is followed down the levels.
        row = keys.setdefault(kid.place, dict(kid.row))
        parent: Row | None = keys.get(kid.parent) or parents.get(kid.parent)
        if not deleted and parent is not None and kid.reference.on_update == "CASCADE":
            names = zip(kid.reference.columns, kid.reference.parent_columns, strict=True)
            row.update((name, parent[other]) for name, other in names)
    by_table: dict[str, tuple[Facts, list[Key]]] = {}
    for kid in kids:
        by_table.setdefault(kid.facts.name, (kid.facts, []))[1].append(kid.facts.key_of(keys[kid.place]))
    left = {
        (name, facts.key_of(one)): one
        for name, (facts, wanted) in by_table.items()
        for one in find(connection, facts, wanted)
    }
    found = {kid.place: (kid, left.get((kid.facts.name, kid.facts.key_of(keys[kid.place])))) for kid in kids}
    for kid, now_there in found.values():
        sets_key = kid.reference.on_delete != "CASCADE" and not set(kid.reference.columns).isdisjoint(kid.facts.key)
        if now_there is None and (not deleted or sets_key):
            raise NotCapturable(f"a foreign key moved a row of {kid.facts.name} where it cannot be found")
    moves = [(place, kid.facts.key_of(one or kid.row)) for place, (kid, one) in reversed(found.items())]
    return [found[place] for place in vacated_first(moves) if place not in parents]


def vacated_first(moves: Sequence[tuple[Place, Key]]) -> list[Place]:
    """Return where rows were, given where each was and its key since, so that none moves to where another still is.

    Raises:
        NotCapturable: there is no such order, as where two rows swap their keys.
    """
    order: list[Place] = []
    todo = dict(moves)
    while todo:
        chain = dict.fromkeys([next(iter(todo))])
        place = next(iter(chain))
        while todo[place] != place[1] and (place[0], todo[place]) in todo:
            place = (place[0], todo[place])
            if place in chain:
                raise NotCapturable(f"a statement swaps the keys of rows of {place[0]}; do it in steps")
            chain[place] = None
        order += reversed(chain)
        for place in chain:
            del todo[place]
    return order


def _kids(
    connection: Connection, facts: Facts, rows: Sequence[Row], reference: Reference, facts_of: FactsOf
) -> list[Kid]:
    """Return, and lock, the rows that refer to these."""
    child = facts_of(reference.child)
    parents = {tuple(row[name] for name in reference.parent_columns): facts.key_of(row) for row in rows}
    found = [
        row
        for row in find(connection, child, list(parents), reference.columns)
        if tuple(row[name] for name in reference.columns) in parents
    ]
    if found and (child.problem or not child.key):
        raise NotCapturable(f"{reference.child} refers to {facts.name}, would change with it, and cannot be captured")
    return [
        Kid(
            facts=child,
            row=row,
            parent=(facts.name, parents[tuple(row[name] for name in reference.columns)]),
            reference=reference,
        )
        for row in found
    ]
