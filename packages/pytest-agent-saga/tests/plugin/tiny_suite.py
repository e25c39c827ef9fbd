"""A suite of one rule, and one that has lost it. Named as ours, so that its rules count as shipped."""

import contextlib

from pytest_agent_saga.conformance import Suite, rule

__test__ = False


class Base(Suite):
    """As a shipped suite."""

    __module__ = "pytest_agent_saga.tiny"

    def declared(self):
        return frozenset()

    @contextlib.contextmanager
    def case(self, folder, variant):
        yield folder

    @rule()
    def test_it(self, case):
        """T-1: there is a folder."""
        assert case.is_dir()


class Small(Base):
    """Complete."""


class Smaller(Base):
    """Not."""

    test_it = None
