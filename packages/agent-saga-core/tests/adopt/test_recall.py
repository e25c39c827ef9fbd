"""adopt finds every tool of projects that were written to hide them, and puts hooks only where they belong."""

import ast
import difflib
import importlib.util

import pytest
from adopt_projects import NAMES, Bundle

from agent_saga.adopt.apply import plan, write
from agent_saga.adopt.declared import compare
from agent_saga.adopt.scan import scan
from agent_saga.errors import DeclarationError

RECALL_MIN = 0.95


def run(folder):
    found, project, names = scan(folder)
    comparison = compare(found, project, names)
    return found, comparison, plan(found, project, names, comparison)


@pytest.mark.parametrize("name", NAMES)
def test_tools_are_found(name, tmp_path):
    """Recall is at least 95 % against the truth that a human wrote down, and nothing else is called a tool."""
    bundle = Bundle(name)
    found, _, _ = run(bundle.write(tmp_path))
    got = {(tool.name, tool.path) for tool in found.tools}
    assert len(got & bundle.truth) / len(bundle.truth) >= RECALL_MIN, bundle.truth - got
    assert got - bundle.truth == set()


@pytest.mark.parametrize("name", NAMES)
def test_edits_are_hooks_and_nothing_else(name, tmp_path):
    """The files that should have hooks have as many as they should; every other character stays."""
    bundle = Bundle(name)
    _, _, made = run(bundle.write(tmp_path))
    edited = {edit.path: edit for edit in made.edits if edit.before}
    assert {path: len(edit.lines) for path, edit in edited.items()} == bundle.hooks
    assert made.left == []
    for edit in edited.values():
        matcher = difflib.SequenceMatcher(None, edit.before, edit.after, autojunk=False)
        assert {kind for kind, *_ in matcher.get_opcodes()} <= {"equal", "insert"}
        ast.parse(edit.after)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(name, tmp_path):
    """After --write, a scan finds the same tools, nothing new, changed or gone, and has nothing to write."""
    folder = Bundle(name).write(tmp_path)
    first, _, made = run(folder)
    write(folder, made)
    second, comparison, again = run(folder)
    assert {tool.name for tool in second.tools} == {tool.name for tool in first.tools}
    assert (comparison.fresh, comparison.changed, comparison.vanished) == ([], [], [])
    wanted = {tool.name for tool in first.tools if tool.kind != "hosted"}
    assert {one.name for one in comparison.undecided} == wanted
    assert again.edits == []


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_loads_once_it_is_decided(name, tmp_path):
    """The declarations refuse to load and name each tool; then they name each stub; then they load."""
    folder = Bundle(name).write(tmp_path)
    found, _, made = run(folder)
    write(folder, made)
    (path,) = (folder / edit.path for edit in made.edits if edit.path.endswith("saga_tools.py"))
    module_name = f"under_test_{name}".replace("-", "_")  # One name: loading again replaces the compensators.
    with pytest.raises(DeclarationError) as refused:
        load(path, module_name)
    for tool in found.tools:
        assert tool.kind == "hosted" or f"{tool.name}: effect=DECIDE" in str(refused.value)
    first, *blocks = path.read_text().split("declare(\n")
    words = ["compensable" if ".bind(" in block.partition("\n)")[0] else "read_only" for block in blocks]
    decided = [block.replace("effect=DECIDE", f'effect="{word}"', 1) for block, word in zip(blocks, words, strict=True)]
    path.write_text("declare(\n".join([first, *decided]))
    assert "compensable" in words
    with pytest.raises(DeclarationError, match="is still a stub"):
        load(path, module_name)
    path.write_text(path.read_text().replace("@declare.unwritten_yet\n", ""))
    module = load(path, module_name)
    assert set(module.kit.declarations.names()) == {tool.name for tool in found.tools if tool.kind != "hosted"}
