"""A process that spends from a budget and says how many calls passed. Arguments: log, threads, calls per thread."""

import sys
import threading

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import Budget


@compensator("spender.unspend", idempotent=True)
def unspend(amount: str) -> None: ...


def spend(amount: str) -> str:
    return "spent"


def main(log: str, threads: int, calls: int) -> None:
    kit = AgentKit(log, policies=[Budget(name="shared", limit="1.0", amount="amount", window="month")])
    tool = kit.wrap(spend, effect="compensable", compensate=unspend.bind(amount="kwargs.amount"))
    passed, refused = [], []

    def work() -> None:
        for _ in range(calls):
            try:
                with kit.transaction("t"):
                    passed.append(tool("0.1"))
            except GateRefused as error:
                refused.append(str(error))

    print("ready", flush=True)
    sys.stdin.readline()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    kit.close()
    assert all("shared" in reason for reason in refused)
    print(len(passed), len(refused), flush=True)
