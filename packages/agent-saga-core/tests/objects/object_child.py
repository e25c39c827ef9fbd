"""A process that opens a saga, waits to be told, goes on, and says what became of it. Usage: URL."""

import sys

from agent_saga.errors import LogFailed
from agent_saga.store.open import open_log
from pytest_agent_saga.conformance.sagas import Scribe


def main(url):
    store = open_log(url, create=True)
    scribe = Scribe(store, 1, owner=store.owner()).open()
    print(store.owner(), flush=True)
    sys.stdin.readline()
    try:
        print(type(scribe.put(scribe.item(scribe.intent()))).__name__, flush=True)
    except LogFailed as failure:
        print("LogFailed", failure, flush=True)
    store.close()


main(sys.argv[1])
