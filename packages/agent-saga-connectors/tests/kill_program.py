"""A saga of files, git and shell that fails at its end, killed at the point that the environment names."""

import os

from kill_setup import kit, points, tools

from agent_saga.testing.crash import watch_commits

watch_commits(kit.writer(), points)
commands = os.environ.get("KILL_COMMAND", "git reset -q --hard\0rm -rf sub new.txt && git clean -qfdx").split("\0")
try:
    with kit.transaction("killed"):
        for command in commands:
            tools["shell"](command=command)
        tools["write_file"](path="x/y.txt", content="new")
        raise KeyError("the agent gave up")
except KeyError:
    print("\n".join(points.reached))
