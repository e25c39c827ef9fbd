"""Words on a terminal: nothing from a log can break a line, move the cursor or hide text; colour only adds."""

from __future__ import annotations

import datetime as dt
import os
import sys
from typing import Any, Final, TextIO

NAME_LENGTH_MAX: Final = 60
"""Longer names are shortened on a terminal; `--json` has them whole."""
VALUE_LENGTH_MAX: Final = 200

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


def visible(text: object, *, length_max: int | None = NAME_LENGTH_MAX) -> str:
    """Return `text` on one line, with everything that is not printable as an escape, and shortened.

    Args:
        text: any text; other objects by their `str`, which a damaged row may hold.
        length_max: characters kept; None keeps all.
    """
    whole = str(text)
    kept = whole if length_max is None or len(whole) <= length_max else whole[: length_max - 3]
    shown = kept if kept.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in kept)
    return shown if len(kept) == len(whole) else f"{shown}... ({len(whole)} characters)"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def moment(at_ns: int | None) -> str:
    """Return a time for people, in UTC to the millisecond; `-` for none, the number where no calendar has it."""
    if at_ns is None:
        return "-"
    try:
        then = dt.datetime.fromtimestamp(at_ns // 1_000_000_000, tz=dt.UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return f"{visible(at_ns)} ns"
    return f"{then:%Y-%m-%d %H:%M:%S}.{at_ns // 1_000_000 % 1000:03d} UTC"


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Return lines in which the cells of each column are aligned, wide characters counted as two."""
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


class Output:
    """Where a command writes: data to stdout; with `--json`, and for exports, everything else to stderr.

    Args:
        as_json: print one versioned JSON document instead of text.
        data: stdout carries data, so words about it go to stderr.

    Attributes:
        located: the log's path was printed, so the log was opened once.
    """

    def __init__(self, *, as_json: bool, data: bool = False) -> None:
        self.as_json = as_json
        self._data = sys.stdout  # Bound now: while user code runs, sys.stdout leads to stderr.
        self._words: TextIO = sys.stderr if as_json or data else sys.stdout
        self._colour = _wants_colour(self._words)
        self.located = False

    def location(self, path: str) -> None:
        """Print the log's absolute path, once."""
        if not self.located:
            self.located = True
            self.line(f"log: {visible(path, length_max=None)}")

    def line(self, text: str = "") -> None:
        """Print words; on stderr where stdout carries data."""
        self._words.write(text + "\n")
        if self._words is sys.stderr:
            self._words.flush()

    def error(self, message: str) -> None:
        """Print what went wrong on stderr."""
        self._data.flush()
        shown = "\n".join(visible(line, length_max=None) for line in message.split("\n"))
        sys.stderr.write(f"{_painted('error:', 'red') if _wants_colour(sys.stderr) else 'error:'} {shown}\n")
        sys.stderr.flush()

    def document(self, shape: str, fields: dict[str, Any], *, compact: bool = False) -> None:
        """Print one JSON document on stdout.

        Args:
            shape: name and version, as `show/1`; it grows with each change that could break a reader.
            fields: the rest.
            compact: on one line, for streams of documents.
        """
        import json

        whole = {"schema": f"agent-saga/{shape}", **fields}
        self._data.write(json.dumps(whole, indent=None if compact else 2) + "\n")
        self._data.flush()

    def paint(self, text: str, colour: str) -> str:
        """Return `text` in a colour, where colour is shown at all."""
        return _painted(text, colour) if self._colour and text else text


def _painted(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
