"""A change of a running service: an agent of the OpenAI SDK edits and commits, one of LlamaIndex starts and checks.

python release.py 4           settings for four workers: all is kept, and a worker runs for ten minutes
python release.py 0           the check fails: the worker stops, the branch moves back, the file is what it was
python release.py 4 --kill    the process dies when the worker has started
agent-saga recover --import release_tools.py
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the scripted models are

import models
import release_tools as ops
from agents import Agent, Runner, function_tool
from llama_index.core.agent.workflow import FunctionAgent

import agent_saga_llama_index
import agent_saga_openai_agents
from agent_saga import SagaRolledBack

kit = ops.kit


def make_engineer(workers: str) -> Any:
    calls = [("edit_settings", {"text": f"workers = {workers}\n"}), ("commit", {"message": f"{workers} workers"})]
    model = models.for_openai_agents(calls, "Committed.")
    agent = Agent(name="engineer", model=model, tools=[function_tool(ops.edit_settings), function_tool(ops.commit)])
    return agent_saga_openai_agents.protect(agent, kit)


def make_operator() -> Any:
    model = models.for_llama_index([("start_worker", {}), ("check_health", {})], "Rolled out.")
    agent = FunctionAgent(llm=model, tools=[ops.start_worker, ops.check_health])
    return agent_saga_llama_index.protect(agent, kit)


async def main(workers: str, *words: str) -> None:
    ops.set_up()
    engineer, operator = make_engineer(workers), make_operator()
    ops.DIE_WHEN_STARTED = "--kill" in words
    try:
        async with kit.transaction(f"{workers} workers") as saga:
            print((await Runner.run(engineer, f"Give the service {workers} workers.")).final_output)
            print(await operator.run(user_msg="Roll it out."))
    except SagaRolledBack as error:
        print(error)
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
