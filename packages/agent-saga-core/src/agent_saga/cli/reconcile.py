"""`agent-saga reconcile`: does the outside world say what the log says?"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import visible


@click.command(short_help="Ask probes and verifiers whether the log tells the truth.")
@click.option("--saga", metavar="ID", help="Only this saga.")
@click.option("--import", "imports", multiple=True, metavar="MODULE", help="Load probes and verifiers from here.")
@log_command()
def reconcile(session: Session, saga: str | None, imports: tuple[str, ...]) -> int:
    """Ask the registered probes and verifiers about every effect in the log; nothing is changed.

    Each is confirmed, drift (the outside world says otherwise) or unverifiable (nobody could be asked, or could tell).
    Exit code 0 only when all are confirmed.
    """
    from agent_saga.audit.reconcile import reconcile as ask
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.imports import load_handlers

    load_handlers(imports)
    with session.reading() as store:
        found = list(ask(store, saga_id=None if saga is None else find_saga(store, saga)))
    counts = Counter(finding.verdict for finding in found)
    code = FINE if counts["confirmed"] == len(found) else FINDING
    if session.out.as_json:
        findings = [asdict(finding) for finding in found]
        session.out.document("reconcile/1", {"log": session.place, "findings": findings, "exit": code})
        return code
    for one in found:
        if one.verdict != "confirmed":
            place = f"saga {one.saga_id}, step {one.step} {visible(one.tool)} ({one.state})"
            session.out.line(f"{one.verdict}  {place}: {visible(one.reason, length_max=300)}")
    words = ("confirmed", "drift", "unverifiable")
    session.out.line(", ".join(f"{counts[word]} {word}" for word in words))
    return code
