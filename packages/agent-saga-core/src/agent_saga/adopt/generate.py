"""The files that `adopt` writes: `saga_tools.py` with every effect undecided, and a test that proves the rollback."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.adopt.model import Inverse, Tool

COMPLETE: Final = "declare.complete()"
"""The last line of `saga_tools.py`; new declarations are put before it."""
_HEAD: Final = '''"""What each tool of this project does to the world, decided by a human.

Made by `agent-saga adopt`, which adds new tools and changes nothing that is here. Write in place of each DECIDE:

    "read_only"     it changes nothing
    "reversible"    compensate= restores exactly what was there before
    "compensable"   compensate= offsets it; a trace stays (a refund, a cancellation)
    "irreversible"  nothing takes it back (a mail, a wire transfer); it asks a human first, and takes no compensate=

The hints are reasons, not decisions. Until all are decided, importing this module fails and names what is missing.
"""

from agent_saga import AgentKit, compensator
from agent_saga.adopt import DECIDE, Decisions

kit = AgentKit()  # The log: what AGENT_SAGA_LOG names, else ./agent-saga.db
declare = Decisions(kit)
'''
_TAIL: Final = f"""
{COMPLETE}  # Refuses, with the names, while something is undecided.
"""


def saga_tools(tools: list[Tool], module: str) -> str:
    """Return the whole file for a project that has none."""
    return _HEAD + blocks(tools, module, taken=set()) + _TAIL


def blocks(tools: Iterable[Tool], module: str, *, taken: set[str]) -> str:
    """Return a stub and a declaration for each tool.

    Args:
        tools: what to declare.
        module: the dotted name of the file, for the compensators' names.
        taken: names of functions that the file has already.
    """
    written: list[str] = []
    stubs: dict[str, tuple[Inverse, str]] = {}
    for tool in tools:
        lines = ["", "", *_comment(tool)]
        if tool.inverse is not None:
            name = _stub_name(tool, taken, stubs)
            if name not in stubs:
                stubs[name] = (tool.inverse, tool.name)
                lines = ["", "", *_stub(name, tool, tool.inverse, module), "", "", *_comment(tool)]
            lines += _declare(tool, name)
        else:
            lines += _declare(tool, None)
        written += lines
    return "\n".join(written) + "\n"


def _stub_name(tool: Tool, taken: set[str], stubs: dict[str, tuple[Inverse, str]]) -> str:
    assert tool.inverse is not None
    name = re.sub(r"\W", "_", tool.inverse.name) or "take_back"
    if keyword.iskeyword(name) or name in {"kit", "declare", "compensator"}:
        name += "_it"
    known = stubs.get(name)
    if name in taken or (known is not None and known[0].parameters != tool.inverse.parameters):
        name = f"{name}_of_{re.sub(r'[^A-Za-z0-9_]', '_', tool.name)}"
    return name


def _stub(name: str, tool: Tool, inverse: Inverse, module: str) -> list[str]:
    wait = "async " if inverse.code.startswith("await ") else ""
    inside = ", ".join(name for name, _ in inverse.parameters)
    lines = [
        f'@compensator("{module}.{name}")  # Also: idempotent=True, safe_if_absent=True, verify=...',
        "@declare.unwritten_yet",
        f"{wait}def {name}({inside}):",
        f'    """Offset {tool.name}: {_plain(inverse.reason)}."""',
    ]
    types = ", ".join(f"{name}: {annotation}" for name, annotation in inverse.parameters if annotation)
    if types:
        lines.append(f"    # {_plain(types)}")
    if inverse.code:
        lines.append(f"    # Perhaps: {_plain(inverse.code)}")
    lines.append(f'    raise NotImplementedError("{name}: write what takes it back")')
    return lines


def _comment(tool: Tool) -> list[str]:
    where = f"# {tool.path}:{tool.line}  [{', '.join(tool.frameworks)}]"
    lines = [where, f"#   {_plain(tool.signature())}"]
    if tool.doc:
        lines.append(f"#   {_plain(tool.doc)}")
    if not tool.name_known:
        lines.append("#   The name is made at run time: write the one that the model sees.")
    lines += [f"#   hint: {hint.effect}, {_plain(hint.reason)}" for hint in tool.hints]
    if len({hint.effect for hint in tool.hints}) > 1:
        lines.append("#   The hints disagree.")
    return [line if len(line) <= 118 else line[:115] + "..." for line in lines]  # noqa: PLR2004


def _declare(tool: Tool, stub: str | None) -> list[str]:
    lines = ["declare(", f"    {_text(tool.name)},", "    effect=DECIDE,"]
    if stub is not None:
        assert tool.inverse is not None
        inside = ", ".join(f'{name}="{path}"' for name, path in tool.inverse.bind.items() if path != "key")
        lines.append(f"    compensate={stub}.bind({inside}),")
    return [*lines, f'    seen="{tool.seen}",', ")"]


def _text(value: str) -> str:
    shown = repr(value)
    return f'"{value}"' if shown == f"'{value}'" and '"' not in value else shown


def _plain(text: str) -> str:
    """Return text from a project as it can stand in a comment or docstring of ours: on one line, and no code."""
    one = " ".join(text.split()).replace('"""', "'''").replace("\\", "/")
    return "".join(c if c.isprintable() else "?" for c in one)[:200].rstrip('"')


def rollback_test(module: str, tools: list[Tool], imports: dict[str, str]) -> str:
    """Return the file of a test that proves the rollback, with three places to fill in.

    Args:
        module: the dotted name of `saga_tools`.
        tools: those to call, where their functions can be called.
        imports: tool -> import line and expression of its function, split by a newline.
    """
    calls: list[str] = []
    lines: dict[str, None] = {}
    for tool in tools:
        if tool.name in imports:
            line, expression = imports[tool.name].split("\n")
            lines[line] = None
            given = ", ".join(
                f'"{n}": {_example(a)}' for n, a, default in tool.parameters if not default and n != "idempotency_key"
            )
            calls.append(f"        # call({_text(tool.name)}, {expression}, {{{given}}})")
    imported = "".join(f"# {line}\n" for line in sorted(lines))
    return _TEST.format(
        module=module,
        imported=imported,
        calls="\n".join(calls) or "        # Run your agent here, with a scripted model.",
    )


def _example(annotation: str) -> str:
    known = {"str": '"example"', "int": "1", "float": "1.0", "bool": "True"}
    base = annotation.partition("[")[0].strip()
    return known.get(base, {"list": "[]", "dict": "{}"}.get(base, "..."))


_TEST: Final = '''"""Made by `agent-saga adopt`: proves that the workflow rolls back, wherever it breaks. Fill in the three functions.

Needs pytest-agent-saga. Run it against a world that a test may change: a scratch database, a sandbox account.
"""

from {module} import kit

from agent_saga.spi import guard

{imported}

def world():
    """Return what the tools change, as plain data: rows, files, what the sandbox lists."""
    raise NotImplementedError("world: look at what the tools change")


def reset():
    """Make the world as it was before the workflow."""
    raise NotImplementedError("reset: make the world as it was")


def call(name, function, kwargs):
    """Call a tool's function as a step."""
    return guard(name, kwargs, lambda given: function(**given), adapter="test", kit=kit)


def workflow():
    with kit.transaction("workflow"):
{calls}
        raise NotImplementedError("workflow: call the tools, or run the agent with a scripted model")


def test_the_workflow_rolls_back(assert_rollback_proven):
    """The workflow is broken before and after each effect and in each compensation; the world is compared."""
    world(), reset()  # What is not filled in fails here, and not as one of the failures that are played.
    assert_rollback_proven(workflow, snapshot=world, reset=reset, strict=True)
'''  # noqa: E501
