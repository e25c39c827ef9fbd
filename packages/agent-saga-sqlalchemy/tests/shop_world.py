"""A schema with every type and form that the package names, and an agent that changes all of it."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import importlib
import uuid

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class Secret(sa.types.TypeDecorator):
    """A type of the program's own: the database holds something else than the program sees."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value, dialect):
        return None if value is None else value[::-1]

    def process_result_value(self, value, dialect):
        return None if value is None else {"secret": value[::-1]}


class Base(DeclarativeBase):
    pass


user_tag = sa.Table(
    "user_tag",
    Base.metadata,
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True),
    sa.Column("tag_id", sa.ForeignKey("tag.id"), primary_key=True),
)


class Tag(Base):
    __tablename__ = "tag"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(sa.Identity(always=True), primary_key=True)
    name: Mapped[str]
    balance: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(12, 4))
    blob: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    doc: Mapped[dict | None] = mapped_column(sa.JSON)
    at: Mapped[dt.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    day: Mapped[dt.date | None]
    local: Mapped[dt.datetime | None]
    took: Mapped[dt.timedelta | None]
    color: Mapped[Color | None] = mapped_column(sa.Enum(Color))
    uid: Mapped[uuid.UUID | None] = mapped_column(sa.Uuid)
    ratio: Mapped[float | None]
    secret: Mapped[str | None] = mapped_column(Secret)
    upper: Mapped[str] = mapped_column(sa.Computed("upper(name)"))
    posts: Mapped[list[Post]] = relationship(back_populates="user", cascade="all, delete-orphan")
    tags: Mapped[list[Tag]] = relationship(secondary=user_tag)


class Post(Base):
    __tablename__ = "post"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"))
    text: Mapped[str]
    user: Mapped[User] = relationship(back_populates="posts")


class Pair(Base):
    __tablename__ = "Pair of"  # A name that needs its quotes.
    a: Mapped[int] = mapped_column(primary_key=True)
    b: Mapped[str] = mapped_column("B: key", primary_key=True)
    n: Mapped[int]


class Parent(Base):
    __tablename__ = "parent"
    id: Mapped[int] = mapped_column(primary_key=True)


class Kid(Base):
    __tablename__ = "kid"
    id: Mapped[int] = mapped_column(primary_key=True)
    parent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("parent.id", ondelete="CASCADE", onupdate="CASCADE"))
    name: Mapped[str]


class Orphan(Base):
    __tablename__ = "orphan"
    id: Mapped[int] = mapped_column(primary_key=True)
    parent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("parent.id", ondelete="SET NULL"))
    kid_id: Mapped[int | None] = mapped_column(sa.ForeignKey("kid.id", ondelete="SET NULL"))


class Boss(Base):
    __tablename__ = "boss"
    id: Mapped[int] = mapped_column(primary_key=True)
    boss_id: Mapped[int | None] = mapped_column(sa.ForeignKey("boss.id"))


def seed(session: Session) -> None:
    ann = User(
        name="ann",
        balance=decimal.Decimal("10.5000"),
        blob=b"\x00\xff",
        doc={"k": [1, 2.50]},
        color=Color.RED,
        uid=uuid.UUID(int=7),
        ratio=0.1,
        secret="abc",
        day=dt.date(2026, 2, 28),
        local=dt.datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001 - a column without a time zone.
        took=dt.timedelta(days=1, microseconds=5),
        posts=[Post(text="p1"), Post(text="p2")],
        tags=[Tag(name="x")],
    )
    session.add_all([ann, User(name="bob", balance=decimal.Decimal(1), doc=None, ratio=float("1e300"))])
    session.add_all([Pair(a=1, b="x", n=1), Pair(a=1, b="y:z", n=2)])
    session.add_all([Parent(id=1), Parent(id=2)])
    session.add_all([Boss(id=1), Boss(id=2, boss_id=1), Boss(id=3, boss_id=2)])
    session.flush()
    session.add_all([Kid(id=1, parent_id=1, name="k"), Kid(id=2, parent_id=2, name="k2")])
    session.flush()
    session.add_all([Orphan(id=1, parent_id=1), Orphan(id=2, kid_id=1)])
    session.commit()


def everything(s: Session) -> None:
    """Change each type by each form; the caller commits."""
    dialect = importlib.import_module(f"sqlalchemy.dialects.{s.get_bind().dialect.name}")
    pair = Pair.__table__
    ann = s.scalars(sa.select(User).where(User.name == "ann")).one()
    ann.balance, ann.doc, ann.color, ann.blob = decimal.Decimal("7.25"), {"k": "z"}, Color.BLUE, b"new"
    ann.secret, ann.day, ann.local, ann.took = "xyz", dt.date(1999, 1, 1), None, dt.timedelta(1)
    ann.tags.append(Tag(name="new"))
    s.add(User(name="cat", balance=decimal.Decimal(3), uid=uuid.uuid4()))
    s.flush()
    s.add_all([User(name=f"m{i}", balance=decimal.Decimal(i)) for i in range(5)])
    s.flush()
    ann.posts.pop()
    s.flush()
    s.execute(sa.update(User).where(User.name.like("m%")).values(balance=User.balance + 1))
    s.execute(sa.update(User), [{"id": ann.id, "name": "ANN2"}])
    s.execute(sa.insert(Pair), [{"a": 2, "b": "p", "n": 1}, {"a": 2, "b": "q", "n": 1}])
    s.scalars(sa.insert(Tag).returning(Tag), [{"name": "r1"}, {"name": "r2"}]).all()
    assert s.execute(sa.insert(Tag).values(name="r3").returning(Tag.id, Tag.name)).one()[1] == "r3"
    s.execute(pair.insert().values([{"a": 9, "B: key": "m1", "n": 1}, {"a": 9, "B: key": "m2", "n": 1}]))
    s.execute(
        pair.insert().from_select(["a", "B: key", "n"], sa.select(Pair.a + 100, Pair.b, Pair.n).where(Pair.a == 1))
    )
    s.execute(
        pair.update().where(Pair.a == sa.bindparam("x")).values(n=sa.bindparam("nn")),
        [{"x": 1, "nn": 9}, {"x": 2, "nn": 8}],
    )
    s.execute(sa.delete(Pair).where(Pair.b == "y:z"))
    for a, b in ((1, "x"), (5, "n")):
        upsert = dialect.insert(Pair).values(a=a, b=b, n=77)
        s.execute(upsert.on_conflict_do_update(index_elements=["a", "B: key"], set_={"n": upsert.excluded.n}))
    s.execute(dialect.insert(Pair).values(a=5, b="n", n=78).on_conflict_do_nothing())
    two = s.get(Pair, (2, "p"))
    two.b = "renamed"
    s.flush()
    s.execute(sa.update(Pair).where(Pair.a > 100).values(a=Pair.a + 1))
    s.execute(sa.update(Parent).where(Parent.id == 2).values(id=20))
    s.execute(sa.delete(Parent).where(Parent.id == 1))
    s.execute(sa.delete(Boss).where(Boss.id > 1))
    with s.begin_nested() as inner:
        s.add(Pair(a=70, b="dropped", n=1))
        s.flush()
        inner.rollback()
    with s.begin_nested():
        s.add(Pair(a=71, b="kept", n=1))
    s.delete(s.scalars(sa.select(User).where(User.name == "bob")).one())
    s.flush()


def dump(connection: sa.Connection) -> dict[str, list[str]]:
    """Return every row, as the driver gives it, without the program's types."""
    return {
        table.name: sorted(
            repr(tuple(row))
            for row in connection.exec_driver_sql(
                "SELECT "
                + ", ".join(
                    f'CAST("{column.name}" AS text)' if connection.dialect.name == "postgresql" else f'"{column.name}"'
                    for column in table.columns
                )
                + f' FROM "{table.name}"'
            )
        )
        for table in Base.metadata.sorted_tables
    }
