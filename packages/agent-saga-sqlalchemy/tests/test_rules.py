"""Conflicts, refusals, and what an error at the commit leaves behind."""

import pytest
import sqlalchemy as sa
from shop_world import Boss, Kid, Pair, Parent, dump
from sqlalchemy.orm import Session

from agent_saga import Refuse, RollbackIncomplete
from agent_saga.errors import GateRefused, NoSaga
from agent_saga_sqlalchemy import NotCapturable, protect

PAIR = Pair.__table__


class Boom(Exception):
    pass


def _dump(engine):
    with engine.connect() as connection:
        return dump(connection)


def test_a_foreign_update_is_never_lost(engine, kit, foreign):
    """A row changed since is a conflict with three values, and nothing of that step is written."""
    protect(engine, kit)
    with pytest.raises(RollbackIncomplete) as caught:
        with kit.transaction("order"):
            with engine.begin() as connection:
                connection.execute(PAIR.update().where(PAIR.c.a == 1).values(n=50))
            with foreign() as connection:
                connection.execute(PAIR.update().where(PAIR.c["B: key"] == "x").values(n=99))
            left = _dump(engine)
            raise Boom
    assert left == _dump(engine)
    (step,) = caught.value.report.conflicted
    for value in ("1", "50", "99"):
        assert value in step.reason


def test_a_foreign_update_of_another_column_is_no_conflict(engine, kit, foreign):
    """Only the columns that the step wrote are compared and restored."""
    protect(engine, kit)
    with pytest.raises(Boom):
        with kit.transaction("order"):
            with engine.begin() as connection:
                connection.execute(sa.update(Kid).where(Kid.id == 1).values(name="ours"))
            with foreign() as connection:
                connection.execute(sa.update(Kid).where(Kid.id == 1).values(parent_id=2))
            raise Boom
    with engine.connect() as connection:
        assert connection.execute(sa.select(Kid.parent_id, Kid.name).where(Kid.id == 1)).one() == (2, "k")


def test_a_foreign_row_that_refers_to_ours_is_a_conflict(engine, kit, foreign):
    """A row that a cascade would take away with ours is never lost."""
    protect(engine, kit)
    with pytest.raises(RollbackIncomplete):
        with kit.transaction("order"):
            with engine.begin() as connection:
                connection.execute(sa.insert(Parent).values(id=77))
            with foreign() as connection:
                connection.execute(sa.insert(Kid).values(id=77, parent_id=77, name="theirs"))
            raise Boom
    with engine.connect() as connection:
        assert connection.execute(sa.select(Kid.name).where(Kid.id == 77)).scalar() == "theirs"


def test_a_refused_commit_leaves_nothing_on_the_pooled_connection(engine, kit):
    """After an error in the commit hook the next commit on the same connection does not commit the refused rows."""
    protect(engine, kit)
    before = _dump(engine)

    class Never:
        def decide(self, call, saga):
            assert call.kwargs["tables"].popitem()[1] == 1  # A policy sees what the transaction is going to change.
            return Refuse("not today")

    with kit.transaction("order", policies=[Never()]):
        with Session(engine) as session:
            session.add(Pair(a=900, b="refused", n=1))
            with pytest.raises(GateRefused):
                session.commit()
        with Session(engine) as session:
            session.execute(sa.select(Pair))
            session.commit()
    with Session(engine) as session:
        session.execute(sa.select(Pair))
        session.commit()
    assert before == _dump(engine)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE kid SET name = 'x'",
        "WITH t AS (SELECT 1) DELETE FROM kid",
        "SELECT 1; DELETE FROM kid",
        "DROP TABLE kid",
    ],
)
def test_text_that_may_write_is_refused(engine, kit, sql):
    """text() and exec_driver_sql that may write do not run; declared or reading ones do."""
    protect(engine, kit)
    before = _dump(engine)
    with kit.transaction("order"):
        with engine.begin() as connection:
            with pytest.raises(NotCapturable):
                connection.execute(sa.text(sql))
            with pytest.raises(NotCapturable):
                connection.exec_driver_sql(sql)
            connection.execute(sa.text("SELECT 'DELETE' FROM kid"))
            connection.exec_driver_sql("SELECT count(*) FROM kid")
    assert before == _dump(engine)


def test_a_table_without_a_key_or_with_triggers_is_refused(engine, kit):
    """What cannot be found again, and what writes unseen, is refused before it runs."""
    protect(engine, kit)
    loose = sa.Table("loose", sa.MetaData(), sa.Column("n", sa.Integer))
    with engine.begin() as connection:
        loose.create(connection)
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("CREATE TRIGGER boss_log AFTER UPDATE ON boss BEGIN DELETE FROM loose; END")
        else:
            connection.exec_driver_sql(
                "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM loose; RETURN NEW; END'"
            )
            connection.exec_driver_sql("CREATE TRIGGER boss_log AFTER UPDATE ON boss FOR EACH ROW EXECUTE FUNCTION f()")
    with kit.transaction("order"):
        with engine.begin() as connection:
            with pytest.raises(NotCapturable, match="primary key"):
                connection.execute(loose.insert().values(n=1))
            with pytest.raises(NotCapturable, match="boss_log"):
                connection.execute(sa.update(Boss).values(boss_id=None))
    with engine.begin() as connection:
        loose.drop(connection)


def test_outside_of_a_saga_the_engine_is_the_bare_engine(engine, kit):
    """Without a saga nothing is captured, refused or recorded; with requires_saga a write is refused."""
    protect(engine, kit)
    assert protect(engine, kit) is engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM kid WHERE id = -1")
        connection.execute(PAIR.insert().values({"a": 3, "B: key": "free", "n": 1}))
    assert not sa.inspect(engine).has_table("agent_saga_guard")
    strict = protect(sa.create_engine(engine.url), kit, name="strict", requires_saga=True)
    with strict.connect() as connection, pytest.raises(NoSaga):
        connection.execute(PAIR.insert().values({"a": 4, "B: key": "free", "n": 1}))
    strict.dispose()


def test_a_transaction_cannot_leave_its_saga(engine, kit):
    """Changes captured in a saga are not committed after it."""
    protect(engine, kit)
    before = _dump(engine)
    with Session(engine) as session:
        with kit.transaction("order"):
            session.add(Pair(a=901, b="late", n=1))
            session.flush()
        with pytest.raises(NotCapturable):
            session.commit()
    assert before == _dump(engine)
