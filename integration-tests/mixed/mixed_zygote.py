"""Imports six frameworks once, then runs each case in a forked child: one line of JSON in, one out.

A case: {"way": "sync" | "async", "environ": {...}, "world": folder}. The answer: {"exit": code, or minus the signal;
"said": what the run ended with}.
"""

import json
import os
import sys
import traceback
import warnings


def main():
    warnings.simplefilter("ignore")
    import mixed_agents

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            run(mixed_agents, case, write)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps({"exit": os.waitstatus_to_exitcode(status), "said": said}), flush=True)


def run(agents, case, write):
    """Run a case in this child, and end it without what the parent left to be done at its exit."""
    code = 3
    try:
        os.environ.update(case["environ"])
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        agents.tools.open_world(case["world"])
        saga = agents.run(case["way"])
        os.write(write, saga.report.format_text().encode() if saga.report else b"committed")
        code = 0
    except Exception as error:
        # Some frameworks hand a tool's error on, others tell the model of it: then the scope's end says so.
        said = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), traceback.format_exc()]
        os.write(write, "\n".join(said).encode())
        code = 1
    finally:
        agents.kit.close()
        os._exit(code)


if __name__ == "__main__":
    main()
