"""Many workers on one log, killed at random: is anything lost, done twice, or appended by who was replaced?

Usage: python workers.py [--url URL] [--workers 64] [--sagas 1000] [--at-once 8] [--kills 50] [--seed 1]

Starts worker processes that run sagas of one to three steps (about one in four fails by itself), kills some of them
with SIGKILL at random moments and starts others for the rest of their work, lets recoverers (other processes, killed
too) finish what the dead left, and compares the world, which is a file of what tools and compensators did, with the
log. Prints what it counted. Exit code 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fault_world import PLACE, seen  # noqa: E402 - needs the path.

from agent_saga.machine.states import StepState  # noqa: E402
from agent_saga.store.open import open_log  # noqa: E402
from agent_saga.store.port import Query  # noqa: E402
from agent_saga.store.reader import load  # noqa: E402
from agent_saga.store.verify import all_rows, verify  # noqa: E402


class Crew:
    """The processes of a run."""

    def __init__(self, url, options):
        self.url, self.options = url, options
        self.chance = random.Random(options.seed)
        self.left = list(range(options.workers))
        self.running: dict[subprocess.Popen[bytes], int] = {}
        self.kills = self.recoveries = self.recoverers_killed = 0
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the run.

    def spawn(self, *words):
        command = [sys.executable, "-W", "ignore", str(HERE / "fault_child.py"), *map(str, words)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def recoverer(self):
        words = ["recover", "--log", self.url, "--import", str(HERE / "fault_world.py")]
        command = [sys.executable, "-W", "ignore", "-m", "agent_saga", *words]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def run(self):
        """Run all work to its end; a killed worker's work is given to another one, which finds its keys in the log."""
        began = time.monotonic()
        next_kill = began + self.gap()
        recoverer = None
        while self.left or self.running:
            while self.left and len(self.running) < self.options.at_once:
                worker = self.left.pop()
                process = self.spawn("work", self.url, worker, self.options.sagas, self.options.seed)
                self.running[process] = worker
            for process, worker in list(self.running.items()):
                if process.poll() is not None:
                    del self.running[process]
                    if process.returncode:
                        self.left.insert(0, worker)
            if recoverer is None or recoverer.poll() is not None:
                self.recoveries += recoverer is not None
                recoverer = self.recoverer()
            if time.monotonic() >= next_kill and self.kills < self.options.kills:
                victim = self.chance.choice([*self.running, recoverer])
                victim.kill()
                self.kills += 1
                self.recoverers_killed += victim is recoverer
                next_kill = time.monotonic() + self.gap()
            time.sleep(0.01)
        recoverer.wait()
        return time.monotonic() - began

    def gap(self):
        return self.chance.expovariate(1 / self.options.every)

    def finish(self):
        """Recover until nothing is left that a recoverer can do."""
        for _ in range(200):
            self.recoverer().wait()
            self.recoveries += 1
            store = open_log(self.url, create=False)
            rest = store.rows(Query(unsealed=True, amendments=True))
            store.close()
            if all(row.row.owner is None and row.row.work == row.row.human > 0 for row in rest):
                return  # What is left, a step in doubt without a probe, is said, and is a human's.
            time.sleep(0.5)


def judge(url):
    """Compare the world with the log; return counts, and what is wrong."""
    world, wrong, counts = seen(), [], Counter()
    expected: Counter[str] = Counter()
    store = open_log(url, create=False)
    try:
        checked = verify(store)
        counts["records"] = checked.records
        for row in all_rows(store):
            if row.row.amends is not None:
                continue
            view = load(store, row.saga_id).view
            counts[f"sagas {row.row.state}"] += 1
            counts["sagas taken over"] += row.row.epoch > 1
            in_doubt = [step for step in view.steps.values() if step.state is StepState.IN_DOUBT]
            counts["steps in doubt, left to a human, as the log says"] += len(in_doubt)
            if not row.row.sealed and not in_doubt:
                wrong.append(f"saga {row.saga_id} is not sealed")
            for step in view.steps.values():
                if step.read_only:
                    continue
                item = json.loads(step.kwargs["item"])
                did, undid = world[f"do {item}"], world[f"undo {item}"]
                expected[f"do {item}"], expected[f"undo {item}"] = did, undid
                counts["effects"] += did
                counts["compensations"] += undid
                counts["compensations tried again, as the log says"] += undid > 1
                if did > 1:
                    wrong.append(f"{item} was done {did} times")
                if row.row.state == "committed" and (undid or did != 1):
                    wrong.append(f"{item} is committed, and was done {did} and compensated {undid} times")
                if (
                    row.row.state == "rolled_back"
                    and did
                    and step not in in_doubt
                    and (not undid or step.state is not StepState.COMPENSATED)
                ):
                    wrong.append(f"{item} was done and not compensated")
                if undid > max(step.compensation_attempts, 1):
                    wrong.append(f"{item} was compensated {undid} times, the log says {step.compensation_attempts}")
    finally:
        store.close()
    lost = {line for line in world if not line.startswith("start ")} - set(expected)
    wrong += [f"{line} is in no saga" for line in sorted(lost)]
    return counts, wrong


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a database; by default a server is started")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--sagas", type=int, default=1000, help="of each worker")
    parser.add_argument("--at-once", type=int, default=8, help="processes that run at the same time")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[PLACE] = f"{folder}/world"
        if options.url:
            return report(f"{options.url}?lease_ttl_s=1", options)
        from pytest_agent_saga.postgres import PostgresServer

        with PostgresServer.started({"fsync": "on"}) as server:
            return report(f"{server.database()}?lease_ttl_s=1", options)


def report(url, options):
    crew = Crew(url, options)
    open_log(url, create=True).close()
    took = crew.run()
    crew.finish()
    crew.log.close()
    counts, wrong = judge(url)
    print(
        f"seed {options.seed}: {options.workers} workers x {options.sagas} sagas, "
        f"{options.at_once} at once, {took:.0f} s"
    )
    print(f"killed: {crew.kills} processes, {crew.recoverers_killed} of them recoverers; recoveries: {crew.recoveries}")
    for name in sorted(counts):
        print(f"{name}: {counts[name]}")
    print(f"lost, done twice, compensated twice unsaid, or wrong in another way: {len(wrong)}")
    for line in wrong[:20]:
        print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
