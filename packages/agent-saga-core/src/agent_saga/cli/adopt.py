"""`agent-saga adopt`: find every tool of a project, and write what a human then decides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.session import FINDING, FINE, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import SagaError, UsageError

if TYPE_CHECKING:
    from agent_saga.adopt.apply import Plan
    from agent_saga.adopt.declared import Comparison
    from agent_saga.adopt.model import Scan, Tool


@click.command(short_help="Find the tools of a project, and write their declarations.")
@click.argument("path", default=".", metavar="[PATH]")
@click.option("--write", "do_write", is_flag=True, help="Write the files and hooks that the diff shows.")
@click.option("--check", is_flag=True, help="Exit 1 if a tool is new, changed, gone or undecided; for CI.")
@click.option("--diff", "only_diff", is_flag=True, help="Print the diff alone, for `git apply`.")
@click.option("--include-tests", is_flag=True, help="Look into test files too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def adopt(path: str, *, do_write: bool, check: bool, only_diff: bool, include_tests: bool, as_json: bool) -> None:
    """Find the tools of the project at PATH, and say what is to be decided about each.

    The project's code is read and not run. Without --write nothing is changed: the diff shows what would be.
    Exit code 1: a tool is new, changed, gone or undecided (with --check), or a hook could not be put in (--write).
    """
    out = Output(as_json=as_json, data=only_diff)
    try:
        if do_write and check:
            raise UsageError("--write and --check do not go together")
        code = _adopt(out, Path(path), do_write=do_write, check=check, only_diff=only_diff, tests=include_tests)
    except SagaError as error:
        code = report_error(out, error)
    click.get_current_context().exit(code)


def _adopt(out: Output, root: Path, *, do_write: bool, check: bool, only_diff: bool, tests: bool) -> int:
    from agent_saga.adopt.apply import plan, write
    from agent_saga.adopt.declared import compare
    from agent_saga.adopt.scan import scan

    if not root.exists():
        raise UsageError(f"there is nothing at {root.absolute()}")
    found, project, names = scan(root, tests=tests)
    comparison = compare(found, project, names)
    made = plan(found, project, names, comparison)
    if out.as_json:
        _document(out, found, comparison, made, written=do_write)
    elif only_diff:
        click.echo(made.diff(), nl=False)
    else:
        _report(out, found, comparison)
        if not check:
            _show(out, made)
    if do_write:
        for path in write(project.root, made):
            out.line(f"wrote {visible(path, length_max=None)}")
    elif not (check or only_diff or out.as_json) and made.edits:
        out.line(f"nothing was changed; to write {len(made.edits)} files: agent-saga adopt {_word(root)} --write")
    if check:
        return FINE if comparison.clean else FINDING
    return FINDING if do_write and made.left else FINE


def _word(root: Path) -> str:
    import shlex

    return shlex.quote(str(root))


def _document(out: Output, found: Scan, comparison: Comparison, made: Plan, *, written: bool) -> None:
    fields: dict[str, Any] = {**found.to_dict(), **comparison.to_dict()}
    fields |= {
        "module": made.module,
        "edits": [{"path": edit.path, "new": not edit.before} for edit in made.edits],
        "diff": made.diff(),
        "left": made.left,
        "written": written,
    }
    out.document("adopt/1", fields)


def _report(out: Output, found: Scan, comparison: Comparison) -> None:
    from agent_saga.adopt.frameworks import TITLES
    from agent_saga.cli.terminal import columns

    used = ", ".join(TITLES[name] for name in found.frameworks) or "no known framework"
    out.line(f"{found.files} files, {used}; {len(found.tools)} tools, {len(found.sources)} sources of tools")
    rows = [_row(tool, comparison) for tool in found.tools]
    for line in columns([("tool", "where", "hint", ""), *rows]) if rows else []:
        out.line(f"  {line}")
    for source in found.sources:
        out.line(
            f"  source: {visible(source.what)} ({visible(source.path)}:{source.line}): its tools are named at run time; "  # noqa: E501
            "the adapter refuses those that are not declared, and names them"
        )
    for one in comparison.vanished:
        out.line(
            f"  gone: {visible(one.name)} is declared ({visible(one.path)}:{one.line}) and was not found; open sagas may "  # noqa: E501
            "still need its compensator"
        )
    for tool, declared in comparison.changed:
        out.line(
            f"  changed: {visible(tool.name)} is not what was decided on ({visible(declared.path)}:{declared.line}); "
            f'look at it, then write seen="{tool.seen}"'
        )
    for name, tools in comparison.clashes.items():
        places = ", ".join(f"{visible(tool.path)}:{tool.line}" for tool in tools)
        out.line(f"  one name, several tools: {visible(name)} ({places}); they share one declaration")
    for place in found.unfollowed:
        out.line(f"  not followed: {visible(place, length_max=200)}")
    for path, reason in found.unread:
        out.line(f"  not read: {visible(path)}: {visible(reason, length_max=200)}")
    out.line(_summary(comparison))


def _row(tool: Tool, comparison: Comparison) -> tuple[str, ...]:
    words = list(dict.fromkeys(hint.effect for hint in tool.hints))
    state = "new" if any(one.name == tool.name for one in comparison.fresh) else ""
    if any(one.name == tool.name for one in comparison.undecided):
        state = "DECIDE"
    if tool.kind == "hosted":
        state = "run by the model's provider"
    return visible(tool.name), f"{visible(tool.path)}:{tool.line}", " or ".join(words), state


def _summary(comparison: Comparison) -> str:
    counts = (
        (len(comparison.fresh), "new"),
        (len(comparison.changed), "changed"),
        (len(comparison.vanished), "gone"),
        (len(comparison.undecided), "undecided"),
    )
    if comparison.clean:
        return "every tool is declared and decided"
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _show(out: Output, made: Plan) -> None:
    for line in made.diff().splitlines():
        shown = visible(line, length_max=None) if not line.isprintable() else line
        colour = {"+": "green", "-": "red", "@": "blue"}.get(line[:1], "")
        out.line(out.paint(shown, colour) if colour else shown)
    for place in made.left:
        out.line(f"left to you: {visible(place, length_max=200)}")
