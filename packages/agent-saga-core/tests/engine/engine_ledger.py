"""A world that knows each effect by the key of its step, and compensators that act on it. For test_programs."""

from agent_saga import ALREADY_DONE, Conflict, Landed, NotLanded, Unknowable, compensator


class Ledger:
    """A world that knows each effect by the key of its step."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.effects, self.undone, self.things, self.script, self.blind, self.order = {}, {}, {}, {}, set(), []
        self.overdone = 0
        self.liars = set()  # keys of calls that raised what means "nothing happened", after their effect

    def standing(self, key):
        return self.effects.get(key, 0) > self.undone.get(key, 0)

    def next_of(self, operation, thing):
        queue = self.script.get((operation, thing))
        return queue.pop(0) if queue else None

    def undo(self, thing, key, *, looks_first=False):
        self.order.append(f"undo {thing} {key[-1]}")
        failure = self.next_of("undo", thing)
        if isinstance(failure, ValueError | Conflict):
            raise failure
        if self.standing(key):
            self.undone[key] = self.undone.get(key, 0) + 1
        elif not looks_first:
            self.overdone += 1
        if failure is not None:
            raise failure


WORLD = Ledger()


@compensator("programs.plain")
def undo_plain(thing, key):
    WORLD.undo(thing, key)


def gone(thing, key):
    return not WORLD.standing(key)


@compensator("programs.sure", idempotent=True, verify=gone)
def undo_sure(thing, key):
    WORLD.undo(thing, key, looks_first=True)


@compensator("programs.if_there", safe_if_absent=True, idempotent=True)
def undo_if_there(thing, key):
    WORLD.undo(thing, key, looks_first=True)
    return ALREADY_DONE


def look(key, kwargs):
    if kwargs["thing"] in WORLD.blind:
        return Unknowable("blind")
    return Landed({"id": kwargs["thing"]}) if WORLD.effects.get(key) else NotLanded()
