"""What `kit.guarantees()` says: claims with tests that exist, and the same as the README."""

import ast
import json
from pathlib import Path

import pytest

from agent_saga import AgentKit
from agent_saga.guarantees import CLAIMS, NOT_CLAIMED

ROOT = Path(__file__).parents[4]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_each_claim_names_tests_that_exist(claim):
    """A claim names at least one test, and each is a function in the named file."""
    assert claim.tests
    for name in claim.tests:
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert function in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_the_readme_says_the_same():
    """The README's two tables hold each claim and each open point, word for word, and nothing else."""
    promised = README.split("## Promised")[1].split("## Not promised")[0]
    open_points = README.split("## Not promised")[1].split("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [claim.text for claim in CLAIMS]
    rows = [line for line in open_points.splitlines() if line.startswith("| ")][1:]
    assert [row.strip("| ").split(" | ") for row in rows] == [[point.text, point.instead] for point in NOT_CLAIMED]


def test_a_kit_describes_itself(tmp_path):
    """The manifest is JSON; a log in memory claims nothing that would have to outlive the process."""
    on_disk = AgentKit(log=tmp_path / "log.db").guarantees()
    in_memory = AgentKit(log="memory:").guarantees()
    assert json.loads(json.dumps(on_disk)) == on_disk
    assert [claim["id"] for claim in on_disk["claims"]] == [claim.id for claim in CLAIMS]
    assert [claim["id"] for claim in in_memory["claims"]] == [claim.id for claim in CLAIMS if not claim.survives]
    assert "NOT-MEMORY" in {point["id"] for point in in_memory["not_claimed"]}
