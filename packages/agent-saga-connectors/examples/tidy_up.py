"""An agent tidies up a repository and goes too far: what it lost, untracked files among it, comes back."""

import subprocess
import tempfile
from pathlib import Path

from agent_saga import AgentKit
from agent_saga_connectors import Workspace

with tempfile.TemporaryDirectory() as base:
    project = Path(base, "project")
    project.mkdir()
    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    Path(project, "report.md").write_text("three days of work, not committed\n")

    workspace = Workspace("project", roots=[project], store=Path(base, "images"))
    kit = AgentKit(log=Path(base, "log.db"), policies=[workspace.policy])
    shell, *_ = workspace.tools(kit)
    with kit.transaction("tidy up") as saga:
        shell(command="git add . && git reset -q --hard && git clean -fdx")
        print("left:", sorted(path.name for path in project.glob("*.md")))
        saga.roll_back("the tests are red")
    print("clean:", saga.report.clean, sorted(path.name for path in project.glob("*.md")))
    kit.close()
