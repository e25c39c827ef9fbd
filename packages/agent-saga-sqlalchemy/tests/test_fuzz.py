"""Random statements on a music shop: after a rollback the database is what it was before."""

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite

from agent_saga_sqlalchemy import protect

METADATA = sa.MetaData()
ARTIST = sa.Table(
    "artist",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, unique=True),
)
ALBUM = sa.Table(
    "album",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("artist_id", sa.ForeignKey("artist.id", ondelete="CASCADE", onupdate="CASCADE")),
    sa.Column("price", sa.Numeric(8, 2)),
)
TRACK = sa.Table(
    "track",
    METADATA,
    sa.Column("album_id", sa.ForeignKey("album.id", ondelete="CASCADE", onupdate="CASCADE"), primary_key=True),
    sa.Column("no", sa.Integer, primary_key=True),
    sa.Column("next_id", sa.ForeignKey("artist.id", ondelete="SET NULL", onupdate="CASCADE")),
    sa.Column("seconds", sa.Float),
)
IDS = st.integers(1, 6)
STATEMENTS = st.one_of(
    st.tuples(st.just("insert artist"), IDS, IDS),
    st.tuples(st.just("insert album"), IDS, IDS),
    st.tuples(st.just("insert track"), IDS, IDS),
    st.tuples(st.just("upsert artist"), IDS, IDS),
    st.tuples(st.just("upsert by name"), IDS, IDS),
    st.tuples(st.just("price"), IDS, IDS),
    st.tuples(st.just("move artist"), IDS, IDS),
    st.tuples(st.just("move all albums"), IDS, IDS),
    st.tuples(st.just("point"), IDS, IDS),
    st.tuples(st.just("delete artist"), IDS, IDS),
    st.tuples(st.just("delete albums"), IDS, IDS),
    st.tuples(st.just("copy"), IDS, IDS),
    st.tuples(st.just("commit"), IDS, IDS),
    st.tuples(st.just("rollback"), IDS, IDS),
)


def _statement(dialect, kind, a, b):
    insert = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect]
    upsert = insert(ARTIST).values(id=a, name=f"n{b}")
    return {
        "insert artist": ARTIST.insert().values(id=a, name=f"n{b}"),
        "insert album": ALBUM.insert().values(id=a, artist_id=b, price=b),
        "insert track": TRACK.insert().values(album_id=a, no=b, next_id=b, seconds=b / 3),
        "upsert artist": upsert.on_conflict_do_update(index_elements=["id"], set_={"name": upsert.excluded.name}),
        "upsert by name": upsert.on_conflict_do_nothing(index_elements=["name"]),
        "price": ALBUM.update().where(ALBUM.c.id >= a).values(price=ALBUM.c.price + b),
        "move artist": ARTIST.update().where(ARTIST.c.id == a).values(id=b + 3),
        "move all albums": ALBUM.update().where(ALBUM.c.artist_id == a).values(id=ALBUM.c.id + 10 * b),
        "point": TRACK.update().values(next_id=a, seconds=b),
        "delete artist": ARTIST.delete().where(ARTIST.c.id == a),
        "delete albums": ALBUM.delete().where(ALBUM.c.id.in_(sa.select(TRACK.c.album_id).where(TRACK.c.no > b))),
        "copy": TRACK.insert().from_select(
            ["album_id", "no", "seconds"], sa.select(ALBUM.c.id, sa.literal(a + 10), ALBUM.c.price)
        ),
    }[kind]


def _dump(connection):
    return [sorted(map(repr, connection.execute(sa.select(table)))) for table in METADATA.sorted_tables]


class Boom(Exception):
    pass


def test_random_statements_are_taken_back(engine, kit):
    """Any sequence of statements, failing ones included, in any number of transactions, is taken back."""
    protect(engine, kit)
    METADATA.create_all(engine)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STATEMENTS, max_size=6), st.lists(STATEMENTS, min_size=1, max_size=10))
    def check(seeded, statements):
        with engine.connect() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(table.delete())
            connection.execute(ARTIST.insert(), [{"id": i, "name": f"n{i}"} for i in (1, 2, 3)])
            connection.execute(ALBUM.insert(), [{"id": i, "artist_id": i, "price": i} for i in (1, 2, 3)])
            connection.execute(
                TRACK.insert(), [{"album_id": i, "no": i, "next_id": i, "seconds": 0.1} for i in (1, 2, 3)]
            )
            _apply(connection, seeded)
            before = _dump(connection)
        try:
            with kit.transaction("fuzz"):
                with engine.connect() as connection:
                    _apply(connection, statements)
                raise Boom
        except Boom:
            pass
        with engine.connect() as connection:
            assert before == _dump(connection)

    check()
    METADATA.drop_all(engine)


def _apply(connection, statements):
    for kind, a, b in statements:
        if kind in {"commit", "rollback"}:
            getattr(connection, kind)()
            continue
        try:
            with connection.begin_nested():
                connection.execute(_statement(connection.dialect.name, kind, a, b))
        except sa.exc.IntegrityError:
            pass
    connection.commit()
