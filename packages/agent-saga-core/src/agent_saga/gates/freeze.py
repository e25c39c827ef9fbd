"""Freeze windows: times at which some tools may not run."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.rule import ALLOW, EVERY, Rule, Then, answer, check_then, prepare
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from agent_saga.model.call import ProposedCall, SagaFacts
    from agent_saga.model.effects import Decision

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWindow(Rule):
    """Answers calls between two moments.

    Args:
        starts_at: an aware datetime, or ISO 8601 text with its zone.
        ends_at: the first moment after the freeze.
        tool: names or shell patterns of the tools concerned.
        reason: why, in one line.
        then: the answer.
    """

    starts_at: dt.datetime | str
    ends_at: dt.datetime | str
    tool: str | tuple[str, ...] = EVERY
    reason: str = "changes are frozen"
    then: Then = "refuse"
    first: float = field(init=False, repr=False, compare=False)
    after: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "FreezeWindow")
        first, after = _moment(self.starts_at, "starts_at"), _moment(self.ends_at, "ends_at")
        if after <= first:
            raise DeclarationError("FreezeWindow: ends_at must be after starts_at")
        prepare(self, starts_at=first, ends_at=after, first=first.timestamp(), after=after.timestamp())

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        if self.first <= clock().time_ns() / 1e9 < self.after:
            return answer(self.then, f"{call.tool}: {self.reason} until {self.ends_at}")
        return ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyFreeze(Rule):
    """Answers calls at certain hours of certain days of the week, on the wall clock of a place.

    Args:
        days: `mon` to `sun`: the days on which the freeze starts.
        start: as `18:00`.
        end: as `06:00`; on the next day when it is not after `start`. `00:00` to `00:00` is the whole day.
        zone: as `Europe/Berlin`.
        tool: names or shell patterns of the tools concerned.
        reason: why, in one line.
        then: the answer.
    """

    days: tuple[str, ...] | str
    start: str | dt.time = "00:00"
    end: str | dt.time = "00:00"
    zone: str = "UTC"
    tool: str | tuple[str, ...] = EVERY
    reason: str = "changes are frozen"
    then: Then = "refuse"
    tzinfo: dt.tzinfo = field(init=False, repr=False, compare=False)
    first: dt.time = field(init=False, repr=False, compare=False)
    after: dt.time = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "WeeklyFreeze")
        days = (self.days,) if isinstance(self.days, str) else tuple(self.days)
        if not days or not set(days) <= set(_DAYS):
            raise DeclarationError(f"WeeklyFreeze: days must be some of {', '.join(_DAYS)}; they are {self.days!r}")
        prepare(self, days=days, tzinfo=_zone(self.zone), first=_time(self.start), after=_time(self.end))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        now = dt.datetime.fromtimestamp(clock().time_ns() / 1e9, tz=self.tzinfo)
        if self.is_frozen(_DAYS[now.weekday()], _DAYS[now.weekday() - 1], now.time()):
            return answer(self.then, f"{call.tool}: {self.reason} until {self.end} ({self.zone})")
        return ALLOW

    def is_frozen(self, today: str, yesterday: str, now: dt.time) -> bool:
        """Tell whether a time of day is frozen."""
        if self.first < self.after:
            return today in self.days and self.first <= now < self.after
        return (today in self.days and now >= self.first) or (yesterday in self.days and now < self.after)


def _moment(value: object, name: str) -> dt.datetime:
    moment = value
    if isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if not isinstance(moment, dt.datetime) or moment.tzinfo is None:
        raise DeclarationError(
            f"FreezeWindow: {name} must be a time with its zone, as 2026-12-24T00:00:00Z; it is {value!r}"
        )
    return moment


def _time(text: str | dt.time) -> dt.time:
    try:
        return text if isinstance(text, dt.time) else dt.time.fromisoformat(text)
    except (TypeError, ValueError):
        raise DeclarationError(f"WeeklyFreeze: {text!r} is no time of day, as '18:00'") from None


def _zone(name: str) -> dt.tzinfo:
    if name == "UTC":
        return dt.UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise DeclarationError(f"WeeklyFreeze: there is no time zone {name!r}; as 'Europe/Berlin' or 'UTC'") from None
