"""Builds the golden logs. Run it for a new format version only: old ones must stay readable as they are.

Usage: build_golden.py [FOLDER]
"""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from store_cases import everything

from agent_saga.audit.leaves import root
from agent_saga.store.reader import load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows


def facts(store):
    """What a reader of any later version must find in the log."""
    count, digest = root(store)
    sagas = {}
    for stored in all_rows(store):
        view = load(store, stored.saga_id).view
        sagas[stored.saga_id] = {
            "state": stored.row.state,
            "head": stored.head.hex(),
            "count": stored.count,
            "leaf": stored.leaf,
            "work": stored.row.work,
            "steps": {str(step.no): step.state.value for step in view.steps.values()},
            "results": {str(step.no): step.result for step in view.steps.values()},
            "facts": [list(fact) for fact in store.facts_of(stored.saga_id)],
        }
    return {"leaves": count, "root": digest.hex(), "sagas": sagas}


def main(folder):
    folder.mkdir(exist_ok=True)
    (folder / "format-1.0.db").unlink(missing_ok=True)
    store = everything(SqliteLog(folder / "format-1.0.db", create=True))
    text = json.dumps(facts(store), indent=1, sort_keys=True)
    store.close()
    (folder / "format-1.0.db-mark").unlink()  # Of this machine, and of no use on another one.
    shutil.rmtree(folder / "format-1.0.db-owners")
    (folder / "format-1.0.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden")
