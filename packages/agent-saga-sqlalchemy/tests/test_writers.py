"""Writers at the same time: whatever the timing, no update of another program is lost, and a rollback restores ours."""

import random
import threading

import pytest
import sqlalchemy as sa
from conftest import foreign_keys_on

from agent_saga import RollbackIncomplete
from agent_saga_sqlalchemy import protect

METADATA = sa.MetaData()
COUNT = sa.Table(
    "count",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("word", sa.String),
    sa.Column("n", sa.Integer, nullable=False),
)
ROWS = 4


class Boom(Exception):
    pass


def _patiently(write):
    """Repeat a transaction that the database has refused because of another one."""
    for _ in range(200):
        try:
            return write()
        except (sa.exc.OperationalError, sa.exc.DBAPIError) as error:
            last = error
    raise last


@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "READ COMMITTED"])
def test_no_foreign_update_is_lost(engine, kit, isolation):
    """Two foreign threads write words of their own and count them; sagas that fail write the same rows meanwhile."""
    if engine.dialect.name == "sqlite" and isolation == "READ COMMITTED":
        isolation = "SERIALIZABLE"  # The only one that SQLite has between programs.
    METADATA.create_all(engine)
    with engine.begin() as c:
        c.execute(COUNT.insert(), [{"id": i, "word": "seed", "n": 0} for i in range(ROWS)])
    ours = protect(sa.create_engine(engine.url, isolation_level=isolation), kit, name="writers")
    foreign_keys_on(ours)
    theirs = sa.create_engine(engine.url)
    last, counted, failures = {}, dict.fromkeys(range(ROWS), 0), []
    lock = threading.Lock()

    def foreign(name):
        chance = random.Random(name)
        for number in range(40):
            row = chance.randrange(ROWS)

            def write(row=row, number=number):
                with lock, theirs.begin() as c:  # The lock makes "the last word" of a row well-defined.
                    word = f"{name}-{number}"
                    c.execute(COUNT.update().where(COUNT.c.id == row).values(word=word, n=COUNT.c.n + 1))
                last[row] = word
                counted[row] += 1

            try:
                _patiently(write)
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=foreign, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    conflicts, chance = 0, random.Random(7)
    while any(thread.is_alive() for thread in threads):
        try:
            with kit.transaction("ours"):
                for _ in range(2):
                    row = chance.randrange(ROWS)

                    def change(row=row):
                        with ours.begin() as c:
                            c.execute(COUNT.update().where(COUNT.c.id == row).values(n=COUNT.c.n + 1000))

                    _patiently(change)
                raise Boom
        except Boom:
            pass
        except RollbackIncomplete:
            conflicts += 1
    for thread in threads:
        thread.join()
    assert not failures
    with engine.connect() as c:
        left = {row.id: row for row in c.execute(sa.select(COUNT))}
    for row in range(ROWS):
        assert last.get(row, "seed") == left[row].word
        assert counted[row] == left[row].n % 1000  # Ours count in thousands: what a conflict leaves is ours alone.
    if not conflicts:
        assert {row: value.n for row, value in left.items()} == counted
    METADATA.drop_all(engine)
    ours.dispose()
    theirs.dispose()
