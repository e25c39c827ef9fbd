"""What `agent-saga recover --import` loads: the compensators, and the tools that bring the probes."""

import os

from crash_program import KINDS, Out, make_tool
from crash_world import World

from agent_saga import AgentKit
from agent_saga.testing import CrashPoints

Out.world = World(os.environ["CRASH_WORLD"])
Out.points = CrashPoints.from_environment()
kit = AgentKit()
for kind in KINDS:
    make_tool(kit, kind, is_async=False)
