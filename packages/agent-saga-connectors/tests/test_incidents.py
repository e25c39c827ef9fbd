"""Public incidents of coding agents, replayed with real git and a real shell: what they lost comes back."""

import os
import subprocess

import pytest
from conftest import sh, world

from agent_saga import AgentKit, RollbackIncomplete, SagaRolledBack
from agent_saga_connectors import Limits, NoImage, Workspace

INCIDENTS = [
    "git reset --hard",
    "git reset --hard HEAD~1",
    "rm -rf new.txt debug.log sub empty",
    "rm -rf *",
    "rm -rf .git",
    "git clean -fdx",
    "git checkout .",
    "git checkout topic -f",
    "git restore a.txt",
    "git restore --staged staged.txt && rm staged.txt",
    "git stash drop",
    "git stash -u && git stash clear",
    "git branch -D topic",
    "git stash -u && git rebase main topic",
    "git commit -qam more && git reflog expire --expire=now --all && git gc -q --prune=now",
    "git branch -D topic && git stash clear && git reflog expire --expire=now --all && git gc -q --prune=now",
    "mv -f a.txt sub/b.txt",
    "sed -i 's/one/1/g' a.txt",
    "truncate -s 0 new.txt",
    "> a.txt",
    "echo lost > new.txt",
    "echo more >> debug.log",
    "chmod -R 700 .",
    "cat a.txt | tee new.txt sub/b.txt >/dev/null",
    "find . -name '*.txt' -delete",
    "find sub -type f -exec rm {} +",
    "cd sub && rm b.txt",
    "bash -c 'rm -rf sub && mkdir sub'",
    "cat > new.txt <<'END'\nnot this\nEND\n",
    "rm link && mkdir link && touch link/inside",
    "rm -r sub && touch sub",
    "touch a.txt",
    "rm twin",
    "ln -sf sub/b.txt link",
    "mkdir -p x/y/z && cp -a sub x/y/z && git add -A && git commit -qm junk",
    "git stash -q && git merge -q topic -m merged",
]


def make(work, **options):
    ws = Workspace("incident", roots=[work], store=work.parent / "store", **options)
    kit = AgentKit(log=work.parent / "log.db", policies=[ws.policy])
    return ws, kit, {tool.__name__: tool for tool in ws.tools(kit)}


@pytest.mark.slow
@pytest.mark.parametrize("command", INCIDENTS)
def test_incident(place, command):
    """connectors.tree: a rollback leaves the folder, and git's refs, HEAD, index, stash and reflog, as they were."""
    _, kit, tools = make(place)
    before, state = world(place), _git_state(place)
    with kit.transaction("incident") as saga:
        tools["shell"](command=command)
        assert before != world(place)
        saga.roll_back("it was a mistake")
    kit.close()
    assert (saga.report.clean, saga.report.verified) == (True, True)
    assert before == world(place)
    assert (place / "new.txt").samefile(place / "twin")
    assert state == _git_state(place)
    sh("git fsck --no-dangling", place)


def test_mixed(place):
    """connectors.tree: one saga that mixes files, git and shell goes back over all of them."""
    _, kit, tools = make(place)
    before = world(place)
    with pytest.raises(KeyError):
        with kit.transaction("mixed") as saga:
            for command in INCIDENTS[:1] + INCIDENTS[16:26]:
                tools["shell"](command=command)
            tools["write_file"](path="x/y/z.txt", content="new")
            tools["move_file"](source="x/y/z.txt", target="a.txt")
            tools["delete_file"](path="x")
            tools["shell"](command="git add -A && git commit -qm all && git rebase -q topic; git clean -fdx")
            raise KeyError("the agent gave up")
    kit.close()
    assert saga.report.clean
    assert before == world(place)
    sh("git fsck --no-dangling", place)


def test_conflict(place):
    """connectors.conflict: a file that a human edited since is left as it is, with three values; nothing is written."""
    _, kit, tools = make(place)
    with pytest.raises(RollbackIncomplete):
        with kit.transaction("edited") as saga:
            tools["shell"](command="echo agent > new.txt && rm -rf sub")
            (place / "new.txt").write_text("human\n")
            found = world(place)
            raise KeyError
    kit.close()
    assert found == world(place)
    (step,) = saga.report.conflicted
    assert all(word in step.reason for word in ("new.txt", "before file 640", "ours file", "now file"))


def test_conflict_in_new_folder(place):
    """connectors.conflict: a folder of the step in which somebody put a file is not removed with it."""
    _, kit, tools = make(place)
    with pytest.raises(RollbackIncomplete):
        with kit.transaction("edited") as saga:
            tools["shell"](command="mkdir made && touch made/ours")
            (place / "made/theirs").write_text("human\n")
            raise KeyError
    kit.close()
    assert len(saga.report.conflicted) == 1
    assert (place / "made/theirs").read_text() == "human\n"
    assert (place / "made/ours").exists()


def test_other_edits_stay(place):
    """connectors.conflict: what the step did not touch may change meanwhile, and stays; `git status` is no edit."""
    _, kit, tools = make(place)
    with kit.transaction("beside") as saga:
        tools["shell"](command="rm new.txt && git add a.txt")
        (place / "sub/b.txt").write_text("human\n")
        os.utime(place / "a.txt")
        sh("git status", place)
        saga.roll_back("no")
    kit.close()
    assert saga.report.clean, saga.report.format_text()
    assert (place / "sub/b.txt").read_text() == "human\n"
    assert (place / "new.txt").read_text() == "untracked\n"


def test_write_over_human(place):
    """connectors.conflict: the same holds for `write_file`."""
    _, kit, tools = make(place)
    with pytest.raises(RollbackIncomplete):
        with kit.transaction("edited"):
            tools["write_file"](path="new.txt", content="agent")
            (place / "new.txt").write_text("human")
            raise KeyError
    kit.close()
    assert (place / "new.txt").read_text() == "human"


def test_too_much(place):
    """connectors.refuse: what is larger than the limit does not run, and is no effect."""
    _, kit, tools = make(place, limits=Limits(bytes_max=1000))
    before = world(place)
    with pytest.raises(NoImage):
        with kit.transaction("large") as saga:
            tools["shell"](command="rm -rf sub")
    kit.close()
    assert saga.report.clean
    assert before == world(place)


def test_linked_from_outside(place):
    """A file with a name outside of the roots is filled again, so that both names have the old content."""
    outside = place.parent / "outside"
    os.link(place / "a.txt", outside)
    content = outside.read_bytes()
    _, kit, tools = make(place)
    with kit.transaction("linked") as saga:
        tools["shell"](command="truncate -s 0 a.txt")
        assert outside.read_bytes() == b""
        saga.roll_back("no")
    kit.close()
    assert saga.report.clean
    assert (content, content) == (outside.read_bytes(), (place / "a.txt").read_bytes())


def test_guarded_shell(place):
    """A shell tool that exists is a step: classified, and with a pre-image."""
    ws, kit, _ = make(place)

    def terminal(command: str) -> str:
        return sh(command, place)

    guarded = ws.guard_shell(kit, terminal, name="terminal")
    before = world(place)
    with kit.transaction("guarded") as saga:
        assert guarded(command="cat a.txt") == "one\ntwo\nuncommitted\n"
        guarded(command="git clean -fdx")
        saga.roll_back("no")
    kit.close()
    assert saga.report.clean
    assert before == world(place)


def test_timeout(place):
    """A command that does not end is stopped, its process group too, and what it did is compensated."""
    _, kit, tools = make(place, timeout_s=0.5)
    before = world(place)
    with kit.transaction("slow") as saga:
        assert tools["shell"](command="rm new.txt; sleep 60")["exit_code"] is None
        saga.roll_back("no")
    kit.close()
    assert saga.report.clean
    assert before == world(place)
    assert subprocess.run(["pgrep", "-fx", "sleep 60"], capture_output=True, check=False).stdout == b""


def test_confined(place):
    """A program that is vouched for writes outside of the roots: the kernel does not let it."""
    _, kit, tools = make(place, programs=["python3"])
    outside = place.parent / "outside"
    with kit.transaction("confined") as saga:
        result = tools["shell"](command=f"python3 -c \"open('in', 'w'); open('{outside}', 'w')\"")
        assert (result["exit_code"], (place / "in").exists(), outside.exists()) == (1, True, False)
        saga.roll_back("no")
    kit.close()
    assert not (place / "in").exists()


def test_swallowed_refusal(place):
    """connectors.refuse: the policy refuses before the intent, so that a refused call is no failure."""
    from agent_saga import GateRefused

    _, kit, tools = make(place)
    with kit.transaction("refused") as saga:
        with pytest.raises(GateRefused, match="git_push"):
            tools["shell"](command="git push --force origin main")
    kit.close()
    assert saga.report.outcome == "committed"
    assert issubclass(RollbackIncomplete, SagaRolledBack)


def _git_state(work):
    commands = ("for-each-ref", "symbolic-ref HEAD", "ls-files -s", "stash list", "reflog --all", "status --porcelain")
    return [sh(f"git --no-optional-locks {command}", work) for command in commands]
