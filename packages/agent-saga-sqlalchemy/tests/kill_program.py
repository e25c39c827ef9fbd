"""A saga of two database transactions that fails at its end, killed at the point that the environment names."""

import kill_setup
import sqlalchemy as sa
from shop_world import Pair, everything
from sqlalchemy.orm import Session

from agent_saga.testing.crash import CrashPoints, watch_commits

points = CrashPoints.from_environment()
watch_commits(kill_setup.kit.writer(), points)
commit = kill_setup.engine.dialect.do_commit


def do_commit(connection):
    points.reach("before a database commit")
    commit(connection)
    points.reach("after a database commit")


kill_setup.engine.dialect.do_commit = do_commit
try:
    with kill_setup.kit.transaction("order"):
        with Session(kill_setup.engine) as session:
            everything(session)
            points.reach("changed, not committed")
            session.commit()
        with kill_setup.engine.begin() as connection:
            connection.execute(sa.insert(Pair.__table__).values({"a": 500, "B: key": "z", "n": 0}))
        raise KeyError("the agent gave up")
except KeyError:
    print("\n".join(points.reached))
