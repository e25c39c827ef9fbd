"""What the killed program and its recovery import: the workspace, with a crash point around each of its writes."""

import os
from pathlib import Path

from agent_saga import AgentKit
from agent_saga.testing.crash import CrashPoints
from agent_saga_connectors import Workspace, _child, _image, _restore

BASE = Path(os.environ["KILL_BASE"])
points = CrashPoints.from_environment()


def around(owner, name, label=None):
    inner = getattr(owner, name)

    def outer(*args, **kwargs):
        what = label or f"{name} {args[2] if name == 'write' and owner is _image.Store else ''}".strip()
        points.reach(f"before {what}")
        result = inner(*args, **kwargs)
        points.reach(f"after {what}")
        return result

    setattr(owner, name, outer)


around(_image.Store, "write")
around(_child, "run", "the command")
for name in ("write", "_put", "_loosen", "_dress"):
    around(_restore, name, f"restore: {name}")
kit = AgentKit(log=BASE / "log.db")
workspace = Workspace("killed", roots=[BASE / "work"], store=BASE / "store")
tools = {tool.__name__: tool for tool in workspace.tools(kit)}
