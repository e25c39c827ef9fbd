"""Whatever a saga changed in a database is as it was after its rollback."""

import pytest
from shop_world import dump, everything
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from agent_saga_sqlalchemy import protect


class Boom(Exception):
    pass


def test_every_form_is_restored(engine, kit):
    """Each type and each form of INSERT, UPDATE and DELETE is taken back exactly, without a hand-written inverse."""
    protect(engine, kit)
    with engine.connect() as connection:
        before = dump(connection)
    with pytest.raises(Boom):
        with kit.transaction("order") as saga:
            with Session(engine) as session:
                everything(session)
                session.commit()
            with engine.connect() as connection:
                assert before != dump(connection)
            raise Boom
    with engine.connect() as connection:
        assert before == dump(connection)
    assert saga.report.clean
    assert saga.report.verified
    assert len(saga.report.compensated) == 1


@pytest.mark.asyncio
async def test_every_form_is_restored_async(async_engine, kit):
    """The same for async engines."""
    protect(async_engine, kit)
    async with async_engine.connect() as connection:
        before = await connection.run_sync(dump)
    with pytest.raises(Boom):
        async with kit.transaction("order") as saga:
            async with AsyncSession(async_engine) as session:
                await session.run_sync(everything)
                await session.commit()
            async with async_engine.connect() as connection:
                assert before != await connection.run_sync(dump)
            raise Boom
    async with async_engine.connect() as connection:
        assert before == await connection.run_sync(dump)
    assert saga.report.clean
    assert saga.report.verified
    await async_engine.dispose()


def test_a_committed_saga_keeps_its_changes(engine, kit):
    """What a committed saga changed stays."""
    protect(engine, kit)
    with kit.transaction("order") as saga:
        with Session(engine) as session:
            everything(session)
            session.commit()
            left = dump(session.connection())
    with engine.connect() as connection:
        assert left == dump(connection)
    assert saga.report.outcome == "committed"
