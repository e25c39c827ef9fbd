"""Checks the hard limits of STYLE 3: 600 lines a module, 70 lines a function, its docstring not counted."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def main() -> None:
    files = sorted(
        {
            *ROOT.glob("packages/**/*.py"),
            *ROOT.glob("integration-tests/**/*.py"),
            *ROOT.glob("examples/**/*.py"),
            *programs(),
        }
    )
    findings = [f"{file.relative_to(ROOT)}:{finding}" for file in files for finding in check(file.read_text("utf-8"))]
    print(*findings, f"{len(files)} files, {len(findings)} over the limits", sep="\n")
    sys.exit(bool(findings))


def programs() -> Iterator[Path]:
    """Yields the Python programs of scripts/, also those without a suffix."""
    yield from ROOT.glob("scripts/*/*.py")
    for file in ROOT.glob("scripts/*"):
        if file.is_file() and (file.suffix == ".py" or file.read_bytes().startswith(b"#!/usr/bin/env python3")):
            yield file


def check(source: str) -> Iterator[str]:
    """Yields a line for each limit that is broken."""
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"1: module of {lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := length(node)) > FUNCTION_LINES_MAX:
            yield f"{node.lineno}: function {node.name} of {lines} lines, at most {FUNCTION_LINES_MAX}"


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the number of lines from `def` to the last one, without those of the docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


if __name__ == "__main__":
    main()
