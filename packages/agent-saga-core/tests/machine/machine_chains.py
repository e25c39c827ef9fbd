"""Sagas without a log, up to a point in their lives."""

from agent_saga.machine.fold import apply
from pytest_agent_saga.conformance.sagas import Scribe


class Chain(Scribe):
    """A saga without a log."""

    def __init__(self, number=1):
        super().__init__(None, number)
        self.open_item()
        self.view = self.next

    def then(self, *facts):
        for record, _, values in facts:
            apply(self.view, record, values)
        return self


def standing():
    chain = Chain()
    return chain.then(chain.intent(), chain.outcome())


def in_doubt(**fields):
    chain = Chain()
    return chain.then(chain.intent(**fields))


def rolling_back():
    chain = standing()
    return chain.then(chain.fact("rollback_started", cause="x"))


def compensating():
    chain = rolling_back()
    return chain.then(chain.compensation())
