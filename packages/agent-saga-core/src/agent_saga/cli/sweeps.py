"""One recovery sweep, told as it goes."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.next_steps import WorkItem, lines_of, work_items
from agent_saga.cli.reports import report_lines
from agent_saga.cli.session import FINDING, FINE, Session
from agent_saga.cli.terminal import visible
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.store.reader import load

if TYPE_CHECKING:
    from agent_saga.runtime.recover import Recovered
    from agent_saga.runtime.writer import Writer

_LEFT_ALONE: Final = {
    "live": "live",
    "suspended": "suspended",
    "resumable": "waiting for a resume",
    "quarantined": "quarantined",
    "raced": "taken by another recovery",
}


class Sweep:
    """Runs sweeps of one log, and prints what each of them did.

    Attributes:
        seen: with `watch`, what was printed of each saga last, so that it is not printed again.
    """

    def __init__(
        self, session: Session, writer: Writer, *, saga_id: str | None, imports: tuple[str, ...], watch: bool
    ) -> None:
        self.session, self._writer = session, writer
        self._saga_id, self._imports, self._watch = saga_id, imports, watch
        self.seen: dict[str, object] = {}
        self._items: dict[str, list[WorkItem]] = {}
        self._news: list[Recovered] = []

    def run(self) -> int:
        """Sweep once; return the exit code. What handlers print goes to stderr."""
        self._items, self._news = {}, []
        with contextlib.redirect_stdout(sys.stderr):
            done = drive(sweep(self._writer, saga_id=self._saga_id, progress=self._note))
        code = FINDING if any(one.left or one.damage or one.locked for one in done) else FINE
        if self._watch and not self._news:
            return code
        if self.session.out.as_json:
            self._document(self._news if self._watch else done, code)
        else:
            self._sum_up(done)
        return code

    def _note(self, one: Recovered) -> None:
        """Say what was done with a saga, as soon as it is done."""
        self._look(one)
        if self._is_news(one):
            self._news.append(one)
            if not self.session.out.as_json:
                self._tell(one)

    def _look(self, one: Recovered) -> None:
        """Find the command that does something about each step that is left."""
        if one.left and (loaded := load(self._writer.store, one.saga_id)) is not None:
            notes = {left.step: left.reason for left in one.left}
            self._items[one.saga_id] = work_items(
                loaded.view, self.session.command_line, notes=notes, imports=self._imports
            )

    def _is_news(self, one: Recovered) -> bool:
        if one.action in _LEFT_ALONE:
            return False
        said = str(one.damage or one.locked), tuple((left.step, left.state, left.human) for left in one.left)
        known = self.seen.get(one.saga_id)
        self.seen[one.saga_id] = said
        return not self._watch or one.action == "recovered" or known != said

    def _tell(self, one: Recovered) -> None:
        out = self.session.out
        head = f"saga {one.saga_id} {visible(one.name)}"
        if one.damage is not None:
            out.line(f"{head}: {out.paint('damaged', 'red')}, left as it is: {one.damage}")
            return
        if one.locked is not None:
            out.line(f"{head}: {out.paint('locked', 'red')}, left as it is: {one.locked}")
            return
        if one.report is not None:
            for line in report_lines(out, one.report, head=head):
                out.line(line)
        for item in self._items.get(one.saga_id, []):
            for line in lines_of(item):
                out.line(f"  {line}")

    def _sum_up(self, done: list[Recovered]) -> None:
        out = self.session.out
        counts = Counter(one.action for one in done)
        alone = [f"{counts[action]} {words}" for action, words in _LEFT_ALONE.items() if counts[action]]
        if alone:
            out.line(f"left alone: {', '.join(alone)}")
        left = [item for one in done for item in self._items.get(one.saga_id, [])]
        human = sum(item.human for item in left)
        recovered = f"{counts['recovered']} saga{'' if counts['recovered'] == 1 else 's'} recovered"
        bad = "".join(f", {counts[word]} {word}" for word in ("damaged", "locked") if counts[word])
        if left:
            words = f"{len(left)} step{'' if len(left) == 1 else 's'} left, {human} for a human"
            out.line(out.paint(f"{recovered}{bad}; {words}", "yellow"))
        else:
            out.line(out.paint(f"{recovered}{bad}; nothing is left", "yellow" if bad else "green"))

    def _document(self, done: list[Recovered], code: int) -> None:
        fields = {
            "log": self.session.place,
            "dry_run": False,
            "sagas": [self._fields(one) for one in done],
            "exit": code,
        }
        self.session.out.document("recover/1", fields, compact=self._watch)

    def _fields(self, one: Recovered) -> dict[str, Any]:
        return {
            "saga": one.saga_id,
            "name": one.name,
            "action": one.action,
            "damage": None if one.damage is None else str(one.damage),
            "locked": None if one.locked is None else {"key_id": one.locked.key_id, "message": str(one.locked)},
            "report": None if one.report is None else one.report.to_dict(),
            "left": [item.to_dict() for item in self._items.get(one.saga_id, [])],
        }
