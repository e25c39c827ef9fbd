"""A workspace: folders in which an agent may work, and the tools whose effects there can be taken back."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from agent_saga import ALREADY_DONE, Allow, Refuse, compensator, current_step
from agent_saga.errors import UsageError
from agent_saga_connectors import _child, _push, _restore
from agent_saga_connectors._commands import CommandRefused, Place, changes
from agent_saga_connectors._image import Image, Limits, NoImage, Store, address, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent_saga import AgentKit

P = ParamSpec("P")
R = TypeVar("R")

OUTPUT_CHARS_MAX: Final = 30_000
_NO_EFFECT: Final = (CommandRefused, NoImage)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The policy of a workspace: refuses before the intent what its tools would refuse."""

    workspace: Workspace

    def decide(self, call: Any, _saga: object) -> Allow | Refuse:
        """See Policy.decide."""
        try:
            self.workspace.check(call.tool, call.kwargs)
        except CommandRefused as error:
            return Refuse(str(error))
        return Allow()


class Workspace:
    """Folders in which an agent may change things, with an image of them before each effect.

    Make it at the top of a module that recovery imports: `agent-saga recover --import shop.workspace`.

    Args:
        name: the same in every process; the log names it.
        roots: existing folders. All that an agent may change lies beneath them; the log and the store do not.
        store: the folder for images, of this workspace alone, on a disk that outlives the process.
        programs: programs that you vouch for: they change nothing but what lies beneath the roots.
        limits: how much one image may hold.
        timeout_s: how long one command may run.

    Raises:
        UsageError: a root is no folder, or the store lies beneath one or above one.
    """

    def __init__(
        self,
        name: str,
        *,
        roots: Sequence[str | os.PathLike[str]],
        store: str | os.PathLike[str],
        programs: Iterable[str] = (),
        limits: Limits | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self.name = name
        self.roots: Final = tuple(Path(root).resolve() for root in roots)
        self._store: Final = Store(Path(store).resolve())
        self._programs = frozenset(programs)
        self._limits = limits or Limits()
        self._timeout_s = timeout_s
        self._shells: dict[str, str] = {}
        self._files: dict[str, tuple[str, ...]] = {}
        self._check_places()
        self.restore: Final = compensator(
            f"workspace.{name}.restore", idempotent=True, safe_if_absent=True, verify=self._is_restored
        )(self._restore)
        self.take_back_push: Final = compensator(
            f"workspace.{name}.take_back_push", idempotent=True, safe_if_absent=True, verify=self._is_pushed_back
        )(self._take_back_push)

    @property
    def policy(self) -> _Rule:
        """The rule for `AgentKit(policies=[...])`: what would be refused is refused before its intent."""
        return _Rule(self)

    def _check_places(self) -> None:
        store = self._store.folder
        for root in self.roots:
            if not root.is_dir():
                raise UsageError(f"workspace {self.name!r}: the root {str(root)!r} is no folder")
            if store == root or root in store.parents or store in root.parents:
                raise UsageError(
                    f"workspace {self.name!r}: the store {str(store)!r} and the root {str(root)!r} lie in one another; "
                    "an agent that empties the root would take the images with it"
                )
        if not self.roots:
            raise UsageError(f"workspace {self.name!r} has no roots")

    # -- tools --------------------------------------------------------------------------------------------------

    def tools(self, kit: AgentKit) -> tuple[Callable[..., Any], ...]:
        """Return the tools, declared in a kit: `shell`, `write_file`, `delete_file`, `move_file`, `git_push`.

        Raises:
            UsageError: the kit's log lies beneath a root.
        """
        self._check_log(kit)
        self._shells["shell"] = "command"
        self._files |= {"write_file": ("path",), "delete_file": ("path",), "move_file": ("source", "target")}
        files = (self.write_file, self.delete_file, self.move_file)
        pushing = kit.wrap(
            self.git_push,
            name="git_push",
            effect="compensable",
            compensate=self.take_back_push.bind(key="key"),
            no_effect_on=_NO_EFFECT,
        )
        return (*(self._wrapped(kit, fn, fn.__name__) for fn in (self.shell, *files)), pushing)

    def guard_shell(
        self, kit: AgentKit, fn: Callable[P, R], *, name: str, parameter: str = "command"
    ) -> Callable[P, R]:
        """Return a shell tool that exists, as a step: its command is classified, and has a pre-image.

        Its process is not ours: it is not confined, and after a crash nobody knows whether it still runs.

        Args:
            kit: in which it is declared.
            fn: a sync function; it must run its command in the first root.
            name: of the tool.
            parameter: the one that holds the command; it must be given by name.
        """
        self._check_log(kit)
        self._shells[name] = parameter

        @wraps(fn)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.check(name, {parameter: kwargs.get(parameter, args[0] if args else None)}):
                with self._imaged(self.roots):
                    return fn(*args, **kwargs)
            return fn(*args, **kwargs)

        return self._wrapped(kit, guarded, name)

    def _wrapped(self, kit: AgentKit, fn: Callable[P, R], name: str) -> Callable[P, R]:
        recipe = self.restore.bind(key="key")
        return kit.wrap(fn, name=name, effect="reversible", compensate=recipe, no_effect_on=_NO_EFFECT)

    def _check_log(self, kit: AgentKit) -> None:
        log = Path(kit.log).resolve()
        if "://" not in kit.log and kit.log != "memory:" and any(root in log.parents for root in self.roots):
            raise UsageError(f"the log {str(log)!r} lies beneath a root of workspace {self.name!r}: move it out")

    def shell(self, command: str) -> dict[str, Any]:
        """Run a shell command in the first root and return its exit code and output.

        Raises:
            CommandRefused: it could do what cannot be taken back, or is not understood; nothing ran.
            NoImage: no pre-image could be taken; nothing ran.
        """
        changing = self.check("shell", {"command": command}, always=True)
        arguments = ["bash", "--norc", "--noprofile", "-c", command]
        if not changing:
            return self._run(arguments, self.roots)
        with self._imaged(self.roots):
            return self._run(arguments, self.roots)

    def write_file(self, path: str, content: str) -> int:
        """Write a text file, with its folders, and return how many bytes it has. A link is refused.

        Raises:
            CommandRefused: it lies outside of the roots, is a link, or is git's own; nothing was written.
        """
        target = self._inside(path)
        with self._imaged([self._topmost_new(target)]):
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.write_text(content, "utf-8")

    def delete_file(self, path: str) -> None:
        """Delete a file or a folder with all that it holds.

        Raises:
            CommandRefused: it lies outside of the roots; nothing was deleted.
        """
        target = self._inside(path)
        with self._imaged([target]):
            shutil.rmtree(target) if target.is_dir() else target.unlink()

    def move_file(self, source: str, target: str) -> None:
        """Move a file or folder, over a file that is there already.

        Raises:
            CommandRefused: one of them lies outside of the roots; nothing was moved.
        """
        here, there = self._inside(source), self._inside(target)
        with self._imaged([here, self._topmost_new(there)]):
            there.parent.mkdir(parents=True, exist_ok=True)
            here.replace(there)

    def git_push(self, remote: str, branch: str, *, force: bool = False) -> str:
        """Push a branch of the repository in the first root, and return what the remote had before.

        Raises:
            CommandRefused: not forced and not a fast-forward, or not understood; nothing was pushed.
        """
        step = current_step()
        with self._imaged([], key=None if step is None else step.key) as key:
            plan = _push.plan(self.roots[0], remote, branch, force=force, key=key)
            if key is not None:
                self._store.write(key, "push", plan)
            ended = self._run(_push.command(plan), None)
            if ended["exit_code"]:
                raise RuntimeError(f"git push ended with {ended['exit_code']}: {ended['output']}")
            return str(plan["old"])

    def check(self, tool: str, kwargs: Any, *, always: bool = False) -> bool:
        """Return whether a call of one of the workspace's tools would change something.

        Raises:
            CommandRefused: it would be refused.
        """
        if always or tool in self._shells:
            command = kwargs.get(self._shells.get(tool, "command"))
            if not isinstance(command, str):
                raise CommandRefused("refused, nothing ran: the command is no text")
            return changes(command, Place(self.roots, {self.roots[0]}, self._programs))
        for parameter in self._files.get(tool, ()):
            self._inside(str(kwargs.get(parameter)))
        return True

    def _inside(self, path: str) -> Path:
        found = self.roots[0] / path
        real = Path(os.path.realpath(found.parent)) / found.name
        beneath = any(root in real.parents for root in self.roots)
        if not beneath or found.name in {"", ".", ".."} or real.is_symlink() or ".git" in real.parts:
            raise CommandRefused(
                f"refused, nothing happened: {path!r} is a link, git's own, or not beneath the roots of {self.name!r}"
            )
        return real

    @staticmethod
    def _topmost_new(path: Path) -> Path:
        while not os.path.lexists(path.parent):
            path = path.parent
        return path

    def _run(self, command: Sequence[str], writable: Sequence[Path] | None) -> dict[str, Any]:
        scratch = self._store.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        step = current_step()

        def note(process: dict[str, Any]) -> None:
            if step is not None:
                self._store.write(step.key, "process", process)

        ended = _child.run(command, self.roots[0], writable, scratch, note, timeout_s=self._timeout_s)
        return {"exit_code": ended.exit_code, "output": ended.output[-OUTPUT_CHARS_MAX:]}

    # -- images -------------------------------------------------------------------------------------------------

    @contextmanager
    def _imaged(self, paths: Sequence[Path], *, key: str | None = None) -> Iterator[str | None]:
        """Hold the workspace; take an image before the effect, durable before it begins, and one after it."""
        step = current_step()
        key = key if step is None else step.key
        if key is None:
            yield None  # Outside of a saga it is the bare tool.
            return
        with self._held():
            if self._store.read(key, "before") is None:  # Tried again under its key, the first image is the one.
                image = take(paths, self._store.keep, self._limits)
                self._store.write(key, "before", {"paths": [str(path) for path in paths], "image": image})
            try:
                yield key
            finally:
                self._store.write(key, "after", take(paths, self._keep_index, self._limits))

    def _keep_index(self, path: str) -> str:
        return self._store.keep(path) if path.endswith("/index") else address(path)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One effect or compensation at a time, in all processes: else an image would hold another one's half."""
        self._store.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._store.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _now(self, paths: Iterable[str], keep: Callable[[str], str] = address) -> Image:
        return take([Path(path) for path in paths], keep, self._limits)

    def _restore(self, key: str) -> object:
        """Put back what a step changed. What it finds is kept in the store first.

        Raises:
            Conflict: somebody else changed it since; nothing was written.
            StillRunning: the step's own process has not ended.
        """
        taken = self._store.read(key, "before")
        if taken is None:
            return ALREADY_DONE  # Nothing begins before its image is there.
        _child.check_ended(self._store.read(key, "process"))
        with self._held():
            before, after = taken["image"], self._store.read(key, "after")
            now = self._now(taken["paths"], self._store.keep)
            left = now if after is None else after
            paths = _restore.touched(before, left)
            begun = self._store.read(key, "restoring")
            _restore.check(self._store, before, left, now, begun=begun is not None)
            paths = sorted({*paths, *(begun or ())})
            self._store.write(key, "restoring", paths)
            if begun is None:
                self._store.write(key, "displaced", now)
            _restore.write(self._store, before, now, paths)
        return None

    def _is_restored(self, key: str) -> bool:
        taken = self._store.read(key, "before")
        if taken is None:
            return True
        paths = self._store.read(key, "restoring")
        if paths is None:
            return False
        left = set(_restore.touched(taken["image"], self._now(taken["paths"])))
        return not left.intersection(paths)

    def _take_back_push(self, key: str) -> object:
        """Put a remote's branch back to what it was, if it still is what we pushed.

        Raises:
            Conflict: somebody else pushed since.
        """
        plan = self._store.read(key, "push")
        if plan is None:
            return ALREADY_DONE
        _child.check_ended(self._store.read(key, "process"))
        return _push.take_back(plan)

    def _is_pushed_back(self, key: str) -> bool:
        plan = self._store.read(key, "push")
        return plan is None or _push.at_remote(plan) == plan["old"]
