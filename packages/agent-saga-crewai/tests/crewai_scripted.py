"""A model without a network, and crews with it."""

import json
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from pydantic import Field


class Scripted(BaseLLM):
    """Makes the calls it was given, turn by turn, then says that it is done; an exception is raised instead.

    Attributes:
        turns: of calls (name, arguments, id); an empty one is a final answer.
        native: it calls functions itself; else it writes ReAct.
        heard: the messages of each call.
    """

    turns: list[Any] = Field(default_factory=list)
    native: bool = True
    at: int = 0
    heard: list[Any] = Field(default_factory=list)
    shown: list[Any] = Field(default_factory=list)

    def supports_function_calling(self):
        return self.native

    def supports_stop_words(self):
        return False

    def get_context_window_size(self):
        return 100_000

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **others):
        self.heard.append(json.loads(json.dumps(messages, default=str)))
        self.shown.append(tools)
        turn = self.turns[self.at] if self.at < len(self.turns) else []
        self.at += 1
        if isinstance(turn, Exception):
            raise turn
        if not self.native:
            return react(*turn[0]) if turn else "Thought: I know\nFinal Answer: done"
        if not turn:
            return "done"
        return [
            {"id": known, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments, known in turn
        ]

    async def acall(self, *args, **kwargs):
        return self.call(*args, **kwargs)


def react(name, arguments, _known):
    return f"Thought: I use a tool\nAction: {name}\nAction Input: {json.dumps(arguments)}"


def model(*turns, native=True):
    """Return a model that makes these turns; a call is (name, thing), and gets the ids c1, c2, ..."""
    numbers = iter(range(1, 100))
    made = [
        turn if isinstance(turn, Exception) else [(name, {"thing": thing}, f"c{next(numbers)}") for name, thing in turn]
        for turn in turns
    ]
    return Scripted(model="scripted", turns=made, native=native)


def make_agent(tools, llm, role="clerk", **options):
    return Agent(role=role, goal="sell", backstory="A clerk.", llm=llm, tools=tools, **options)


def make_crew(tools, *turns, native=True, agent=None, task=None, **options):
    """Return a crew of one agent and one task; `crew.model` is its model."""
    clerk = make_agent(tools, model(*turns, native=native), **(agent or {}))
    crew = Crew(
        agents=[clerk],
        tasks=[Task(description="Sell.", expected_output="sold", agent=clerk, **(task or {}))],
        **options,
    )
    return crew, clerk.llm


def told(llm):
    """Return what a model was told about its calls: in native calling by id, in ReAct the last observation."""
    last = llm.heard[-1]
    if llm.native:
        return {one["tool_call_id"]: one["content"] for one in last if one["role"] == "tool"}
    return "\n".join(one["content"] for one in last)
