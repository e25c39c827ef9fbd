"""`python -m agent_saga.testing.sim`: prove, replay, and the numbers for `verify_rollback_invariants`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings

from agent_saga.testing.sim import prove
from agent_saga.testing.sim.invariants import INVARIANTS
from agent_saga.testing.sim.twins import TWINS, survivors
from agent_saga.testing.sim.verify import Verified


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m agent_saga.testing.sim", description=__doc__)
    parser.add_argument("--max-steps", type=int, default=3, help="all failure shapes of sagas of so many steps")
    parser.add_argument("--ci", action="store_true", help="the tier of continuous integration, with all schedules")
    parser.add_argument("--minutes", type=float, help="the long tier for about so long")
    parser.add_argument("--million", action="store_true", help="the long tier until 1,000,000 distinct crash points")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--cores", type=int, default=None, help="processes; all cores by default")
    parser.add_argument("--replay", metavar="TOKEN", help="print what happens in a counterexample")
    parser.add_argument("--json", action="store_true", help="print numbers instead of text")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # What late answers warn of is judged, not shown.
    if asked.replay:
        _print("\n".join(prove.replay(asked.replay)))
        return
    if asked.million or asked.minutes is not None:
        _finish(prove.long(minutes=asked.minutes, seed=asked.seed, cores=asked.cores, say=_print))
    if asked.ci:
        _print(prove.all_schedules(cores=asked.cores).format_text())
        _finish(prove.ci(cores=asked.cores, seed=asked.seed))
    verified = verify(asked.max_steps)
    _print(json.dumps(dataclasses.asdict(verified)) if asked.json else verified.text)
    sys.exit(not verified.holds)


def verify(max_steps: int) -> Verified:
    """Run every failure shape of small sagas, and every seeded bug."""
    proof = prove.quick(max_steps)
    alive = survivors()
    caught = len(TWINS) - len(alive)
    lines = [f"seeded bugs: {caught} of {len(TWINS)} caught, each by the invariant that names it"]
    lines += [f"SURVIVES {twin.invariant}: {twin.bug}" for twin, _ in alive]
    return Verified(
        executions=proof.executions,
        crash_points=proof.crash_points,
        invariants=len(INVARIANTS),
        twins=len(TWINS),
        caught=caught,
        holds=proof.holds and not alive,
        seconds=round(proof.seconds, 2),
        bound="; ".join(proof.bound),
        text="\n".join([proof.format_text(), *lines]),
    )


def _finish(proof: prove.Proof) -> None:
    _print(proof.format_text())
    sys.exit(not proof.holds)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
