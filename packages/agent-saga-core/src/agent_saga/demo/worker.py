"""The process that Act III kills: `python -m agent_saga.demo.worker LOG CUSTOMER`.

When its first effect is in the world, it says so on stdout and waits for its end, with the answer still on its way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agent_saga import AgentKit
from agent_saga.demo import tools
from agent_saga.demo.agent import open_shop
from agent_saga.demo.world import World

LANDED = "landed"


def main(log: str, customer: str) -> None:
    """Run the agent in a saga, up to its first effect."""
    tools.connect(World(Path(os.environ[tools.WORLD]), before_answer=wait_for_the_end))
    kit = AgentKit(log=log)
    with kit.transaction("open shop"):
        open_shop(tools.wrapped(kit), customer)


def wait_for_the_end() -> None:
    """Say that the effect has landed, and go no further; when nobody is left to kill this process, it ends itself."""
    print(LANDED, flush=True)  # noqa: T201 - how it talks to the process that started it.
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
