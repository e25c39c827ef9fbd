"""What one execution shows: the world against the reports, and which tool or compensator is to blame."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_saga.model.report import BUCKETS
from agent_saga.testing.proving.proof import Finding
from agent_saga.testing.proving.watch import differ, known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_saga.model.report import RollbackReport
    from agent_saga.testing.proving.watch import Event, ScopeSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What was seen of one execution.

    Attributes:
        what: what was broken, for people.
        events: calls and attempts of compensations, in order of their beginning.
        reports: what the log says of each saga, after recovery.
        handled: tools whose failures the workflow is meant to survive.
    """

    what: str
    events: list[Event]
    scopes: list[ScopeSeen]
    reports: Mapping[str, RollbackReport]
    handled: frozenset[str]


def judge(run: Execution) -> Iterator[Finding]:
    """Yield what is wrong, or assumed, in one execution."""
    yield from _unlisted(run)
    yield from _despite_errors(run)
    for scope in run.scopes:
        report = scope.report
        if report is None:
            continue
        if report.outcome == "committed":
            yield from _committed(run, scope, report)
        elif report.clean and comparable(run.events, scope) and differ(scope.before, scope.after):
            yield from _to_blame(run, scope)
    for report in run.reports.values():
        yield from _left(run, report)


def comparable(events: list[Event], scope: ScopeSeen) -> bool:
    """Tell whether nothing but this scope changed the world while it was open, as far as tools are wrapped."""
    if not known(scope.before, scope.after):
        return False
    return all(
        _is_within(event, scope) or event.began > scope.ended or (0 < event.ended < scope.began) for event in events
    )


def _is_within(event: Event, scope: ScopeSeen) -> bool:
    view = scope.saga.live.view
    return event.saga_id == view.id and view.is_within(event.scope, scope.saga.scope)


def _finding(run: Execution, kind: str, subject: str, text: str, severity: str = "violation") -> Finding:
    return Finding(kind=kind, severity=severity, subject=subject, text=text, where=(run.what,))  # type: ignore[arg-type]


# -- effects that no report has -----------------------------------------------------------------------------------


def _unlisted(run: Execution) -> Iterator[Finding]:
    """Calls that changed the world, and are in no bucket of their saga's report."""
    listed = {saga_id: _listed(report) for saga_id, report in run.reports.items()}
    assumed = _assumed(run)
    for event in _alone(run.events):
        where = (event.saga_id, event.step or 0)
        if event.place.of != "call" or not event.changed or where in assumed:
            continue
        if event.step is None:
            hint = "it is declared read_only and changes the world: declare what it does, with its compensation"
            yield _finding(run, "missed_effect", event.tool, hint)
        elif event.step not in listed.get(event.saga_id, set()):
            hint = f"step {event.step} took effect, and the report says that nothing happened: look at its probe, and \
at no_effect_on="
            yield _finding(run, "missed_effect", event.tool, hint)


def _assumed(run: Execution) -> set[tuple[str, int]]:
    """Return the steps of which a report says that they are assumed to have had no effect."""
    reports = run.reports.items()
    return {(saga_id, _number(step.step_id)) for saga_id, report in reports for step in report.assumed_absent}


def _listed(report: RollbackReport) -> set[int]:
    return {_number(step.step_id) for bucket in BUCKETS for step in getattr(report, bucket)}


def _number(step_id: str) -> int:
    return int(step_id.rpartition(":")[2])


def _alone(events: list[Event]) -> Iterator[Event]:
    """Yield the events during which no other one ran: only of these it is known what they changed."""
    for event in events:
        others = (other for other in events if other is not event)
        if all(other.began > event.ended or 0 < other.ended < event.began for other in others):
            yield event


def _despite_errors(run: Execution) -> Iterator[Finding]:
    """Calls that raised, took effect, and of which the report says that it assumes that they did not."""
    assumed = _assumed(run)
    retried = {(event.saga_id, event.step) for event in run.events if event.place.of == "call" and event.error is None}
    for event in _alone(run.events):
        where = (event.saga_id, event.step or 0)
        if event.place.of != "call" or event.error is None or not event.changed or event.step is None:
            continue
        if where not in assumed and where not in retried:
            continue
        severity = "assumption" if event.broken else "violation"
        yield _finding(run, "effect_despite_error", event.tool, _taken_for_nothing(event), severity)


def _taken_for_nothing(event: Event) -> str:
    return (
        f"{type(event.error).__name__} was taken to mean that nothing happened. Give the tool a probe=, or a "
        "compensator that is safe_if_absent, or name the exceptions that leave it open in in_doubt_on="
    )


# -- commits ------------------------------------------------------------------------------------------------------


def _committed(run: Execution, scope: ScopeSeen, report: RollbackReport) -> Iterator[Finding]:
    kept = {_number(step.step_id) for step in report.kept}
    for event in run.events:
        if event.place.of != "call" or event.error is None or not _is_within(event, scope):
            continue
        resolved = event.step in kept or any(
            later.began > event.began and later.tool == event.tool and later.error is None and _is_within(later, scope)
            for later in run.events
            if later.place.of == "call"
        )
        if resolved or event.tool in run.handled or event.step is None or _inner_rolled_back(run, scope, event):
            continue
        text = (
            f"{type(event.error).__name__} was caught on its way out of {scope.name!r}. Let it pass, or, if the "
            f"workflow is meant to go on without it, say so: handled=[{event.tool!r}]"
        )
        yield _finding(run, "commits_despite_failure", event.tool, text)


def _inner_rolled_back(run: Execution, outer: ScopeSeen, event: Event) -> bool:
    """Tell whether a nested scope around the call was rolled back: then the failure had its consequence."""
    return any(
        scope is not outer
        and scope.report is not None
        and scope.report.outcome == "rolled_back"
        and _is_within(event, scope)
        for scope in run.scopes
    )


# -- a clean report of a world that differs -----------------------------------------------------------------------


def _to_blame(run: Execution, scope: ScopeSeen) -> Iterator[Finding]:
    events = [event for event in run.events if _is_within(event, scope) and event.began < scope.ended]
    found = []
    if len(list(_alone(events))) == len(events):
        found = [*_twice(run, events), *_liars(run, events), *_between(run, scope, events)]
    yield from found
    overlapped = [] if found else list(_broken_beside_others(run, scope))
    yield from overlapped
    explained = found or list(_despite_errors(run)) or list(_unlisted(run)) or overlapped
    if not explained:
        compensators = sorted({event.place.name for event in events if event.place.of == "compensation"})
        text = f"one of these is to blame: {', '.join(compensators)}" if compensators else "no compensation ran"
        yield _finding(run, "world_differs", scope.name, text)


def _broken_beside_others(run: Execution, scope: ScopeSeen) -> Iterator[Finding]:
    """Calls that ran beside others and were broken by the test after they had returned: of these it is known why."""
    assumed, alone = _assumed(run), {id(event) for event in _alone(run.events)}
    for event in run.events:
        struck = event.broken and event.ran and event.error is not None and id(event) not in alone
        if struck and _is_within(event, scope) and (event.saga_id, event.step or 0) in assumed:
            yield _finding(run, "effect_despite_error", event.tool, _taken_for_nothing(event), "assumption")


def _twice(run: Execution, events: list[Event]) -> Iterator[Finding]:
    """Attempts that did something although an attempt before them had done it."""
    done: set[int] = set()
    for event in events:
        if event.place.of != "compensation" or event.step is None:
            continue
        if event.step in done and event.changed:
            text = (
                f"it ran again for {event.tool!r} after an attempt whose answer was lost or that had raised. Let it "
                "take idempotency_key, look before it acts, or return ALREADY_DONE; and declare idempotent=True only "
                "where that is so"
            )
            yield _finding(run, "not_idempotent", event.place.name, text)
        if event.changed:
            done.add(event.step)


def _liars(run: Execution, events: list[Event]) -> Iterator[Finding]:
    """Compensations after whose last attempt the world is not what it was before their step."""
    effects = {event.step: event for event in events if event.place.of == "call" and event.changed}
    attempts: dict[int | None, list[Event]] = {}
    for event in events:
        if event.place.of == "compensation":
            attempts.setdefault(event.step, []).append(event)
    for step, tries in attempts.items():
        effect, last = effects.get(step), tries[-1]
        if effect is None or not last.ran or last.error is not None or not differ(last.after, effect.before):
            continue
        idle = not any(event.changed for event in tries)
        if idle or (not differ(tries[0].before, effect.after) and len(tries) == 1):
            did = "changes nothing" if idle else "leaves another world than the one before its step"
            yield _finding(run, "lying_compensation", last.place.name, f"of {effect.tool!r}: it returns, and {did}")


def _between(run: Execution, scope: ScopeSeen, events: list[Event]) -> Iterator[Finding]:
    """Changes that happened while no wrapped tool and no compensation ran."""
    worlds = [("the beginning", scope.before, scope.before)]
    worlds += [(f"{event.place.of} of {event.place}", event.before, event.after) for event in events]
    worlds += [("the end", scope.after, scope.after)]
    for (first, _, left), (second, found, _) in pairwise(worlds):
        if known(left, found) and differ(left, found):
            text = f"something that is no wrapped tool changed it between {first} and {second}: wrap and declare it"
            yield _finding(run, "missed_effect", scope.name, text)


# -- what is left -------------------------------------------------------------------------------------------------


def _left(run: Execution, report: RollbackReport) -> Iterator[Finding]:
    for step in report.left if report.outcome == "rolled_back" else ():
        no = _number(step.step_id)
        tries = [event for event in run.events if event.place.of == "compensation" and event.saga_id == report.saga_id]
        own = [event for event in tries if event.step == no and event.error is not None and not event.broken]
        if own and step in report.failed:
            text = f"of {step.tool!r}: {type(own[-1].error).__name__}: {own[-1].error}"
            yield _finding(run, "compensation_fails", own[-1].place.name, text, "human")
            continue
        text = f"{step.reason or step.state}. A probe=, a compensator that is safe_if_absent or takes idempotency_key, \
or a verify= would settle it"
        yield _finding(run, "needs_human", step.tool, text, "human")
