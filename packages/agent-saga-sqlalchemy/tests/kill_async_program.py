"""As kill_program, on an async engine."""

import asyncio

from kill_setup import engine, kit
from shop_world import everything
from sqlalchemy.ext.asyncio import AsyncSession

from agent_saga.testing.crash import CrashPoints, watch_commits

points = CrashPoints.from_environment()
watch_commits(kit.writer(), points)
commit = engine.sync_engine.dialect.do_commit


def do_commit(connection):
    points.reach("before a database commit")
    commit(connection)
    points.reach("after a database commit")


engine.sync_engine.dialect.do_commit = do_commit


async def main():
    try:
        async with kit.transaction("order"):
            async with AsyncSession(engine) as session:
                await session.run_sync(everything)
                await session.commit()
            raise KeyError("the agent gave up")
    except KeyError:
        print("\n".join(points.reached))
    await engine.dispose()


asyncio.run(main())
