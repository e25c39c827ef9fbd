"""`agent-saga adopt` on a project that changes: what it reports, what it writes, and what it leaves alone."""

import json

import pytest
from click.testing import CliRunner

from agent_saga.cli.adopt import adopt

TOOLS = """from langchain_core.tools import tool


@tool
def create_order(sku: str) -> dict:
    return {"order_id": sku}


def delete_order(order_id: str) -> None:
    pass
"""
AGENT = """from langchain.agents import create_agent

from tools import create_order

agent = create_agent("m", [create_order], system_prompt="Grüße")  # stays
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "agent.py").write_text(AGENT, "utf-8")
    return tmp_path


def run(*words):
    return CliRunner().invoke(adopt, [str(word) for word in words])


def decide(project):
    path = project / "saga_tools.py"
    path.write_text(path.read_text().replace("effect=DECIDE", 'effect="compensable"'))


def test_without_write_nothing_is_changed(project):
    """A plain run shows the diff and touches no file."""
    before = {path: path.read_bytes() for path in project.iterdir()}
    done = run(project)
    assert done.exit_code == 0
    assert "+from agent_saga_langgraph import SagaMiddleware" in done.output
    assert 'create_agent("m", [create_order], system_prompt="Grüße", middleware=[SagaMiddleware(kit)])  # stays' in (
        done.output
    )
    assert 'delete_order.bind(order_id="result.order_id")' in done.output
    assert {path: path.read_bytes() for path in project.iterdir()} == before


def test_check_is_for_ci(project):
    """--check is 1 while a tool is new or undecided, and 0 when all are decided."""
    assert run(project, "--check").exit_code == 1
    assert run(project, "--write").exit_code == 0
    assert run(project, "--check").exit_code == 1
    decide(project)
    assert run(project, "--check").exit_code == 0


def test_new_changed_and_vanished_tools_are_told_apart(project):
    """A later scan names what is new, what is not what was decided on, and what is gone."""
    run(project, "--write")
    decide(project)
    text = (
        TOOLS.replace("sku: str", "sku: str, count: int") + "\n\n@tool\ndef get_price(sku: str) -> int:\n    return 1\n"
    )
    (project / "tools.py").write_text(text)
    found = json.loads(run(project, "--json").stdout)
    assert (found["new"], [one["name"] for one in found["changed"]], found["vanished"]) == (
        ["get_price"],
        ["create_order"],
        [],
    )
    kept = (project / "saga_tools.py").read_text()
    run(project, "--write")
    extended = (project / "saga_tools.py").read_text()
    assert extended.startswith(kept.partition("declare.complete()")[0].rstrip())
    assert '"get_price",\n    effect=DECIDE' in extended
    (project / "tools.py").write_text(TOOLS.replace("@tool\n", ""))
    (project / "agent.py").write_text("")
    assert json.loads(run(project, "--json").stdout)["vanished"] == ["create_order", "get_price"]


def test_words_and_layout_are_no_change(project):
    """Comments, docstrings and white space leave the digest as it is; another HTTP verb does not."""
    run(project, "--write")
    decide(project)
    text = TOOLS.replace("    return {", '    """Words."""\n    # More.\n\n    return {')
    (project / "tools.py").write_text(text)
    assert run(project, "--check").exit_code == 0
    acts = "    import requests\n    requests.post('https://x.example/a')\n    return {"
    (project / "tools.py").write_text(TOOLS.replace("    return {", acts))
    assert run(project, "--check").exit_code == 1


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (AGENT.replace("\n", "\r\n").encode(), b"\r\n"),
        (b"\xef\xbb\xbf" + AGENT.encode(), b"\n"),
        (b"# coding: latin-1\n" + AGENT.encode("latin-1"), b"\n"),
        (AGENT.rstrip("\n").encode(), b"\n"),
        (AGENT.replace('"m", [', '\n\t"m",  # ä\n\t[').encode(), b"\n"),
    ],
    ids=["crlf", "bom", "latin-1", "no last newline", "several lines"],
)
def test_bytes_around_a_hook_stay(project, raw, line):
    """Line ends, byte order mark, encoding and layout of an edited file are those that it had."""
    (project / "agent.py").write_bytes(raw)
    run(project, "--write")
    written = (project / "agent.py").read_bytes()
    imports = [b"from agent_saga_langgraph import SagaMiddleware" + line, b"from saga_tools import kit" + line]
    for part in (*imports, b", middleware=[SagaMiddleware(kit)]"):
        assert written.count(part) == 1
        written = written.replace(part, b"")
    assert written == raw


def test_names_in_the_way_leave_a_file_alone(project):
    """A file that has a `kit` of its own is not edited; the run says so and exits 1."""
    text = AGENT + "kit = 1\n"
    (project / "agent.py").write_text(text, "utf-8")
    done = run(project, "--write")
    assert done.exit_code == 1
    assert "left to you: agent.py" in done.output
    assert (project / "agent.py").read_text("utf-8") == text


def test_hand_written_declarations_count(project):
    """A project that declares its tools itself has nothing to adopt."""
    (project / "mine.py").write_text("kit.declare('create_order', effect='read_only')\n")
    done = run(project, "--check")
    assert (done.exit_code, "every tool is declared and decided" in done.output) == (0, True)
    assert "+++" not in run(project).output


def test_nothing_of_the_project_runs(project):
    """A module that would act when it is imported is read and not run."""
    (project / "bomb.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n1/0\n")
    assert run(project).exit_code == 0
    assert not (project / "ran").exists()


def test_texts_that_grow_in_circles_end(project):
    """Names that are made of themselves, over and over, cost a bounded time and space."""
    lines = ["a = b = c = 'x'"] + [f"{x} = {y} + {z} + '{n}'" for n in range(8) for x, y, z in ("abc", "bca", "cab")]
    (project / "circles.py").write_text("\n".join(lines) + "\nprint(a + b + c)\n")
    done = run(project, "--json")
    assert [one["name"] for one in json.loads(done.stdout)["tools"]] == ["create_order"]
