"""Runs one of the examples: `python packages/agent-saga-core/examples/gates devices`."""

import importlib
import sys

EXAMPLES = ("clinical", "devices", "infrastructure", "payments")

if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in EXAMPLES:
        importlib.import_module(sys.argv[1]).main()
    else:
        sys.exit(f"say which: {', '.join(EXAMPLES)}")
