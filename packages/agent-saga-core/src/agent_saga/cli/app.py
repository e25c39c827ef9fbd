"""The `agent-saga` command: its sub-commands, each loaded when it is run, and the ways a run can end."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from agent_saga.cli import plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells give it to a program that dies of SIGINT."""
PIPE_CLOSED: Final = 141
"""Exit code when the reader of our output went away, as shells give it to a program that dies of SIGPIPE."""

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("agent_saga.demo:command", "Show what a saga does, with a real process that is really killed."),
    "new": ("agent_saga.cli.new:new", "Write a small project that passes its rollback test."),
    "adopt": ("agent_saga.cli.adopt:adopt", "Find the tools of a project, and write their declarations."),
    "doctor": ("agent_saga.cli.doctor:doctor", "Look for what would keep a crash from being recovered."),
    "recover": ("agent_saga.cli.recover:recover", "Finish the sagas that dead processes left."),
    "sagas": ("agent_saga.cli.sagas:sagas", "List sagas, newest first."),
    "show": ("agent_saga.cli.show:show", "Show all that is known of one saga."),
    "settle": ("agent_saga.cli.settle:settle", "Record what a human found out about a step."),
    "approvals": ("agent_saga.cli.approvals:approvals", "Show and answer calls that wait for an approval."),
    "status": ("agent_saga.cli.stops:status", "Tell whether agents may go on, and what stops them."),
    "halt": ("agent_saga.cli.stops:halt", "Stop calls before their effects; their sagas can be resumed."),
    "drain": ("agent_saga.cli.stops:drain", "Let no new saga open; those that are open go on."),
    "quarantine": ("agent_saga.cli.stops:quarantine", "Freeze one saga as it is: no call, no commit, no rollback."),
    "lift": ("agent_saga.cli.stops:lift", "End the halts, drains and quarantines of a scope."),
    "keys": ("agent_saga.cli.keys:keys", "Make and register keys for signed approvals."),
    "verify": ("agent_saga.cli.verify:verify", "Check every record, chain and derived row of a log."),
    "certify": ("agent_saga.cli.certify:certify", "Certify that every effect in the log is accounted for."),
    "checkpoint": ("agent_saga.cli.evidence:checkpoint", "Print a signed checkpoint of the log, to keep elsewhere."),
    "audit-root": ("agent_saga.cli.evidence:audit_root", "Print the root of the log's tree of sealed sagas."),
    "prove": ("agent_saga.cli.evidence:prove", "Prove one sealed saga to somebody who does not get the log."),
    "verify-proof": ("agent_saga.cli.evidence:verify_proof", "Check a proof, without the log."),
    "reconcile": ("agent_saga.cli.reconcile:reconcile", "Ask probes and verifiers whether the log tells the truth."),
    "redact": ("agent_saga.cli.retention:redact", "Destroy values of a sealed saga; the log stays verifiable."),
    "prune": ("agent_saga.cli.retention:prune", "Remove payloads or records of old sealed sagas; leaves stay."),
    "key-ring": ("agent_saga.cli.encryption:key_ring", "Make the keys that encrypt a log, and add new ones."),
    "rewrap": ("agent_saga.cli.encryption:rewrap", "Wrap the data keys of a log by the key ring's newest key."),
    "shred": (
        "agent_saga.cli.encryption:shred",
        "Destroy the data key of an encrypted saga; the log stays verifiable.",
    ),
    "merge": ("agent_saga.cli.merge:merge", "Merge the logs of devices that worked apart."),
    "bundle": ("agent_saga.cli.bundle:bundle", "Write the log as read-only files with digests, to archive."),
    "export": ("agent_saga.cli.export:export", "Write the records of a log as JSON lines."),
    "self-check": ("agent_saga.cli.self_check:self_check", "Break the installed engine in every small way; check it."),
}
"""Command -> where it is, and its line in the help. The table keeps `agent-saga --help` from loading any of them."""


class Commands(click.Group):
    """The group: own commands, then those of other packages (entry point group `agent_saga.commands`)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names: ours in order of use, then those of other packages."""
        return [*COMMANDS, *(name for name in sorted(plugins.installed()) if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command; None when nobody has it."""
        if cmd_name in COMMANDS:
            return plugins.load(COMMANDS[cmd_name][0], owner="agent-saga-core")
        found = plugins.installed().get(cmd_name)
        return None if found is None else plugins.load(found.place, owner=found.package)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the package that brings a known command, and the place of an option that came too early."""
        name = args[0]
        if name not in COMMANDS and name not in plugins.installed():
            if (package := plugins.PACKAGE_OF.get(name)) is not None:
                raise click.UsageError(f"{name!r} comes with the package {package}: pip install {package}", ctx)
            raise click.UsageError(f"there is no command {name!r}{_near(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without loading them."""
        others = {
            name: f"(from {found.package})" for name, found in plugins.installed().items() if name not in COMMANDS
        }
        rows = [(name, line) for name, (_, line) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*rows, *sorted(others.items())])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of our output that went away is no finding, which click's exit code 1 would be."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_stdout()
            ctx.exit(PIPE_CLOSED)
        return result

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say where `--log` belongs when it comes before the command's name."""
        if args and args[0].partition("=")[0] in {"--log", "--wal", "--json"}:
            option = args[0].partition("=")[0]
            raise click.UsageError(f"write {option} after the command's name: agent-saga COMMAND {option} ...", ctx)
        return super().parse_args(ctx, args)


def _near(name: str, known: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else "; see agent-saga --help"


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form.
    if value:
        from importlib.metadata import version

        click.echo(f"agent-saga {version('agent-saga-core')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Transactions for AI agents: list, understand and finish the sagas of a log.

    Every command takes --log PATH (or the environment variable AGENT_SAGA_LOG; else ./agent-saga.db), --json, and
    --help. Exit codes: 0 fine, 1 something is left or found, 2 wrong usage, 3 no log there.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: what follows the program's name; by default of this process.
    """
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    _never_fail_to_encode()
    try:
        result: Any = cli.main(arguments, prog_name="agent-saga", standalone_mode=False)
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0


def _never_fail_to_encode() -> None:
    """Let a terminal that cannot show a character show its escape."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # A stream that is no text file of the interpreter's.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
