"""A rollback's report, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.terminal import VALUE_LENGTH_MAX, visible
from agent_saga.model.report import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_saga.cli.terminal import Output
    from agent_saga.model.report import RollbackReport

_COLOURS: Final = {"kept": "blue", "compensated": "green", "assumed_absent": "dim"}


def report_lines(out: Output, report: RollbackReport, *, head: str) -> Iterator[str]:
    """Yield a report: the verdict, the cause, and a line for each effect."""
    yield f"{head}: {verdict(out, report)}"
    if report.cause:
        yield f"  cause: {visible(report.cause, length_max=VALUE_LENGTH_MAX)}"
    for bucket in (*BUCKETS, "assumed_absent"):
        for step in getattr(report, bucket):
            label = out.paint(f"{bucket.replace('_', ' '):<14}", _COLOURS.get(bucket, "yellow"))
            number = step.step_id.rpartition(":")[2]
            yield f"  {label} {number:>3} {call(step.tool, step.kwargs)}"


def verdict(out: Output, report: RollbackReport) -> str:
    """Return how a saga ended, in the words of `RollbackReport.format_text`."""
    if report.outcome != "rolled_back":
        return out.paint(report.outcome, "green" if report.outcome == "committed" else "yellow")
    words = "rolled back, " + ("clean" if report.clean else "partial") + (" and verified" if report.verified else "")
    return out.paint(words, "green" if report.clean else "yellow")


def call(name: str, kwargs: Mapping[str, object], *, length_max: int = VALUE_LENGTH_MAX) -> str:
    """Return a call as Python writes it, on one line and bounded."""
    inside = ", ".join(f"{visible(key)}={visible(repr(value), length_max=80)}" for key, value in kwargs.items())
    return f"{visible(name)}({visible(inside, length_max=length_max)})"
