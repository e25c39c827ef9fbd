"""A chat model that says what the test wrote, and the agents and graphs around it."""

import itertools

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import Field

from agent_saga_langgraph import SagaMiddleware, protect


class Scripted(BaseChatModel):
    """Each turn is a list of (tool, arguments, id); the turn after the last one is the final answer.

    The turn is found by counting the model's messages, so a run that is resumed hears the same again.
    """

    turns: list
    bound: list = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        self.bound.append(list(tools))
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        number = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.turns[number] if number < len(self.turns) else []
        calls = [{"name": name, "args": args, "id": call_id, "type": "tool_call"} for name, args, call_id in turn]
        message = AIMessage(content="" if turn else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def turns(*calls):
    """One turn for each argument: a call, or a list of calls made at once; ids are c1, c2, ..."""
    numbers = itertools.count(1)
    listed = [call if isinstance(call, list) else [call] for call in calls]
    return [[(name, args, f"c{next(numbers)}") for name, args in turn] for turn in listed]


def ask(text="hello"):
    return {"messages": [("user", text)]}


def thread(name="t1"):
    return {"configurable": {"thread_id": name}}


def waiting(result):
    """The interrupts that a run stopped for."""
    return result.get("__interrupt__", [])


def answers(result):
    """The tools' messages, as (status, content)."""
    return [(m.status, m.content) for m in result["messages"] if isinstance(m, ToolMessage)]


class Runner:
    """Makes agents and graphs for the tests of one kit."""

    def __init__(self, kit):
        self.kit = kit

    def agent(self, tools, *calls, model=None, middleware=(), **options):
        model = model or Scripted(turns=turns(*calls))
        return create_agent(model, tools, middleware=[*middleware, SagaMiddleware(self.kit)], **options)

    def graph(self, tools, *calls, model=None, checkpointer=None, node_options=None, **tool_node):
        """A hand-made graph around one ToolNode."""
        model = model or Scripted(turns=turns(*calls))
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", protect(ToolNode(tools, **tool_node), self.kit), **(node_options or {}))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=checkpointer)
