"""The process that `CrashRunner` starts and kills: runs a program with a crash point at each place that matters."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_saga.runtime.ops import drive
from agent_saga.runtime.process import writer_for
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.rehearsal import Rehearsal, use_rehearsal
from agent_saga.testing import CrashPoints, watch_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Call, Invoke, Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Writer

REACHED: Final = "AGENT_SAGA_CRASH_REACHED"
"""The environment variable that names the file for the points that were reached."""
FAIL_AFTER: Final = "AGENT_SAGA_CRASH_FAIL_AFTER"
"""The environment variable that says after which effect the workflow fails; 0 for none."""


class WorkflowFailed(Exception):
    """Raised in the program, so that it rolls back."""


class Watched(Rehearsal):
    """Puts a crash point before and after each commit, effect and compensation."""

    def __init__(self, points: CrashPoints, fail_after: int) -> None:
        self.points, self.fail_after, self.effects = points, fail_after, 0
        self._writers: dict[str, Writer] = {}

    def writer(self, kit: object, log: str) -> Writer | None:
        """See Rehearsal.writer: the kit's own log, with points around its commits."""
        if log == "memory:":
            return None
        if log not in self._writers:
            self._writers[log] = writer_for(log, allow_fs=True)
            watch_commits(self._writers[log], self.points)
        return self._writers[log]

    def call(
        self, saga: Saga, declaration: Declaration, step: StepView | None, operation: Call
    ) -> Generator[Op, Any, Any]:
        """See Rehearsal.call."""
        if step is None:
            return (yield operation)
        return (yield from self._between(f"effect of {declaration.name}", operation))

    def recorded(self, saga: Saga, step: StepView) -> Generator[Op, Any, None]:
        """See Rehearsal.recorded."""
        yield from ()
        self.effects += 1
        if self.effects == self.fail_after:
            raise WorkflowFailed(f"broken by the test after {step.tool}")

    def compensation(self, live: LiveSaga, step: StepView, operation: Invoke) -> Generator[Op, Any, Any]:
        """See Rehearsal.compensation."""
        return (yield from self._between(f"compensation of {step.tool}", operation))

    def _between(self, what: str, operation: Op) -> Generator[Op, Any, Any]:
        self.points.reach(f"before {what}")
        result = yield operation
        self.points.reach(f"after {what}")
        return result


def load(target: str) -> Callable[[], Any]:
    """Return the function that `module:function` or `file.py:function` names."""
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} cannot be loaded")
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    found: Callable[[], Any] = getattr(module, name)
    return found


def _recover(watched: Watched, imports: list[str]) -> None:
    for one in imports:
        load(f"{one}:__name__")
    writer = watched.writer(None, os.environ["AGENT_SAGA_LOG"])
    assert writer is not None
    drive(sweep(writer))


def main(arguments: list[str]) -> int:
    """Run `run TARGET` or `recover MODULE...`; returns 1 when the program raised."""
    points = CrashPoints.from_environment()
    watched = Watched(points, int(os.environ.get(FAIL_AFTER, "0")))
    use_rehearsal(watched)
    code = 0
    try:
        if arguments[0] == "recover":
            _recover(watched, arguments[1:])
        else:
            result = load(arguments[1])()
            if asyncio.iscoroutine(result):
                asyncio.run(result)
    except Exception as error:  # noqa: BLE001 - told to the test.
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = 1
    if REACHED in os.environ:
        done = {"points": points.reached, "effects": watched.effects}
        Path(os.environ[REACHED]).write_text(json.dumps(done), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
