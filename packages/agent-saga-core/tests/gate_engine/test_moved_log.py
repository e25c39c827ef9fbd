"""A log that is not at its name any more: nobody outside can stop its sagas, so they stop."""

import shutil

import pytest

from agent_saga import AgentKit, SagaSuspended, compensator
from agent_saga.errors import SagaError

DONE = []


@compensator("moved.back", idempotent=True)
def back(number: int) -> None:
    DONE.remove(number)


def act(number: int) -> None:
    DONE.append(number)


@pytest.mark.parametrize("how", ["moved", "removed", "replaced", "a folder"])
def test_no_effect_starts_on_a_log_that_is_not_in_its_place(tmp_path, how):
    """After the file was moved, removed or replaced, the next call is refused before its effect, and status says so."""
    DONE.clear()
    path = tmp_path / "log.db"
    kit = AgentKit(path)
    tool = kit.wrap(act, effect="compensable", compensate=back.bind(number="kwargs.number"))
    with pytest.raises((SagaError, SagaSuspended)), kit.transaction("t"):
        tool(1)
        other = tmp_path / "elsewhere.db"
        if how == "replaced":
            shutil.copy(path, other)
            other.replace(path)
        else:
            path.rename(other)
        if how == "removed":
            other.unlink()
        if how == "a folder":
            path.mkdir()
        try:
            tool(2)
        finally:
            assert 2 not in DONE
            assert not kit.status().ready
