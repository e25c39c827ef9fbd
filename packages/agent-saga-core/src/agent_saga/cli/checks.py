"""The findings of `agent-saga doctor`: each says what was measured, what follows from it, and what to do."""

from __future__ import annotations

import gc
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agent_saga.errors import HandlerUnavailable
from agent_saga.model.effects import Effect
from agent_saga.runtime.registry import Binding, all_compensators, compensator_for, function_for
from agent_saga.store.filesystem import file_system_of, shared_file_system
from agent_saga.store.port import Query
from agent_saga.store.reader import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.store.port import LogStore

SAGAS_MAX: Final = 1000
SKEW_S: Final = 5.0
LEFT_S: Final = 60.0
"""How long a dead process's saga may wait before we say that nothing recovers here."""
YAML_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or may be."""

    level: Literal["blocker", "warning"]
    code: str
    text: str
    todo: str


def check_place(url: str) -> Iterator[Finding]:
    """Where the log is: memory, a shared or a passing file system, replicas, permissions."""
    if url == "memory:":
        yield Finding(
            level="blocker",
            code="memory-log",
            text="the log is memory:, so 0 of its records outlive the process and nothing can be recovered",
            todo="name a file: AgentKit(log='./agent-saga.db')",
        )
        return
    if "://" in url:
        return
    path = Path(url)
    folder = next((one for one in path.absolute().parents if one.is_dir()), Path("/"))
    kind = shared_file_system(folder)
    if kind is not None:
        yield Finding(
            level="blocker",
            code="network-file-system",
            text=f"{folder} is on a {kind} file system, whose locks do not hold between machines",
            todo="use a local disk, or agent-saga-postgres",
        )
    kind = file_system_of(folder)
    if kind in {"tmpfs", "ramfs"} or (kind == "overlay" and _in_container()):
        yield Finding(
            level="blocker",
            code="ephemeral-file-system",
            text=f"{folder} is on {kind}, which is gone with the container or the machine's next start",
            todo="mount a volume for the log, or use agent-saga-postgres",
        )
    for source, replicas in _replicas():
        yield Finding(
            level="blocker",
            code="replicas",
            text=f"{source} asks for {replicas} replicas, and the log is a file: {replicas} - 1 have other logs",
            todo="one replica, or agent-saga-postgres",
        )
    yield from _permissions(path, folder)


def _in_container() -> bool:
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def _replicas() -> Iterator[tuple[str, int]]:
    for path in sorted([*Path().glob("*.y*ml"), *Path().glob("*/*.y*ml")])[:200]:
        if path.stat().st_size <= YAML_BYTES_MAX:
            for found in re.finditer(r"^\s*replicas:\s*(\d+)\s*$", path.read_text("utf-8", "replace"), re.MULTILINE):
                if int(found.group(1)) > 1:
                    yield str(path), int(found.group(1))


def _permissions(path: Path, folder: Path) -> Iterator[Finding]:
    for one in (path, Path(f"{path}-wal")):
        if one.is_file() and (mode := stat.S_IMODE(one.stat().st_mode)) & (stat.S_IWGRP | stat.S_IWOTH):
            yield Finding(
                level="warning",
                code="permissions",
                text=f"{one} has mode {mode:04o}: others may write it, and with it unsigned approvals",
                todo=f"chmod 600 {one}",
            )
    if not os.access(path if path.exists() else folder, os.W_OK):
        yield Finding(
            level="blocker",
            code="permissions",
            text=f"{path if path.exists() else folder} may not be written by this user (uid {os.geteuid()})",
            todo="give the service's user the right to write",
        )


def check_handlers() -> Iterator[Finding]:
    """What the loaded modules declare: closures, what recovery cannot bind, irreversible tools that nobody approves."""
    for handler in all_compensators():
        qualname = getattr(handler.fn, "__qualname__", "")
        if "<locals>" in qualname or "<lambda>" in qualname or handler.fn.__module__ == "__main__":
            yield Finding(
                level="blocker",
                code="closure",
                text=f"compensator {handler.name!r} is {handler.fn.__module__}.{qualname}: others cannot load it",
                todo="define it at the top of a module",
            )
    for kit in _kits():
        names = kit.declarations.names()
        declarations = [found for name in names if (found := kit.declarations.find(name)) is not None]
        for one in declarations:
            if one.compensate is not None and not isinstance(one.compensate, Binding) and one.probe is not None:
                yield Finding(
                    level="blocker",
                    code="callable-compensate",
                    text=f"tool {one.name!r} has a probe and a callable compensate=: a recovery that learns from the "
                    "probe that the call landed cannot bind the callable",
                    todo="compensate=compensator.bind(...)",
                )
        irreversible = [one.name for one in declarations if one.effect is Effect.IRREVERSIBLE]
        if irreversible and kit.environment.approver is None:
            yield Finding(
                level="warning",
                code="no-approver",
                text=f"{len(irreversible)} of {len(declarations)} tools: irreversible ({', '.join(irreversible[:5])}); "
                "the kit has no approver: such calls are refused until somebody approves and they are repeated",
                todo="AgentKit(approver='log') or a function",
            )


def _kits() -> list:  # type: ignore[type-arg]
    from agent_saga.kit import AgentKit

    return [one for one in gc.get_objects() if type(one) is AgentKit]


def check_undecided(root: Path) -> Iterator[Finding]:
    """Tools that `adopt` has written down and nobody has decided."""
    from agent_saga.adopt.decide import DECIDE
    from agent_saga.adopt.declared import FILE, effects_in

    for path in sorted([*root.glob(FILE), *root.glob(f"*/{FILE}"), *root.glob(f"*/*/{FILE}")]):
        effects = effects_in(path)
        waiting = [name for name, effect in effects if effect == DECIDE]
        if waiting:
            yield Finding(
                level="blocker",
                code="undecided",
                text=f"{len(waiting)} of {len(effects)} tools in {path} are undecided: {', '.join(waiting[:8])}",
                todo="write an effect class in place of each DECIDE",
            )


def check_log(store: LogStore) -> Iterator[Finding]:
    """What the log says: humans wanted, sagas that nobody recovers, clocks, handlers that are not there."""
    human = store.rows(Query(needs_human=True, limit=SAGAS_MAX))
    if human:
        steps = sum(row.row.human for row in human)
        yield Finding(
            level="blocker",
            code="needs-human",
            text=f"{steps} steps of {len(human)} sagas wait for a human",
            todo="agent-saga sagas --needs-human",
        )
    rows = store.rows(Query(unsealed=True, amendments=True, limit=SAGAS_MAX))
    now_ns = time.time_ns()
    ahead = max(((row.row.opened_at - now_ns) / 1e9 for row in rows), default=0.0)
    if ahead > SKEW_S:
        yield Finding(
            level="blocker",
            code="clock-skew",
            text=f"a saga was opened {ahead:.0f} s after this machine's now (more than {SKEW_S:.0f} s)",
            todo="synchronise the clocks: deadlines, leases and approvals are read against them",
        )
    dead = [row for row in rows if row.row.owner is not None and _is_dead(store, row.row.owner)]
    if dead:
        oldest = max((now_ns - row.row.opened_at) / 1e9 for row in dead)
        yield Finding(
            level="blocker" if oldest > LEFT_S else "warning",
            code="no-recovery",
            text=f"{len(dead)} of {len(rows)} open sagas belong to dead processes; the oldest is {oldest:.0f} s "
            f"old (more than {LEFT_S:.0f} s: no recovery is running here)",
            todo="run agent-saga recover --watch as a service",
        )
    yield from _unloadable(store, [row.saga_id for row in rows])


def _is_dead(store: LogStore, owner: str) -> bool:
    proof = store.prove_dead(owner)
    if proof is not None:
        proof.close()
    return proof is not None


def _unloadable(store: LogStore, saga_ids: list[str]) -> Iterator[Finding]:
    """Compensators and probes of open sagas that are not loaded here, or in another version."""
    missing: dict[str, set[str]] = {}
    for saga_id in saga_ids:
        loaded = load(store, saga_id)
        for step in [] if loaded is None else loaded.view.steps.values():
            try:
                if step.recipe is not None:
                    compensator_for(step.recipe.name, step.recipe.version)
                if step.probe is not None:
                    function_for(step.probe)
            except HandlerUnavailable as error:
                missing.setdefault(str(error), set()).add(saga_id)
    for text, sagas in missing.items():
        drift = "version" in text
        yield Finding(
            level="blocker",
            code="version-drift" if drift else "not-importable",
            text=f"{len(sagas)} of {len(saga_ids)} open sagas need what is not here: {text}",
            todo="deploy the code that has that version until they are sealed" if drift else "--import its module",
        )
