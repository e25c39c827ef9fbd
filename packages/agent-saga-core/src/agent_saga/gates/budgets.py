"""Budgets and rate limits: what the log itself checks and reserves in the transaction of the intent.

A policy only states the requirement. So budgets are shared by all processes of a log, and no two calls can both take
what is left for one.
"""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from agent_saga.errors import DeclarationError
from agent_saga.gates.bounds import Amount, as_tuple, limit
from agent_saga.gates.reading import Reading
from agent_saga.gates.rule import EVERY, Rule, prepare
from agent_saga.gates.values import Unreadable, at_path, check_path, shown, total_of
from agent_saga.model.effects import Allow, Decision, Refuse
from agent_saga.model.requirements import Limit, Within
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.model.call import ProposedCall, SagaFacts

Window = Literal["minute", "hour", "day", "month"] | float | None
"""A calendar window in UTC, a rolling one in seconds, or None for ever."""

_NS: Final = 1_000_000_000
_FIXED: Final = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m"}
_PER_LENGTH_MAX: Final = 200
_ONE: Final = Decimal(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Rule):
    """Keeps what calls spend within a limit. Compensated spend is not given back; spend in doubt stays reserved.

    Args:
        name: the budget; rules of one name share it, in all processes of the log.
        limit: the most that may be spent, in `unit`.
        amount: the path of what a call spends; the sum, where there are several. With None each call spends 1.
        per: a budget of its own per `tool`, per `saga`, or per value of an argument (`kwargs.customer`); None: one.
        window: `minute`, `hour`, `day` or `month` (UTC), a rolling number of seconds, or None for ever.
        tool: names or shell patterns of the tools concerned.
        unit: the unit of `limit`; see `Bounds`.
        allowed_units: see `Bounds`.
        unit_argument: see `Bounds`.
    """

    name: str
    limit: Amount
    amount: str | None = None
    per: str | None = None
    window: Window = None
    tool: str | tuple[str, ...] = EVERY
    unit: str | None = None
    allowed_units: tuple[str, ...] = ()
    unit_argument: str | None = None
    reading: Reading | None = field(init=False, repr=False, compare=False)
    most: Decimal = field(init=False, repr=False, compare=False)
    share: Share = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        most = limit(self.limit, f"Budget {self.name!r}: limit")
        if most < 0:
            raise DeclarationError(f"Budget {self.name!r}: limit {most} is negative; no call could pass")
        reading = None
        if self.amount is not None:
            units = as_tuple(self.allowed_units)
            reading = Reading(
                argument=self.amount, unit=self.unit, allowed_units=units, unit_argument=self.unit_argument
            )
            most = reading.base(most)
        elif self.unit is not None:
            raise DeclarationError(f"Budget {self.name!r}: unit needs amount=, the path of what a call spends")
        prepare(self, reading=reading, most=most, share=Share("budget", self.name, self.per, self.window))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        reading = self.reading
        amount = _ONE if reading is None else total_of(reading.read(call.kwargs))
        if amount > self.most:
            unit = f" {self.unit}" if self.unit else ""
            return Refuse(f"{call.tool}: it would spend more than the whole budget {self.name!r} ({self.limit}{unit})")
        return self.share.take(call, saga, amount, self.most)

    def limits(self) -> tuple[Limit, ...]:
        """Return what `kit.status()` looks at."""
        unit = f" {self.unit}" if self.unit else ""
        return self.share.limits(f"budget {self.name!r} ({self.limit}{unit})", self.most, lasting=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit(Rule):
    """Lets at most so many calls through in a window.

    Args:
        name: the limit; rules of one name share it, in all processes of the log.
        calls: how many.
        window: `minute`, `hour`, `day` or `month` (UTC), or a rolling number of seconds.
        tool: names or shell patterns of the tools concerned.
        per: a limit of its own per `tool`, per `saga`, or per value of an argument (`kwargs.customer`); None: one.
    """

    name: str
    calls: int
    window: Window = 60.0
    tool: str | tuple[str, ...] = EVERY
    per: str | None = None
    most: Decimal = field(init=False, repr=False, compare=False)
    share: Share = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        if type(self.calls) is not int or self.calls < 0:
            raise DeclarationError(f"RateLimit {self.name!r}: calls must be a whole number; it is {self.calls!r}")
        prepare(self, most=Decimal(self.calls), share=Share("calls", self.name, self.per, self.window))

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        return self.share.take(call, saga, _ONE, self.most)

    def limits(self) -> tuple[Limit, ...]:
        """Return what `kit.status()` looks at."""
        return self.share.limits(f"rate limit {self.name!r} ({self.calls})", self.most, lasting=False)


class Share:
    """Which budget a call spends from: the name, the part of it, the window."""

    __slots__ = ("_name", "_part", "_per", "_rolling_ns", "_window")

    def __init__(self, kind: str, name: str, per: str | None, window: Window) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"a budget needs a name; it is {name!r}")
        self._name = f"{kind}:{quote(name, safe='')}"
        self._part, self._per = _part(per), per
        self._window: str | None = None
        self._rolling_ns = 0
        if isinstance(window, str) and window in _FIXED:
            self._window = window
        elif isinstance(window, int | float | Decimal) and type(window) is not bool and 0 < window < float("inf"):
            self._rolling_ns = int(window * _NS)
        elif window is not None:
            choices = ", ".join(map(repr, _FIXED))
            raise DeclarationError(
                f"budget {name!r}: window must be one of {choices}, or a positive number of seconds; it is {window!r}"
            )

    def take(self, call: ProposedCall, saga: SagaFacts, amount: Decimal, most: Decimal) -> Decision:
        """Return the permission to spend, on the condition that the budget has it.

        Raises:
            Unreadable: it cannot be told whose budget it is.
        """
        name = self._name
        if self._part is not None:
            name = f"{name}/{self._part(call, saga)}"
        if self._window is not None:
            name = f"{name}@{_stamp(self._window, clock().time_ns() // (60 * _NS))}"
        elif self._rolling_ns:
            since_ns, (first, *others) = self._rolling()
            also = tuple(name + tail for tail in others)
            return Allow((Within(budget=name + first, amount=amount, limit=most, since_ns=since_ns, also=also),))
        return Allow((Within(budget=name, amount=amount, limit=most),))

    def _rolling(self) -> tuple[int, list[str]]:
        """A rolling window: what is spent is kept apart by windows, so that a look goes over three of them at most.

        The one after this one is for processes whose clock is ahead.
        """
        now, length = clock().time_ns(), self._rolling_ns
        number = now // length
        tails = [f"@{length / _NS:g}s.{part}" for part in (number, number - 1, number + 1)]
        return max(1, now - length), tails

    def limits(self, title: str, most: Decimal, *, lasting: bool) -> tuple[Limit, ...]:
        """Return the limit as `status` asks about it; those of single sagas are not told."""
        if self._per == "saga":
            return ()
        since_ns, tails = 0, [""]
        if self._window is not None:
            tails = [f"@{_stamp(self._window, clock().time_ns() // (60 * _NS))}"]
        elif self._rolling_ns:
            since_ns, tails = self._rolling()
        parted = self._part is not None
        return (
            Limit(
                title=title,
                base=self._name,
                tails=tuple(tails),
                limit=most,
                since_ns=since_ns,
                parted=parted,
                lasting=lasting,
            ),
        )


@functools.lru_cache(maxsize=64)
def _stamp(window: str, minute: int) -> str:
    """Return the name of the calendar window of a minute since the epoch."""
    return dt.datetime.fromtimestamp(minute * 60, tz=dt.UTC).strftime(_FIXED[window])


def _part(per: str | None) -> Callable[[ProposedCall, SagaFacts], str] | None:
    """Return what tells whose budget a call spends from."""
    if not isinstance(per, str | None):
        raise DeclarationError(f"per must be 'tool', 'saga' or the path of an argument; it is {per!r}")
    if per is None:
        return None
    if per == "tool":
        return lambda call, _saga: quote(call.tool, safe="")
    if per == "saga":
        return lambda _call, saga: quote(saga.id, safe="")
    parts = check_path(per.removeprefix("argument:"))
    name = ".".join(parts)
    return lambda call, _saga: f"{name}={_value(call.kwargs, parts, name)}"


def _value(kwargs: Mapping[str, Any], parts: tuple[str, ...], name: str) -> str:
    """Return the one value that names a part of the budget, quoted so that no value can name another part.

    Raises:
        Unreadable: it is not one text or integer, or contains what is not seen.
    """
    values = at_path(kwargs, parts)
    value = values[0]
    if len(values) != 1 or type(value) not in {str, int}:
        raise Unreadable(
            f"argument {name!r} must be one text or integer to have a budget of its own; it is {shown(value)}"
        )
    text = str(value)
    if text.isalnum() and text.isascii() and len(text) <= _PER_LENGTH_MAX:
        return text
    if not text or len(text) > _PER_LENGTH_MAX or not text.isprintable() or text != text.strip():
        raise Unreadable(f"argument {name!r} must be a plain text to have a budget of its own; it is {shown(value)}")
    return quote(text, safe="")
