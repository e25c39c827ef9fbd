"""What the child processes of the gate tests do. Usage: gate_child.py TASK LOG ARGUMENTS; talks in lines."""

import sys
import threading

from gate_world import Asks, Purse, Says, make_kit

from agent_saga import Allow, Ask, GateRefused, SagaSuspended
from agent_saga.errors import SagaBusy
from agent_saga.runtime import operators
from agent_saga.testing.crash import CrashPoints, watch_commits

LOCK = threading.Lock()


def say(*words):
    with LOCK:
        print(*words, flush=True)


def hear():
    assert sys.stdin.readline(), "nobody speaks any more"


def big(call):
    """Amounts over 5 are asked about, and the saga waits suspended."""
    amount = call.kwargs.get("amount", 0)
    return Ask("big", suspend=True, expires_s=3600) if amount > 5 else Allow()


def spend(log, limit, calls):
    """Make calls of 1 from as many threads as there are calls, each in a saga of its own."""
    kit = make_kit(log, Purse(limit))
    with kit.transaction("ready"):
        kit.mail.__name__  # noqa: B018 - the log is opened by the saga, before the race.
    say("ready")
    hear()

    def work(number):
        with kit.transaction(f"t{number}"):
            try:
                kit.charge(f"c{number}", 1)
            except GateRefused as error:
                say("refused", error)
            else:
                say("spent")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(int(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kit.close()


def order(log, key, reference=""):
    """A saga that charges a little, then a lot; opened by key, or resumed by id."""
    kit = make_kit(log, Says(big))
    try:
        with kit.resume(reference) if reference else kit.transaction("order", key=key, on_crash="resume") as saga:
            say("opened", saga.id)
            kit.charge("ann", 1)
            kit.charge("ann", 9)
    except SagaSuspended as error:
        say("suspended", error.saga_id, error)
    except (SagaBusy, GateRefused) as error:
        say(type(error).__name__, error)
    else:
        say("committed", saga.id)
    kit.close()


def crash(log, key):
    """The same, killed at the commit that the environment names."""
    kit = make_kit(log, Says(big))
    watch_commits(kit.writer(), CrashPoints.from_environment())
    with kit.transaction("order", key=key, on_crash="resume"):
        kit.charge("ann", 1)
        kit.charge("ann", 9)
    say("committed")


def hold(log, customer, then="normally"):
    """Take an account, and keep it until told to end."""
    kit = make_kit(log)
    with kit.transaction("hold") as saga:
        kit.account(customer, 1)
        say("holds", saga.id)
        hear()
        if then == "raise":
            raise RuntimeError("enough")
    say("done")
    kit.close()


def want(log, customer, on_busy):
    kit = make_kit(log)
    with kit.transaction("want", on_busy=on_busy, deadline_s=60):
        say("wants")
        try:
            kit.account(customer, 2)
        except GateRefused as error:
            say("refused", error)
        else:
            say("got it")
    kit.close()


def opposite(log, one, other):
    """Take one account, then, when told, the other."""
    kit = make_kit(log)
    try:
        with kit.transaction("opposite", on_busy="wait", deadline_s=60):
            kit.account(one, 1)
            say("holds")
            hear()
            kit.account(other, 1)
    except GateRefused as error:
        say("refused", error)
    else:
        say("done")
    kit.close()


def work(log):
    """Make a call each time when told, until it is halted."""
    kit = make_kit(log)
    try:
        with kit.transaction("work", key="work") as saga:
            say("opened", saga.id)
            for number in range(100):
                hear()
                kit.charge("ann", number)
                say("charged", number)
    except SagaSuspended as error:
        say("halted", error)
    except GateRefused as error:
        say("refused", error)
    kit.close()


def wait_for_word(log):
    """Make a call that waits in the process for `agent-saga approvals`."""
    kit = make_kit(log, Asks(), approver="log")
    with kit.transaction("wait"):
        try:
            say("asks")
            kit.charge("ann", 1)
        except GateRefused as error:
            say("refused", error)
        else:
            say("ran")
    kit.close()


def decide(log, approval, by, decision):
    kit = make_kit(log)
    say("ready", kit.writer().store.row(approval.partition(":")[0]).saga_id)
    hear()
    try:
        operators.decide_approval(kit.writer(), approval, decision, by=by)
    except Exception as error:
        say("no", error)
    else:
        say("yes")
    kit.close()


if __name__ == "__main__":
    tasks = (spend, order, crash, hold, want, opposite, work, wait_for_word, decide)
    {task.__name__: task for task in tasks}[sys.argv[1]](*sys.argv[2:])
