"""`agent-saga recover`: one sweep, or one after another until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command, report_error
from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog, LogMissing, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.cli.sweeps import Sweep

EVERY_S: Final = 5.0


@click.command(short_help="Finish the sagas that dead processes left.")
@click.option("--saga", metavar="ID", help="Only this saga, whatever its backoff or suspension.")
@click.option("--watch", is_flag=True, help="Sweep again and again, until SIGINT or SIGTERM.")
@click.option(
    "--every",
    type=click.FloatRange(0.05, 86_400),
    default=EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: time between two sweeps.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; run nothing, record nothing.")
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="M",
    help="A module (pkg.mod) or file (./file.py) that defines compensators and probes; repeatable. More are taken "
    "from [tool.agent-saga] imports in ./pyproject.toml.",
)
@log_command()
def recover(
    session: Session, saga: str | None, imports: tuple[str, ...], every: float, *, watch: bool, dry_run: bool
) -> int:
    """Finish the sagas that dead processes left: roll them back, and try again what could not be compensated.

    A saga whose process lives is not touched. Exit code 0: nothing is left (live and suspended sagas do not count);
    1: a retry is pending, a human is needed (each with a `next:` line), or a saga is damaged; 3: no log there.
    """
    if watch and dry_run:
        raise UsageError("--watch and --dry-run do not go together")
    if dry_run:
        return _dry_run(session, saga, imports)
    if watch:
        return _watch(session, saga, imports, every)
    with _sweeper(session, saga, imports) as sweep:
        return sweep.run()


def _dry_run(session: Session, saga: str | None, imports: tuple[str, ...]) -> int:
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.imports import load_handlers
    from agent_saga.cli.plan import print_plans, saga_plans

    with session.reading() as store:
        load_handlers(imports)
        plans = saga_plans(store, None if saga is None else find_saga(store, saga))
    code = FINDING if any(plan["action"] in {"would_recover", "stuck", "damaged", "locked"} for plan in plans) else FINE
    if session.out.as_json:
        session.out.document(
            "recover/1", {"log": session.place, "dry_run": True, "sagas": plans, "exit": code}, compact=False
        )
    else:
        print_plans(session.out, plans)
    return code


@contextlib.contextmanager
def _sweeper(session: Session, saga: str | None, imports: tuple[str, ...], *, watch: bool = False) -> Iterator[Sweep]:
    """Open the log, then load the handlers: without a log, no code of the user is run."""
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.imports import load_handlers
    from agent_saga.cli.sweeps import Sweep

    with session.writing() as writer:
        load_handlers(imports)
        saga_id = None if saga is None else find_saga(writer.store, saga)
        yield Sweep(session, writer, saga_id=saga_id, imports=imports, watch=watch)


def _watch(session: Session, saga: str | None, imports: tuple[str, ...], every: float) -> int:
    """Sweep until a signal. What may pass (a full disk, a locked log) is reported, and tried again."""
    code = FINE
    with _stopped_by_signals() as stop:
        seen: dict[str, object] = {}
        while not stop.is_set():
            try:
                with _sweeper(session, saga, imports, watch=True) as sweep:
                    sweep.seen = seen
                    while not stop.is_set():
                        code = sweep.run()
                        stop.wait(every)
            except (LogMissing, CorruptLog):
                raise
            except StoreError as error:
                if not session.out.located:
                    raise
                code = report_error(session.out, error)
                stop.wait(every)
    session.out.line("stopped")
    return code


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal interrupts the sweep that runs."""
    stop = threading.Event()

    def handle(number: int, _frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        name = visible(signal.Signals(number).name)
        sys.stderr.write(f"{name}: stopping after this sweep; once more to stop at once\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
