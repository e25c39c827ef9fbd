"""Databases for tests: a SQLite file and a real PostgreSQL (the fixtures of pytest-agent-saga)."""

import asyncio
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from shop_world import Base, seed

from agent_saga import AgentKit

SYNC = ("sqlite", "psycopg")
ASYNC = ("aiosqlite", "asyncpg", "psycopg_async")


def url_of(driver, request, tmp_path):
    """Return the URL of an empty database for a driver."""
    if driver in {"sqlite", "aiosqlite"}:
        return f"sqlite{'+aiosqlite' if driver == 'aiosqlite' else ''}:///{tmp_path / 'shop.db'}"
    url = request.getfixturevalue("saga_postgres_url")
    return url.replace("postgresql://", f"postgresql+{driver.removesuffix('_async')}://", 1)


def foreign_keys_on(engine):
    """Have SQLite enforce foreign keys."""

    @event.listens_for(engine, "connect")
    def _on(connection, _record):
        if hasattr(connection, "cursor") and engine.dialect.name == "sqlite":
            cursor = connection.cursor()
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.close()


@pytest.fixture(params=SYNC)
def engine(request, tmp_path):
    """A sync engine of each kind, with the seeded world in it."""
    made = sa.create_engine(url_of(request.param, request, tmp_path))
    foreign_keys_on(made)
    Base.metadata.create_all(made)
    with Session(made) as session:
        seed(session)
    yield made
    made.dispose()


@pytest.fixture(params=ASYNC)
def async_engine(request, tmp_path):
    """An async engine of each kind, with the seeded world in it; its pool is empty."""
    made = create_async_engine(url_of(request.param, request, tmp_path))
    foreign_keys_on(made.sync_engine)

    async def fill():
        async with made.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.run_sync(lambda sync: seed(Session(sync)))
        await made.dispose()

    asyncio.run(fill())
    return made


@pytest.fixture
def kit(tmp_path):
    """A kit with a log of its own."""
    kit = AgentKit(log=str(tmp_path / "agent-saga.db"))
    yield kit
    kit.close()


@pytest.fixture
def foreign(engine):
    """What another program does: an engine of its own, unprotected."""
    other = sa.create_engine(engine.url)
    foreign_keys_on(other)

    @contextmanager
    def begin():
        with other.begin() as connection:
            yield connection

    yield begin
    other.dispose()
