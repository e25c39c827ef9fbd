"""A crew that is restored from CrewAI's own checkpoint, in a resumed saga."""

import pytest
from crewai import Crew, Task
from crewai.events import crewai_event_bus
from crewai.state.checkpoint_config import CheckpointConfig
from crewai_scripted import make_agent, model
from crewai_shop import Courier

from agent_saga import SagaSuspended
from agent_saga_crewai import protect


def two_tasks(checkpoint, *models):
    agents = [make_agent([Courier()], each, role=f"clerk {number}") for number, each in enumerate(models)]
    tasks = [Task(description=agent.role, expected_output="sent", agent=agent) for agent in agents]
    return Crew(agents=agents, tasks=tasks, checkpoint=checkpoint)


@pytest.mark.slow
def test_finished_tasks_are_not_missed(kit, shop, records, tmp_path):
    """The restored crew goes on behind its finished task, whose calls it has the results of: nothing has diverged."""
    folder = tmp_path / "checkpoints"
    checkpoint = CheckpointConfig(location=str(folder), on_events=["task_completed"])
    with pytest.raises(SagaSuspended), kit.transaction("send", key="o1"):
        protect(two_tasks(checkpoint, model([("courier", "a")]), model([("courier", "b")])), kit).kickoff()
        crewai_event_bus.flush()
        raise SagaSuspended("the process stops here")
    saved = min((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_mtime_ns)

    crew = Crew.from_checkpoint(CheckpointConfig(location=str(folder), restore_from=str(saved)))
    for agent in crew.agents:
        agent.llm, agent.tools = model([("courier", "b")]), [Courier()]
    assert [task.output is not None for task in crew.tasks] == [True, False]
    with kit.transaction("send", key="o1") as saga:
        protect(crew, kit).kickoff()
    assert [one["step"] for one in records("replayed")] == [2]
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "b"])
