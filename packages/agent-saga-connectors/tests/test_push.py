"""Pushes to a real remote, taken back by lease."""

import pytest
from conftest import sh

from agent_saga import AgentKit, RollbackIncomplete
from agent_saga_connectors import CommandRefused, Workspace


@pytest.fixture
def remote(place):
    bare = place.parent / "remote.git"
    sh(f"git init -q --bare -b main {bare} && git remote add origin {bare} && git push -q origin main", place)
    return bare


def make(work):
    ws = Workspace("push", roots=[work], store=work.parent / "store")
    kit = AgentKit(log=work.parent / "log.db", policies=[ws.policy])
    return kit, ws.tools(kit)[-1]


def at(remote, ref="main"):
    return sh(f"git for-each-ref --format='%(objectname)' refs/heads/{ref}", remote).strip()


@pytest.mark.parametrize("theirs", [False, True])
def test_forced(place, remote, theirs):
    """connectors.lease: a forced push that dropped commits (of others, not fetched here) is taken back."""
    if theirs:
        other = place.parent / "other"
        sh(
            f"git clone -q {remote} {other} && cd {other} && git commit -q --allow-empty -m theirs && git push -q",
            place.parent,
        )
    before = at(remote)
    kit, push = make(place)
    with kit.transaction("push") as saga:
        sh("git stash -q && git reset -q --hard HEAD~1 && git commit -q --allow-empty -m rewritten", place)
        assert before == push(remote="origin", branch="main", force=True)
        assert before != at(remote)
        saga.roll_back("no")
    kit.close()
    assert (saga.report.clean, saga.report.verified) == (True, True), saga.report.format_text()
    assert before == at(remote)


def test_not_forced(place, remote):
    """connectors.lease: what would drop commits is refused when it is not forced."""
    before = at(remote)
    kit, push = make(place)
    sh("git stash -q && git reset -q --hard HEAD~1 && git commit -q --allow-empty -m rewritten", place)
    with pytest.raises(CommandRefused, match="would drop"):
        with kit.transaction("push"):
            push(remote="origin", branch="main")
    kit.close()
    assert before == at(remote)


def test_new_branch(place, remote):
    """connectors.lease: a branch that was not there is gone again."""
    kit, push = make(place)
    with kit.transaction("push") as saga:
        assert push(remote="origin", branch="topic") == ""
        assert at(remote, "topic")
        saga.roll_back("no")
    kit.close()
    assert saga.report.clean
    assert at(remote, "topic") == ""


def test_somebody_pushed(place, remote):
    """connectors.lease: what somebody pushed on top is not dropped: a conflict."""
    kit, push = make(place)
    with pytest.raises(RollbackIncomplete):
        with kit.transaction("push") as saga:
            sh("git commit -qam ours", place)
            push(remote="origin", branch="main")
            sh("git commit -q --allow-empty -m theirs && git push -q origin main", place)
            raise KeyError
    kit.close()
    assert at(remote) == sh("git rev-parse main", place).strip()
    assert "somebody pushed" in saga.report.conflicted[0].reason


@pytest.mark.parametrize(
    ("name", "branch"), [("--exec=x", "main"), ("ext::sh -c x", "main"), ("origin", "+x:y"), ("../x", "main")]
)
def test_names(place, remote, name, branch):
    """connectors.refuse: an option or an address is no name of a remote."""
    kit, push = make(place)
    with pytest.raises(CommandRefused):
        with kit.transaction("push"):
            push(remote=name, branch=branch)
    kit.close()
