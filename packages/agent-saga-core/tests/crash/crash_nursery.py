"""Starts the processes that are to be killed: one interpreter has everything imported and nothing open, and forks.

As a program it is that interpreter; `Nursery` is the tests' end of it. Starting a run costs a fork, not an import.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path


class Nursery:
    def __init__(self, *, quiet=True):
        self._quiet = quiet

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._alive = set()
        return self

    def __exit__(self, *_):
        self.end_all()
        _, errors = self._process.communicate()
        assert not self._quiet or errors == "", errors

    def start(self, job):
        """Start a process that does a job of `crash_program`; return its pid."""
        pid = self._ask({"op": "start", "job": job})
        self._alive.add(pid)
        return pid

    def wait(self, pid):
        """Wait until the process has ended; return its exit code, negative for a signal."""
        code = self._ask({"op": "wait", "pid": pid})
        self._alive.discard(pid)
        return code

    def wait_stopped(self, pid):
        """Wait until the process has stopped or ended; tell which."""
        return self._ask({"op": "wait_stopped", "pid": pid})

    def end_all(self):
        """Kill what is left, also what was stopped."""
        for pid in list(self._alive):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def _ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        answer = self._process.stdout.readline()
        assert answer, "the nursery died"
        return json.loads(answer)


def main():
    import crash_program  # Everything is imported before the first fork.

    ended = {}
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        if question["op"] == "start":
            answer = os.fork()
            if answer == 0:
                _run(crash_program, question["job"])
        elif question["op"] == "wait_stopped":
            _, status = os.waitpid(question["pid"], os.WUNTRACED)
            answer = os.WIFSTOPPED(status)
            if not answer:
                ended[question["pid"]] = os.waitstatus_to_exitcode(status)
        elif question["pid"] in ended:
            answer = ended.pop(question["pid"])
        else:
            _, status = os.waitpid(question["pid"], 0)
            answer = os.waitstatus_to_exitcode(status)
        os.write(answers, f"{json.dumps(answer)}\n".encode())


def _run(crash_program, job):
    code = 1
    try:
        result = crash_program.run(job)
        out = Path(job["out"])
        draft = out.with_suffix(".draft")
        draft.write_text(json.dumps(result))
        draft.rename(out)
        code = 0
    except (KeyboardInterrupt, asyncio.CancelledError):  # asyncio may say it so, when its task had not begun.
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code % 256)


if __name__ == "__main__":
    main()
