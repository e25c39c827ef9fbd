"""`agent-saga merge`: the logs of devices that worked apart become one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINDING, FINE, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import SagaError, UsageError

if TYPE_CHECKING:
    from agent_saga.audit.merge import Merging, Source


@click.command(short_help="Merge the logs of devices that worked apart.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--out", required=True, metavar="FILE", help="The merged log, a new file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
@click.option("--allow-fs", is_flag=True, help="Accept a log on a network or shared file system.")
def merge(logs: tuple[str, ...], out: str, *, as_json: bool, allow_fs: bool) -> None:
    """Merge LOGs into a new one: the same sagas, records and chains, in whatever order the LOGs are named.

    Each LOG is verified first, and left as it is. Of a saga that several LOGs hold, the history that goes on longest
    stays. One that went on in two ways has diverged: it is not in the merged log, each of its histories is in a log
    beside it (FILE-diverged-1, FILE-diverged-2, ...), and the exit code is 1. Name those logs too when you merge on.

    Recover what is open in one place only: in the merged log, or on its device.
    """
    output = Output(as_json=as_json)
    path = Path(out).absolute()
    try:
        merging = _merged(logs, path, allow_fs=allow_fs)
    except SagaError as error:
        click.get_current_context().exit(report_error(output, error))
    code = FINDING if merging.diverged else FINE
    _say(output, merging, path, code)
    click.get_current_context().exit(code)


def _merged(logs: tuple[str, ...], out: Path, *, allow_fs: bool) -> Merging:
    from agent_saga.audit.merge import Source
    from agent_saga.audit.merge_write import merge_into
    from agent_saga.cli.verify import processors, uncollected
    from agent_saga.store.open import open_log
    from agent_saga.store.verify import verify

    with contextlib.ExitStack() as opened, uncollected():
        sources: list[Source] = []
        for url in logs:
            store = open_log(url, create=False, allow_fs=allow_fs)
            opened.callback(store.close)
            verify(store, processes=processors())
            sources.append(Source(store, visible(url, length_max=None)))
        _refuse_living(sources)
        return merge_into(sources, out)


def _refuse_living(sources: list[Source]) -> None:
    """Refuse logs with a saga whose process lives: it would go on there, and be recovered in the merged log.

    Raises:
        UsageError: there is one.
    """
    from agent_saga.store.port import Query

    for source in sources:
        after: str | None = None
        while page := source.store.rows(Query(unsealed=True, amendments=True, after=after)):
            after = page[-1].saga_id
            for row in page:
                if row.row.owner is None:
                    continue
                proof = source.store.prove_dead(row.row.owner)
                if proof is None:
                    raise UsageError(
                        f"{source.label} cannot be merged now: saga {row.saga_id} is open, and its process lives; "
                        "wait for its end, or stop the process"
                    )
                proof.close()


def _say(output: Output, merging: Merging, out: Path, code: int) -> None:
    apart = [f"{out}-diverged-{number}" for number in range(1, merging.apart + 1)]
    if output.as_json:
        diverged = [
            {
                "saga": one.saga_id,
                "reason": one.reason,
                "versions": [{"log": label, "records": records} for label, records in one.versions],
            }
            for one in merging.diverged
        ]
        fields = {"out": str(out), "sagas": merging.sagas, "records": merging.records, "logs": list(merging.logs)}
        output.document("merge/1", {**fields, "diverged": diverged, "apart": apart, "exit": code})
        return
    for one in merging.diverged:
        output.line(f"{output.paint('diverged', 'red')}  saga {one.saga_id}: {visible(one.reason, length_max=None)}")
        for label, records in one.versions:
            output.line(f"          {records} records in {label}")
    for name in apart:
        output.line(f"apart     {visible(name, length_max=None)}")
    output.line(
        f"merged    {merging.records} records of {merging.sagas} sagas, from {len(merging.logs)} devices, into "
        f"{visible(out, length_max=None)}"
    )
