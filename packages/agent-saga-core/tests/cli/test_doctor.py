"""`agent-saga doctor` finds what would keep a crash from being recovered, with its numbers."""

import json
import subprocess
import sys

import pytest

HEAD = "from agent_saga import AgentKit, compensator\nkit = AgentKit()\n"
REFUND = "@compensator('doc.refund', idempotent=True)\ndef refund(id: str) -> None: ...\n"


def doctor(folder, *words, program=""):
    if program:
        (folder / "tools.py").write_text(program)
        words = (*words, "--import", "tools")
    ran = subprocess.run(
        [sys.executable, "-m", "agent_saga", "doctor", "--json", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, {one["code"]: one for one in json.loads(ran.stdout)["findings"]}


def crash(folder, program):
    """Run a program that dies inside its saga."""
    (folder / "tools.py").write_text(program)
    lines = "import os, tools\nwith tools.kit.transaction('t'):\n    tools.pay(id='a')\n    os._exit(1)\n"
    subprocess.run([sys.executable, "-c", lines], cwd=folder, timeout=60, check=False)


PAY = HEAD + REFUND + "@kit.tool(effect='compensable', compensate=refund.bind(id='kwargs.id'))\ndef pay(id): ...\n"


def test_a_sound_project_has_no_findings(tmp_path):
    """A file log, handlers in a module: nothing is found, and the exit code is 0."""
    code, found = doctor(tmp_path, program=PAY)
    found.pop("ephemeral-file-system", None)  # Where the machine of the tests keeps its files is its own affair.
    assert found == {}
    assert code in {0, 1}


@pytest.mark.parametrize(
    ("words", "program", "files", "expected"),
    [
        (("--log", "memory:"), "", {}, "memory-log"),
        ((), "", {"deploy.yaml": "spec:\n  replicas: 3\n"}, "replicas"),
        ((), HEAD + "def make():\n    @compensator('c.x')\n    def x(): ...\nmake()\n", {}, "closure"),
        (("--import", "nowhere"), "", {}, "not-importable"),
        (
            (),
            PAY + "kit.declare('b', effect='compensable', compensate=lambda c: None, probe=lambda key, kwargs: None)\n",
            {},
            "callable-compensate",
        ),
        ((), HEAD + "kit.declare('wire', effect='irreversible')\n", {}, "no-approver"),
        ((), "", {"saga_tools.py": "declare('a', effect=DECIDE)\ndeclare('b', effect='read_only')\n"}, "undecided"),
    ],
)
def test_each_finding(tmp_path, words, program, files, expected):
    """What is wrong is found; a blocker makes the exit code 1, a warning does with --strict."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, found = doctor(tmp_path, *words, program=program)
    assert expected in found
    if found[expected]["level"] == "blocker":
        assert code == 1
    assert doctor(tmp_path, *words, "--strict", program=program)[0] == 1


def test_arithmetic_is_said(tmp_path):
    """A finding has its numbers."""
    (tmp_path / "saga_tools.py").write_text("declare('a', effect=DECIDE)\ndeclare('b', effect='read_only')\n")
    assert doctor(tmp_path)[1]["undecided"]["text"].startswith("1 of 2 tools")


def test_a_saga_of_a_dead_process_is_seen(tmp_path):
    """Sagas that nobody recovers are counted; so are handlers that are missing, or drifted to another version."""
    crash(tmp_path, PAY)
    assert "1 of 1 open sagas" in doctor(tmp_path, program=PAY)[1]["no-recovery"]["text"]
    assert "not-importable" in doctor(tmp_path)[1]
    drifted = PAY.replace("idempotent=True", "idempotent=True, version=2")
    assert "version-drift" in doctor(tmp_path, "--log", "other.db", "--against", "agent-saga.db", program=drifted)[1]


def test_others_that_may_write_the_log_are_seen(tmp_path):
    """A log that the group may write is a warning."""
    crash(tmp_path, PAY)
    (tmp_path / "agent-saga.db").chmod(0o666)
    assert doctor(tmp_path, program=PAY)[1]["permissions"]["level"] == "warning"
