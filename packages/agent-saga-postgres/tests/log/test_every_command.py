"""Every command of `agent-saga` that reads or writes a log, on one in PostgreSQL that is named by its URL."""

import pytest
from click.testing import CliRunner

from agent_saga.cli.app import cli
from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from pytest_agent_saga.conformance.sagas import everything

TABLE = (
    # Words, exit code, and what is printed. SAGA is a sealed saga; step 1 of LEFT waits for a human.
    ("doctor --log URL", 1, "blocker: needs-human"),
    ("doctor --against URL", 1, "blocker: needs-human"),
    ("sagas", 0, "SAGA"),
    ("sagas --needs-human --json", 0, "LEFT"),
    ("show SAGA", 0, "SAGA"),
    ("show LEFT", 0, "LEFT"),
    ("status", 1, "is drained"),
    ("approvals list", 0, "APPROVAL"),
    ("verify", 0, "no damage found"),
    ("certify", 1, "checked"),
    ("keys new FOLDER/key", 0, "public key"),
    ("checkpoint --key FOLDER/key", 0, "agent-saga/"),
    ("audit-root", 0, "log:"),
    ("prove SAGA", 0, "agent-saga/proof/1"),
    ("reconcile", 1, "unverifiable"),
    ("export", 0, '"kind":"saga_opened"'),
    ("export --format csv", 0, "pos,saga,n,kind"),
    ("export --format cloudevents --saga SAGA", 0, '"specversion":"1.0"'),
    ("bundle FOLDER/bundle", 2, "only a log in a file"),
    ("merge URL --out FOLDER/merged.db", 0, "merged"),
    ("shred SAGA --by ann", 2, ""),
    ("rewrap", 2, ""),
    ("halt tool:spare --by ann", 0, "halted"),
    ("lift tool:spare --by ann", 0, "lifted"),
    ("drain tag:us --by ann", 0, "drained"),
    ("lift tag:us --by ann", 0, "lifted"),
    ("quarantine LEFT --by ann", 0, "LEFT"),
    ("lift saga:LEFT --by ann", 0, "lifted"),
    ("settle LEFT 1 --as accept --evidence seen --by ann", 0, "settled"),
    ("recover --dry-run", 1, "saga"),
    ("recover", 1, "next:"),
    ("redact SAGA kwargs --by ann", 0, "redacted"),
    ("prune --older-than 0s --payloads-only --by ann --dry-run", 0, "would remove payloads"),
    ("prune --older-than 0s --payloads-only --by ann", 0, "removed payloads"),
    ("prune --older-than 0s --by ann", 0, "removed all records"),
    ("verify", 0, "no damage found"),
    ("sagas", 0, "SAGA"),
)


def test_every_command(log_url, tmp_path, monkeypatch):
    """PG-63: each works, or says what it is for; no password is printed, and what was changed verifies."""
    store = open_log(log_url, create=True)
    everything(store)
    left = store.rows(Query(needs_human=True))[0].saga_id
    sealed = next(row.saga_id for row in store.rows(Query(states=("committed",))) if row.row.sealed and row.count > 3)
    store.close()
    url = log_url.replace("//postgres@", "//postgres:s3cret@")
    monkeypatch.setenv("AGENT_SAGA_LOG", url)
    monkeypatch.chdir(tmp_path)
    names = {"URL": url, "FOLDER": str(tmp_path), "SAGA": sealed, "LEFT": left}

    def filled(text):
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    wrong = []
    for words, code, said in TABLE:
        done = CliRunner().invoke(cli, filled(words).split())
        if done.exit_code != code or filled(said) not in done.output or "s3cret" in done.output:
            wrong.append((words, done.exit_code, done.output, done.exception))
    assert wrong == []


def test_no_command_is_forgotten():
    """PG-64: a command that takes a log is in the table, so a new one is tried here, too."""
    tried = {words.split()[0] for words, _, _ in TABLE}
    takes_log = {
        name
        for name in cli.list_commands(None)
        if (command := cli.get_command(None, name)) is not None
        and any("--log" in param.opts for param in command.params)
        and command.callback is not None
        and command.callback.__module__.startswith("agent_saga.")
    }
    assert takes_log - tried == set()


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
