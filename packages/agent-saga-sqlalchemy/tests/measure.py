"""What a single-row transaction costs, bare and in a saga, in one run: `python measure.py URL LOG`."""

import sys
import time

import sqlalchemy as sa
from shop_world import Base, Pair
from sqlalchemy.orm import Session

from agent_saga import AgentKit
from agent_saga_sqlalchemy import protect

ROUNDS = 200


def _seconds(engine, first, *, per_commit):
    began = time.perf_counter()
    with Session(engine) as session:
        for i in range(ROUNDS):
            session.add(Pair(a=first + i, b="x", n=1))
            session.flush()
            if per_commit:
                session.commit()
        session.commit()
    return time.perf_counter() - began


def main(url, log):
    engine = sa.create_engine(url)
    Base.metadata.create_all(engine)
    kit = AgentKit(log=log)
    for per_commit in (False, True):
        bare = min(
            _seconds(engine, 1_000_000 + 10_000 * i + per_commit * 500_000, per_commit=per_commit) for i in range(3)
        )
        protect(engine, kit, name="shop")
        with kit.transaction("measure"):
            first = 3_000_000 + per_commit * 500_000
            ours = min(_seconds(engine, first + 10_000 * i, per_commit=per_commit) for i in range(3))
        what = "flush + commit" if per_commit else "flush"
        print(f"{what}: bare {bare / ROUNDS * 1e3:.2f} ms, in a saga {ours / ROUNDS * 1e3:.2f} ms, {ours / bare:.1f} x")
    kit.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
