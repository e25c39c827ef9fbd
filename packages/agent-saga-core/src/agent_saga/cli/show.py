"""`agent-saga show`: one saga, so that a person understands it at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.cli.terminal import VALUE_LENGTH_MAX, Output, moment, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.machine.view import SagaView, StepView

_LABEL_WIDTH: Final = 13
_COLOURS: Final = {"kept": "blue", "compensated": "green", None: "dim"}
_TOLD: Final = frozenset({"at", "kind", "tool", "decision", "policy", "reason", "step", "by", "values"})
"""Fields of a decision that its line says in words."""
_NOT_FOR_PEOPLE: Final = frozenset({"digest", "nonce", "signature", "version", "effect", "signed"})


@click.command(short_help="Show all that is known of one saga.")
@click.argument("saga")
@log_command()
def show(session: Session, saga: str) -> int:
    """Show all that is known of SAGA (its id, the beginning of the id, or its key).

    Steps with arguments, outcomes and compensations; decisions; why it rolled back; what amended it; what is left,
    each with the command that does something about it. Long values are shortened; --json has them whole.
    """
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.story import story_of
    from agent_saga.errors import CorruptLog

    with session.reading() as store:
        saga_id = find_saga(store, saga)
        row = store.row(saga_id)
        if row is None:
            raise CorruptLog("it has records and no row", saga_id=saga_id)
        view, story = story_of(store, row, session.command_line)
    if session.out.as_json:
        session.out.document("show/1", {"log": session.place, **story, "exit": FINE})
        return FINE
    for line in _text(session, view, story):
        session.out.line(line)
    return FINE


def _text(session: Session, view: SagaView, story: dict[str, Any]) -> Iterator[str]:
    from agent_saga.cli.gate_story import gate_lines

    out = session.out
    yield from _head(out, view, story)
    if view.steps:
        yield ""
        yield out.paint("steps", "bold")
        for step, told in zip(view.steps.values(), story["steps"], strict=True):
            yield from _step(out, view, step, told)
    yield from _section(out, "decisions", map(_decision, story["decisions"]))
    for title, lines in gate_lines(story):
        yield from _section(out, title, iter(lines))
    yield from _section(out, "settlements", map(_settlement, story["settlements"]))
    yield from _section(out, "amendments", map(_amendment, story["amendments"]))
    yield from _section(out, "what is left", _left(session, view, story))


def _section(out: Output, title: str, lines: Iterator[str]) -> Iterator[str]:
    told = list(lines)
    if told:
        yield from ("", out.paint(title, "bold"), *told)


# -- the saga -----------------------------------------------------------------------------------------------------


def _head(out: Output, view: SagaView, story: dict[str, Any]) -> Iterator[str]:
    from agent_saga.cli.reports import verdict
    from agent_saga.machine.report import report_of

    state = verdict(out, report_of(view)) if view.ended else out.paint(_unfinished(view, story), "yellow")
    yield f"saga {view.id} {out.paint(visible(view.name), 'bold')}: {state}"
    if view.cause:
        yield _row("cause", visible(view.cause, length_max=VALUE_LENGTH_MAX))
    yield _row("effects", _effects(view, story))
    if view.key is not None:
        again = f", incarnation {view.incarnation}" if view.incarnation > 1 else ""
        yield _row("key", visible(view.key) + again)
    if view.amends is not None:
        yield _row("amends", f"{view.amends}{f', by {visible(view.by)}' if view.by else ''}")
    if view.tags:
        yield _row("tags", ", ".join(map(visible, view.tags)))
    yield _row("opened", moment(view.opened_at))
    if view.ended_at is not None:
        yield _row("ended", moment(view.ended_at))
    if view.expires_at is not None:
        yield _row("waits until", moment(view.expires_at))
    yield _row("owners", _owners(story["owners"]))


def _unfinished(view: SagaView, story: dict[str, Any]) -> str:
    words = {True: ", its process lives", False: ", its process is dead", None: ""}
    return view.state.value.replace("_", " ") + words[story["owner_lives"]]


def _effects(view: SagaView, story: dict[str, Any]) -> str:
    counts = Counter(_bucket(view, step["bucket"]) for step in story["steps"] if step["bucket"] is not None)
    return ", ".join(f"{number} {bucket}" for bucket, number in counts.items()) or "none"


def _bucket(view: SagaView, bucket: str) -> str:
    """Return the bucket of an effect in words; nothing is kept for good before the saga has ended."""
    return "standing" if bucket == "kept" and not view.ended else bucket.replace("_", " ")


def _owners(told: list[dict[str, Any]]) -> str:
    """Return who owned the saga: the first, and the last of those that took it over."""
    first, *others = map(_owner, told)
    between = f"; {len(others) - 1} more" if len(others) > 1 else ""
    return first + between + (f"; {others[-1]}" if others else "")


def _owner(told: dict[str, Any]) -> str:
    process = visible(told["owner"]).partition("-")[0]
    verb = {"open": "opened", "recover": "recovered", "resume": "resumed", "late": "recorded a late answer"}
    return f"{verb.get(told['purpose'], visible(told['purpose']))} by process {process}"


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {text}"


# -- its steps ----------------------------------------------------------------------------------------------------


def _step(out: Output, view: SagaView, step: StepView, told: dict[str, Any]) -> Iterator[str]:
    from agent_saga.cli.reports import call

    state = _state(view, step, told)
    label = out.paint(f"{state:<{_LABEL_WIDTH}}", _COLOURS.get(told["bucket"], "yellow"))
    kwargs = {name: _shown(text) for name, text in step.kwargs.items()}
    yield f"  {step.no:>3} {label} {call(step.tool, kwargs)}"
    effect = "reads only" if step.read_only else step.effect
    through = f" through {visible(step.adapter)}" if step.adapter else ""
    again = f", attempt {step.attempt}" if step.attempt > 1 else ""
    scope = f", in scope {visible(view.scopes[step.scope].name)!r}" if step.scope in view.scopes else ""
    yield _detail(f"{moment(step.intent_at)}, {effect}{through}{again}{scope}")
    yield from map(_detail, _outcome(step))
    yield from map(_detail, _compensation(step, told))
    if told["reason"] and told["bucket"] not in {"kept", "compensated"}:
        yield _detail(f"because {visible(told['reason'], length_max=VALUE_LENGTH_MAX)}")


def _state(view: SagaView, step: StepView, told: dict[str, Any]) -> str:
    if step.read_only:
        return "read" if step.state.value == "standing" else "failed"
    return "no effect" if told["bucket"] is None else _bucket(view, told["bucket"])


def _detail(text: str) -> str:
    return f"      {text}"


def _outcome(step: StepView) -> Iterator[str]:
    if step.result is not None:
        partial = ", not to its end" if step.partial else ""
        yield f"returned {visible(repr(_shown(step.result)), length_max=VALUE_LENGTH_MAX)}{partial}"
    if step.error_type:
        said = "" if step.error is None else f": {visible(_shown(step.error), length_max=VALUE_LENGTH_MAX)}"
        yield f"raised {visible(step.error_type)}{said}"
    if step.assumed:
        yield "that nothing happened is assumed from the error's type, not known"
    if step.replayed:
        yield f"replayed {step.replayed} times: later equal calls got this result, and nothing ran again"


def _compensation(step: StepView, told: dict[str, Any]) -> Iterator[str]:
    from agent_saga.cli.reports import call

    compensation = told["compensation"]
    if compensation is None:
        return
    if step.compensation is not None:
        bound = call(compensation["name"], {name: _shown(text) for name, text in step.compensation.items()})
    else:
        paths = ", ".join(f"{visible(k)}={visible(v)}" for k, v in (compensation["bind"] or {}).items())
        bound = f"{visible(compensation['name'])}({paths})"
    attempts = compensation["attempts"]
    if not attempts:
        yield f"compensation: {bound}"
        return
    last = attempts[-1]
    state = (last["state"] or "no outcome recorded").replace("_", " ")
    checked = {True: ", confirmed by a read-back", False: ", not confirmed by a read-back", None: ""}
    tries = f", attempt {last['attempt']}" if last["attempt"] > 1 else ""
    yield f"compensation: {bound}: {state}{checked[step.verified]}{tries}, {moment(last['at'])}"


def _shown(text: str) -> object:
    from agent_saga.model.values import decode

    try:
        return decode(text)
    except ValueError:
        return text


# -- what others said and did ------------------------------------------------------------------------------------


def _decision(told: dict[str, Any]) -> str:
    what = told["kind"].replace("_", " ")
    verdict = told.get("decision") or ""
    parts = [f"{moment(told['at'])} {what}{f' {visible(verdict)}' if verdict else ''}"]
    parts += [_called(told)] if told.get("tool") else []
    parts += [f"step {told['step']}"] if told.get("step") is not None else []
    parts += [f"by {visible(told.get('by') or told.get('policy'))}"] if told.get("by") or told.get("policy") else []
    rest = {name: value for name, value in told.items() if name not in _TOLD | _NOT_FOR_PEOPLE and value}
    parts += [
        f"{_field(name)} {moment(value) if name.endswith('_at') else visible(value)}" for name, value in rest.items()
    ]
    reason = f": {visible(told['reason'], length_max=VALUE_LENGTH_MAX)}" if told.get("reason") else ""
    return f"  {', '.join(parts)}{reason}"


def _called(told: dict[str, Any]) -> str:
    """Return the call that was decided about, with the arguments that the record has."""
    from agent_saga.cli.reports import call

    values: dict[str, Any] = told.get("values", {})
    kwargs = {name.removeprefix("kwargs."): value for name, value in values.items() if name.startswith("kwargs.")}
    return call(told["tool"], kwargs) if kwargs else visible(told["tool"])


def _field(name: str) -> str:
    return name.removesuffix("_at").replace("_", " ")


def _settlement(told: dict[str, Any]) -> str:
    evidence = told.get("values", {}).get("evidence", "")
    return (
        f"  {moment(told['at'])} step {told['step']}: {visible(told['verdict'])}, says {visible(told['by'])}: "
        f"{visible(evidence, length_max=VALUE_LENGTH_MAX)}"
    )


def _amendment(told: dict[str, Any]) -> str:
    by = f" by {visible(told['by'])}" if told["by"] else ""
    return f"  {moment(told['at'])} {visible(told['name'])}{by}: saga {told['saga']}, {told['records']} records"


def _left(session: Session, view: SagaView, story: dict[str, Any]) -> Iterator[str]:
    from agent_saga.cli.next_steps import lines_of, work_items

    for item in work_items(view, session.command_line):
        yield from (f"  {line}" for line in lines_of(item))
    if story["next"] is not None:
        yield f"  the saga is {view.state.value.replace('_', ' ')}, and no process works on it"
        yield f"    next: {story['next']}"
