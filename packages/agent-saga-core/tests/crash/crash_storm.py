"""Rounds of SIGKILL at random instants: several workers and recoverers on one log, each killed at its own moment.

As a program: `crash_storm.py --rounds N --seed S`; prints what was done, and stops at the first round that is wrong.
Everything that is drawn of a round comes from the seed and its number; what the processes do until then is theirs.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package.

from crash_lab import Lab, check_truth, recover_for_good
from crash_nursery import Nursery

MODES = ("async", "sync", "threads")
KINDS = {
    "async": ("keyed", "keyed_verified", "async_keyed", "idempotent", "safe"),
    "sync": ("keyed", "keyed_verified", "idempotent", "safe"),
    "threads": ("keyed", "keyed_verified", "idempotent", "safe"),
}
"""Whatever moment a process of these dies at, recovery leaves nothing."""
SAGAS = 5
RECOVERERS = 2


class Storm:
    """Many rounds in one lab.

    Attributes:
        counts: what has been done so far.
        life_s: how long a process lives here; instants are drawn as parts of it.
    """

    def __init__(self, lab, seed):
        self.lab, self.seed = lab, seed
        self.counts = Counter()
        self.life_s = self._life_s()

    def _life_s(self):
        """How long undisturbed workers take here: deaths are drawn from that, so they fall on all that happens."""
        room = self.lab.room()
        started = time.monotonic()
        workers = [room.start("crowd", mode=mode, kind="keyed", trip=f"{mode}-", sagas=SAGAS) for mode in MODES]
        for worker in workers:
            assert worker.wait() is not None
        life_s = time.monotonic() - started
        room.discard()
        return life_s

    def round(self, number):
        """Start a worker of each mode and one more, kill each, recover while others are killed, compare the world."""
        dice = random.Random(f"{self.seed}-{number}")
        room = self.lab.room()
        modes = [*MODES, dice.choice(MODES)]
        plans = [(mode, dice.choice(KINDS[mode]), dice.uniform(0.0, 0.9)) for mode in modes]
        workers = [
            room.start("crowd", mode=mode, kind=kind, trip=f"{index}-", sagas=SAGAS)
            for index, (mode, kind, _) in enumerate(plans)
        ]
        self._kill(workers, [at * self.life_s for _, _, at in plans])
        for _ in range(dice.randrange(1, 3)):
            recoverers = [room.start("recover") for _ in range(RECOVERERS)]
            self._kill(recoverers, [dice.uniform(0.0, 0.3) * self.life_s for _ in recoverers])
        self._compare(room)
        self.counts["rounds"] += 1
        room.discard()

    def _kill(self, processes, deaths_s):
        started, clock = time.monotonic(), threading.Event()
        for death_s, process in sorted(zip(deaths_s, processes, strict=True), key=lambda one: one[0]):
            clock.wait(max(0.0, started + death_s - time.monotonic()))
            process.strike()
        for process in processes:
            killed = process.wait() is None
            self.counts["processes"] += 1
            self.counts["killed"] += killed
            self.life_s *= 1.02 if killed else 0.97  # About three of five die before their end, however loaded we are.

    def _compare(self, room):
        racing = [room.start("recover") for _ in range(RECOVERERS)]
        for one in racing:
            assert one.wait() is not None, "a recoverer that nobody killed did not end"
        recover_for_good(room)
        check_truth(room, clean=True)
        attempts, effects = room.world()
        self.counts["attempts at effects"] += sum(op == "do" for _, op, _, _ in attempts)
        self.counts["attempts at compensations"] += sum(op == "undo" for _, op, _, _ in attempts)
        self.counts["effects"] += sum(op == "do" for _, op, _, _ in effects)
        self.counts["compensations"] += sum(op == "undo" for _, op, _, _ in effects)
        sagas, _ = room.log()
        self.counts["sagas"] += len(sagas)
        self.counts["sagas that another process finished"] += sum(view.epoch > 1 for view, _ in sagas)

    def told(self):
        """Return what was done, in one line."""
        return ", ".join(f"{number} {what}" for what, number in self.counts.items())


def main():
    parser = argparse.ArgumentParser(prog="scripts/kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to do one again")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    started, number = time.monotonic(), asked.first
    with tempfile.TemporaryDirectory() as folder, Nursery() as nursery:
        storm = Storm(Lab(nursery, Path(folder)), seed)
        try:
            for number in range(asked.first, asked.first + asked.rounds):
                storm.round(number)
                if storm.counts["rounds"] % 50 == 0:
                    print(f"{time.monotonic() - started:6.0f} s  {storm.told()}", flush=True)
        except BaseException:
            print(f"round {number}: --seed {seed} --first {number} --rounds 1 draws the same", flush=True)
            raise
    print(f"{time.monotonic() - started:6.0f} s  {storm.told()}; the log and the world agree in every round")


if __name__ == "__main__":
    main()
