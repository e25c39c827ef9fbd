"""Rows beside others: what a durable step costs in DBOS (on SQLite), and a checkpointed node in LangGraph."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypedDict

from benchmark.measure import Result
from benchmark.tools import Shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS: Final = 150
TIMEOUT_S: Final = 120


def peers(folder: Path) -> Iterator[Result]:
    """Each in a process of its own; our step is measured in the same process, between the steps of the peer."""
    for peer, what, limit in (
        ("dbos", "durable step over one of DBOS on SQLite", 0.2),
        ("langgraph", "durable step over a LangGraph node, SqliteSaver(sync)", 0.25),
    ):
        command = [sys.executable, "-m", "benchmark.peers", peer, str(folder)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
        found = json.loads(told.stdout.splitlines()[-1])
        ours, theirs = found["ours"] * 1e6, found["theirs"] * 1e6
        more = {"ours_us": round(ours), "theirs_us": round(theirs)}
        yield Result(row=what, value=ours / theirs, unit="x", limit=limit, base=1.0, more=more)


class Beside:
    """Our own durable step, to be timed between the steps of a peer."""

    def __init__(self, folder: Path) -> None:
        self._shop = Shop(str(folder / "beside.db"))
        self.times: list[float] = []

    def run(self, peer: Callable[[Callable[[], None]], None]) -> None:
        """Run a peer, which calls back between its steps."""
        with self._shop.kit.transaction("bench"):
            peer(self._once)
        self._shop.kit.close()

    def _once(self) -> None:
        started = time.perf_counter()
        self._shop.charge("cus_1", len(self.times))
        self.times.append(time.perf_counter() - started)


def dbos(folder: Path, between: Callable[[], None]) -> list[float]:
    """Time the steps of one workflow."""
    peer: Any = import_module("dbos").DBOS  # In the dependency group `bench` only, so that types do not need it.
    times: list[float] = []
    config: Any = {
        "name": "bench",
        "system_database_url": f"sqlite:///{folder}/dbos.sqlite",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    peer(config=config)

    def charge(customer: str, amount: int) -> dict[str, Any]:
        return {"id": "ch_1", "ok": bool(customer or amount)}

    step = peer.step()(charge)

    def flow(steps: int) -> None:
        for number in range(steps):
            started = time.perf_counter()
            step("cus_1", number)
            times.append(time.perf_counter() - started)
            between()

    run = peer.workflow()(flow)
    peer.launch()
    run(STEPS)
    peer.destroy()
    return times


class State(TypedDict):
    """What the graph carries."""

    number: int


def langgraph(folder: Path, between: Callable[[], None]) -> list[float]:
    """Time a node and its checkpoint, from the end of one node to the beginning of the next."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    times: list[float] = []
    ended = 0.0

    def node(state: State) -> State:
        nonlocal ended
        if ended:
            times.append(time.perf_counter() - ended)
        between()
        ended = time.perf_counter()
        return {"number": state["number"] + 1}

    def again(state: State) -> str:
        return END if state["number"] >= STEPS else "node"

    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        graph = StateGraph(State)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        graph.add_conditional_edges("node", again, {"node": "node", END: END})
        config: Any = {"configurable": {"thread_id": "bench"}, "recursion_limit": 2 * STEPS}
        graph.compile(checkpointer=saver).invoke({"number": 0}, config, durability="sync")
    return times


def main(peer: str, folder: str) -> None:
    """Measure one peer, and print what was found."""
    measure = {"dbos": dbos, "langgraph": langgraph}[peer]
    theirs: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        beside = Beside(Path(place))
        beside.run(lambda between: theirs.extend(measure(Path(place), between)))
    print(json.dumps({"ours": median(beside.times), "theirs": median(theirs)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
