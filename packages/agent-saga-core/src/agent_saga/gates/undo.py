"""Rules that keep the way back open: the place where compensations live, and the time for which they work."""

from __future__ import annotations

import datetime as dt
import fnmatch
import os
import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agent_saga.errors import DeclarationError
from agent_saga.gates.names import is_pattern
from agent_saga.gates.rule import ALLOW, EVERY, Rule, Then, answer, check_then, prepare
from agent_saga.gates.values import Unreadable, at_path, check_path, shown
from agent_saga.model.effects import Decision, Effect
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.model.call import ProposedCall, SagaFacts

Compare = Literal["path", "prefix", "pattern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPath(Rule):
    """Refuses a call that would destroy the place where a compensation lives that this saga may still need.

    The places are those that compensators state (`@compensator(..., lives_in="/var/backups")`): of this saga's steps
    whose effect stands or is in doubt, and of the call's own compensation.

    Args:
        tool: names or shell patterns of the tools that destroy.
        destroys: the path of the argument that says what.
        compare: `path`: files and folders, links resolved, shell patterns understood; destroying a folder destroys
            what is in it, and destroying something in a place damages the place. `prefix`: texts of which one begins
            with the other. `pattern`: the argument is a shell pattern over texts.
        place: how the argument becomes the text of a place, as in `table:{}`.
        then: the answer.
    """

    tool: str | tuple[str, ...]
    destroys: str
    compare: Compare = "path"
    place: str = "{}"
    then: Then = "refuse"
    parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "UndoPath")
        if self.compare not in _OVERLAPS:
            raise DeclarationError(f"UndoPath: compare must be one of {', '.join(_OVERLAPS)}; it is {self.compare!r}")
        if self.place.count("{}") != 1:
            raise DeclarationError(
                f"UndoPath: place must contain '{{}}' once, as in 'table:{{}}'; it is {self.place!r}"
            )
        prepare(self, parts=check_path(self.destroys))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        doomed = [self._place(value) for value in at_path(call.kwargs, self.parts)]
        overlap = _OVERLAPS[self.compare]
        for needed, owner in _needed(call, saga):
            for place in doomed:
                if overlap(place, needed):
                    return answer(
                        self.then,
                        f"{call.tool} would destroy {shown(place)}; {owner} needs {shown(needed)} to be compensated",
                    )
        return ALLOW

    def _place(self, value: object) -> str:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if type(text) is not str or not text or "\0" in text:
            raise Unreadable(f"argument {self.destroys!r} must be a text; it is {shown(value)}")
        return self.place.replace("{}", text)


def _needed(call: ProposedCall, saga: SagaFacts) -> Iterator[tuple[str, str]]:
    """Yield the places that compensations live in which may be needed, and whose they are."""
    for place, step in saga.places():
        yield place, f"step {step.step_id.rpartition(':')[2]} ({step.tool})"
    if call.lives_in is not None:
        yield call.lives_in, "the call itself"


def _paths_overlap(doomed: str, needed: str) -> bool:
    place = _file(needed)
    if not is_pattern(doomed):
        return _is_within(_file(doomed), place) or _is_within(place, _file(doomed))
    fixed = doomed[: min(doomed.find(char) for char in "*?[" if char in doomed)].rpartition("/")[0]
    root = _file(fixed or ("/" if doomed.startswith("/") else "."))
    return _pattern_reaches(posixpath.join(root, doomed[len(fixed) :].lstrip("/").casefold()), place)


def _pattern_reaches(pattern: str, place: str) -> bool:
    """Tell whether a pattern may match the place, a folder above it or something in it."""
    above = place
    while True:  # As a whole: a `*` of some tools stands for more than one folder.
        if fnmatch.fnmatchcase(above, pattern):
            return True
        if above == posixpath.dirname(above):
            break
        above = posixpath.dirname(above)
    for part, name in zip(pattern.split("/"), place.split("/"), strict=False):  # Folder by folder, as a shell does.
        if part == "**":
            return True
        if not fnmatch.fnmatchcase(name, part):
            return False
    return True


def _file(text: str) -> str:
    """Return a path absolute, with links resolved; case makes no difference, as on some file systems."""
    text = text.removeprefix("file://")
    if "://" in text:
        scheme, _, rest = text.partition("://")
        return f"{scheme}://{posixpath.normpath('/' + rest)}".casefold()
    return os.path.realpath(Path(text).expanduser()).replace(os.sep, "/").casefold()


def _is_within(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _prefixes_overlap(doomed: str, needed: str) -> bool:
    return needed.startswith(doomed) or doomed.startswith(needed)


def _pattern_matches(doomed: str, needed: str) -> bool:
    return fnmatch.fnmatchcase(needed, doomed) or fnmatch.fnmatchcase(needed, doomed.rstrip("/") + "/*")


_OVERLAPS: Final = {"path": _paths_overlap, "prefix": _prefixes_overlap, "pattern": _pattern_matches}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationWindow(Rule):
    """Answers calls that cannot be compensated, or not for long enough.

    That is: irreversible calls, calls whose compensation is not known before they ran (a callable `compensate=`),
    compensators whose `valid_for_s` is too short, and, with `until`, calls whose argument states a time too near.

    Args:
        at_least_s: how long the compensation must work.
        tool: names or shell patterns of the tools concerned.
        until: the path of an argument with the last moment at which it works: an aware datetime, or ISO 8601 text.
        then: the answer.
    """

    at_least_s: float
    tool: str | tuple[str, ...] = EVERY
    until: str | None = None
    then: Then = "ask"
    parts: tuple[str, ...] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "CompensationWindow")
        if not 0 <= self.at_least_s < float("inf"):
            raise DeclarationError(
                f"CompensationWindow: at_least_s must be a number of seconds; it is {self.at_least_s}"
            )
        prepare(self, parts=None if self.until is None else check_path(self.until))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        if call.effect is Effect.IRREVERSIBLE:
            return answer(self.then, f"{call.tool} cannot be compensated at all")
        if call.compensator is None:
            return answer(self.then, f"{call.tool}: what would compensate it is known only after it ran")
        if call.valid_for_s is not None and call.valid_for_s < self.at_least_s:
            return answer(self.then, self._reason(call, call.valid_for_s))
        if self.parts is not None:
            left_s = min(_seconds_left(value, self.until or "") for value in at_path(call.kwargs, self.parts))
            if left_s < self.at_least_s:
                return answer(self.then, self._reason(call, left_s))
        return ALLOW

    def _reason(self, call: ProposedCall, left_s: float) -> str:
        wanted = f"{float(self.at_least_s):g} s are wanted"
        if left_s <= 0:
            return f"{call.tool} cannot be compensated any more; {wanted}"
        return f"{call.tool} can be compensated for {left_s:.0f} s only; {wanted}"


def _seconds_left(value: object, name: str) -> float:
    """Return the time from now to a moment.

    Raises:
        Unreadable: it is no moment, or has no zone.
    """
    moment = value
    if type(value) is str:
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if not isinstance(moment, dt.datetime) or moment.tzinfo is None:
        raise Unreadable(
            f"argument {name!r} must be a time with its zone, as 2026-12-01T18:00:00Z; it is {shown(value)}"
        )
    return moment.timestamp() - clock().time_ns() / 1e9
