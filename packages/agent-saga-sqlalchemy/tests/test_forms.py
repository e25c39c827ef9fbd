"""Statements that are hard to take back, on names that need their quotes: one at a time, and many at random."""

import importlib
import random

import pytest
import sqlalchemy as sa

from agent_saga_sqlalchemy import NotCapturable, protect

METADATA = sa.MetaData()
ITEM = sa.Table(
    'Item:x% "q',
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("select", sa.String, unique=True),
    sa.Column("n:m%", sa.Integer, server_default="7"),
    sa.Column("place", sa.Integer, unique=True),
)
PART = sa.Table(
    "part",
    METADATA,
    sa.Column("item", sa.ForeignKey(ITEM.c.id, ondelete="CASCADE", onupdate="CASCADE"), primary_key=True),
    sa.Column("no", sa.Integer, primary_key=True),
    sa.Column("text", sa.String),
)
NOTE = sa.Table(
    "note",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("item", sa.Integer),
    sa.Column("no", sa.Integer),
    sa.Column("other", sa.ForeignKey(ITEM.c.id, ondelete="SET NULL", onupdate="SET NULL")),
    sa.ForeignKeyConstraint(["item", "no"], ["part.item", "part.no"], ondelete="CASCADE", onupdate="CASCADE"),
)
NODE = sa.Table(
    "node",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("up", sa.ForeignKey("node.id")),
    sa.Column("x", sa.Float),
)
NAME, NUMBER = ITEM.c["select"], ITEM.c["n:m%"]


class Boom(Exception):
    pass


def _upsert(c, values, **on):
    insert = importlib.import_module(f"sqlalchemy.dialects.{c.dialect.name}").insert(ITEM)
    insert = insert.from_select(*values) if isinstance(values, tuple) else insert.values(values)
    return c.execute(insert.on_conflict_do_update(**on) if on else insert.on_conflict_do_nothing())


def _upsert_all(c):
    insert = importlib.import_module(f"sqlalchemy.dialects.{c.dialect.name}").insert(ITEM)
    insert = insert.values([{"id": 1, "select": "e1", "place": 50}, {"id": 66, "select": "e66", "place": 51}])
    one = {column.name: column for column in insert.excluded}
    c.execute(insert.on_conflict_do_update(index_elements=["id"], set_=one))


def _prefixed(c, prefix, values):
    """Of SQLite alone."""
    c.execute(ITEM.insert().prefix_with(prefix, dialect="sqlite"), values if c.dialect.name == "sqlite" else {"id": 99})


def _many(c, *pairs):
    update = ITEM.update().where(ITEM.c.id == sa.bindparam("b")).values(place=sa.bindparam("v"))
    c.execute(update, [{"b": b, "v": v} for b, v in pairs])


def _swap(c):
    for number, name in ((1, "apart"), (2, "s1"), (1, "s2")):
        c.execute(ITEM.update().where(ITEM.c.id == number).values({"select": name}))


FORMS = {
    "delete at random": lambda c: c.execute(
        ITEM.delete().where(ITEM.c.id.in_(sa.select(ITEM.c.id).order_by(sa.func.random()).limit(2)))
    ),
    "update at random": lambda c: c.execute(
        ITEM.update().where(ITEM.c.id.in_(sa.select(ITEM.c.id).order_by(sa.func.random()).limit(2))).values(place=None)
    ),
    "shift a unique column": lambda c: c.execute(ITEM.update().values(place=ITEM.c.place - 1)),
    "shift keys": lambda c: c.execute(ITEM.update().values(id=ITEM.c.id - 1)),
    "move keys": lambda c: c.execute(ITEM.update().values(id=ITEM.c.id + 100)),
    "move a tree": lambda c: c.execute(NODE.update().values(id=NODE.c.id + 100, up=NODE.c.up + 100)),
    "delete a tree": lambda c: c.execute(NODE.delete()),
    "delete all": lambda c: c.execute(ITEM.delete()),
    "insert defaults": lambda c: c.execute(NODE.insert()),
    "insert by expression": lambda c: c.execute(
        NODE.insert().values(id=sa.select(sa.func.max(NODE.c.id) + 1).scalar_subquery(), x=4)
    ),
    "upsert by name": lambda c: _upsert(c, {"select": "s2"}, index_elements=["select"], set_={"n:m%": 1}),
    "upsert nothing": lambda c: _upsert(c, [{"select": "s2"}, {"select": "new"}]),
    "upsert from select": lambda c: _upsert(
        c,
        (["select", "n:m%"], sa.select(NAME, sa.literal(4)).where(sa.true())),
        index_elements=["select"],
        set_={"n:m%": 44},
    ),
    "upsert all columns": _upsert_all,
    "replace": lambda c: _prefixed(c, "OR REPLACE", {"id": 50, "select": "s1", "place": 2}),
    "ignore": lambda c: _prefixed(c, "OR IGNORE", [{"select": "s1"}, {"select": "ww"}]),
    "update from": lambda c: c.execute(
        NOTE.update()
        .where(NOTE.c.item == PART.c.item, PART.c.no == 2, PART.c.item > 1)
        .values(other=None, no=PART.c.no)
    ),
    "swap names": _swap,
    "twice in many": lambda c: _many(c, (1, 300), (1, 400), (2, 500)),
    "many, one fails": lambda c: _many(c, (1, 300), (2, 3)),
    "delete and insert": lambda c: (
        c.execute(PART.delete().where(PART.c.item == 2)),
        c.execute(PART.insert().values(item=2, no=1, text="again")),
    ),
    "delete where exists": lambda c: c.execute(
        ITEM.delete().where(sa.exists().where(PART.c.item == ITEM.c.id, PART.c.no == 2))
    ),
}


def _dump(engine):
    with engine.connect() as c:
        return {table.name: sorted(map(repr, c.execute(sa.select(table)))) for table in METADATA.sorted_tables}


def _fill(engine):
    with engine.begin() as c:
        for table in reversed(METADATA.sorted_tables):
            c.execute(table.delete())
        c.execute(ITEM.insert(), [{"id": i, "select": f"s{i}", "place": i} for i in range(1, 6)])
        c.execute(PART.insert(), [{"item": i, "no": j, "text": "x"} for i in (1, 2, 3) for j in (1, 2)])
        c.execute(NOTE.insert(), [{"id": f"g{i}", "item": i, "no": 1, "other": i} for i in (1, 2, 3)])
        c.execute(NODE.insert(), [{"id": 1, "up": None}, {"id": 2, "up": 1}, {"id": 3, "up": 2}])


@pytest.fixture
def shop(engine, kit):
    protect(engine, kit)
    METADATA.create_all(engine)
    yield engine
    METADATA.drop_all(engine)


def _run(engine, kit, forms, *, savepoints, chance):
    """Run forms in a saga that fails; return how the database differs after it, and how often it was changed."""
    _fill(engine)
    before, changed = _dump(engine), 0
    with pytest.raises(Boom):
        with kit.transaction("forms") as saga:
            with engine.connect() as c:
                for form in forms:
                    try:
                        if savepoints:
                            with c.begin_nested():
                                FORMS[form](c)
                        else:
                            FORMS[form](c)
                    except sa.exc.IntegrityError:
                        continue
                    if chance.random() < 0.3:
                        c.commit()
                try:
                    c.commit()
                except NotCapturable:
                    assert not savepoints
            changed += before != _dump(engine)
            raise Boom
    assert saga.report.clean
    assert saga.report.verified
    assert before == _dump(engine), forms
    return changed


def test_each_form_is_taken_back(shop, kit):
    """Each form changes something, and is taken back exactly; with a rolled-back savepoint too where it fails."""
    chance = random.Random(1)
    assert sum(_run(shop, kit, [form], savepoints=True, chance=chance) for form in FORMS) >= len(FORMS) - 4


@pytest.mark.slow
def test_any_forms_are_taken_back(shop, kit):
    """Any sequence of them, in any number of transactions, is taken back exactly."""
    chance = random.Random(2)
    drawn = (chance.choices(list(FORMS), k=chance.randint(2, 6)) for _ in range(20))
    assert sum(_run(shop, kit, forms, savepoints=True, chance=chance) for forms in drawn) > 10


def test_a_part_of_a_failed_statement_is_never_committed(shop, kit):
    """Where a database keeps what the first of many parameter sets did when a later one fails, it commits none."""
    assert _run(shop, kit, ["many, one fails"], savepoints=False, chance=random.Random(3)) == 0


def test_the_rows_that_were_seen_are_those_that_are_written(shop, kit, monkeypatch):
    """The twin of the rule: a statement that is left as it was written changes rows that nobody saw."""
    capture = importlib.import_module("agent_saga_sqlalchemy._capture")
    monkeypatch.setattr(capture, "_pinned", lambda statement, pending: statement)
    missed = 0
    for _ in range(8):
        _fill(shop)
        before = _dump(shop)
        with pytest.raises((Boom, Exception)):
            with kit.transaction("twin"):
                with shop.begin() as c:
                    FORMS["update at random"](c)
                raise Boom
        missed += before != _dump(shop)
    assert missed


def test_an_outer_savepoint_takes_inner_changes_with_it(shop, kit):
    """Images inside of an outer savepoint that is rolled back are dropped, an open inner one or not."""
    _fill(shop)
    before = _dump(shop)
    with pytest.raises(Boom):
        with kit.transaction("savepoints"):
            with shop.begin() as c:
                c.execute(NODE.insert().values(id=50))
                outer = c.begin_nested()
                c.execute(NODE.insert().values(id=51))
                with c.begin_nested():
                    c.execute(NODE.insert().values(id=52))
                outer.rollback()
                c.execute(NODE.insert().values(id=53))
            assert len(_dump(shop)["node"]) == 5
            raise Boom
    assert before == _dump(shop)


def test_returning_gives_what_was_asked_for(shop, kit):
    """A RETURNING that does not name the key is the same inside a saga, and rows that were met are told."""
    _fill(shop)
    with kit.transaction("returning"):
        with shop.begin() as c:
            assert c.execute(ITEM.insert().values({"id": 30, "select": "zz"}).returning(NAME, NUMBER)).all() == [
                ("zz", 7)
            ]
            many = c.execute(ITEM.insert().returning(NAME), [{"id": 31, "select": "a1"}, {"id": 32, "select": "a2"}])
            assert many.scalars().all() == ["a1", "a2"]
            assert _upsert(c, [{"id": 33, "select": "s2"}, {"id": 34, "select": "new"}]).rowcount == 1


def test_images_that_the_log_cannot_keep_are_in_the_database(shop, kit):
    """A transaction whose images are megabytes is taken back too, and its images are gone then."""
    _fill(shop)
    noise = random.Random(4)
    before = _dump(shop)
    with pytest.raises(Boom):
        with kit.transaction("large") as saga:
            with shop.begin() as c:
                c.execute(NOTE.insert(), [{"id": f"{i}-{noise.randbytes(200).hex()}"} for i in range(6000)])
                c.execute(NODE.insert(), [{"id": i, "x": noise.random()} for i in range(1000, 5000)])
            raise Boom
    assert saga.report.verified
    assert before == _dump(shop)
    with shop.connect() as c:
        assert c.exec_driver_sql("SELECT count(*) FROM agent_saga_images").scalar() == 0
