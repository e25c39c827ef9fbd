"""What an adapter's tests implement for `AdapterSuite`: the real framework, with a model that follows a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agent_saga import AgentKit


class Capability(StrEnum):
    """What a framework can do, as far as it makes a difference to a saga."""

    SYNC = "sync"
    """It runs an agent without an event loop: `Agent.run`."""
    ASYNC = "async"
    """It runs an agent in an event loop, with async tools: `Agent.arun`."""
    THREADED = "threaded"
    """Its async run takes sync tools too, in whatever thread it likes."""
    STREAMING = "streaming"
    """It streams a run: `Agent.astream`."""
    PARALLEL = "parallel"
    """It runs the calls of one turn at the same time."""
    SWALLOWS = "swallows"
    """It can turn a tool's exception into text for the model (`swallow=True`)."""
    RAISES = "raises"
    """It can let a tool's exception leave the run (`swallow=False`)."""
    ERROR_RESULTS = "error_results"
    """A tool can return a result that the framework takes for an error."""
    VALIDATES = "validates"
    """It checks a call's arguments before it runs the tool."""
    DYNAMIC = "dynamic"
    """Tools can be added to a protected agent."""
    RETRIES = "retries"
    """It can begin a turn, or a call, again when a tool raised (`retries=1`)."""
    RESUMES = "resumes"
    """It can begin a thread's work again, with the same call ids in the same scope."""
    PAUSES = "pauses"
    """It can pause for a human's word and go on later: `Agent.answer`."""
    CONTROL_FLOW = "control_flow"
    """Tools may raise exceptions that steer the framework."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the scripted model makes.

    Attributes:
        id: the framework's id of the call.
    """

    tool: str
    arguments: Mapping[str, Any]
    id: str


Turn = Sequence[Call]
"""The calls that the model makes at once."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the model was told about one of its calls.

    Attributes:
        is_error: the framework told it as an error (by a flag, or in its usual words).
    """

    call_id: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What a run came to.

    Attributes:
        seen: what the model was told, in order.
        paused: it waits for a human's word.
    """

    seen: tuple[Seen, ...] = field(default=())
    paused: bool = False

    def of(self, call_id: str) -> Seen:
        """Return what the model was told last about a call."""
        return next(seen for seen in reversed(self.seen) if seen.call_id == call_id)


class Agent(Protocol):
    """An agent of the real framework, with tools and a scripted model.

    The model makes the calls of the turns, one turn after another, then says that it is done. What leaves the
    framework's run leaves these methods.

    A `thread` is one conversation. Running a thread again begins its work again, with equal call ids in the same
    scope; another thread is another scope.
    """

    def schemas(self) -> Any:
        """Return all that the model is shown about the tools, as comparable data."""

    def add(self, body: Callable[..., Any]) -> None:
        """Add a tool to the agent as it is now."""

    def run(self, turns: Sequence[Turn], *, thread: str) -> Run:
        """Run without an event loop."""

    async def arun(self, turns: Sequence[Turn], *, thread: str) -> Run:
        """Run in an event loop."""

    async def astream(self, turns: Sequence[Turn], *, thread: str) -> Run:
        """Run in an event loop through the framework's streaming interface, to the end of the stream."""

    def answer(self, thread: str, *, approved: bool) -> Run:
        """Give the paused thread the human's word, as the framework is given it, and go on without an event loop.

        It may be called on another agent of the same driver than the one that paused.
        """

    async def aanswer(self, thread: str, *, approved: bool) -> Run:
        """See `answer`; in an event loop."""


class AdapterDriver(Protocol):
    """Makes agents. One is made for each test.

    Attributes:
        adapter: the name that the adapter records with each step.
        capabilities: what framework and adapter can do.
        gaps: for each other capability, why not, in one line.
    """

    adapter: str
    capabilities: frozenset[Capability]
    gaps: Mapping[Capability, str]

    def agent(
        self, bodies: Sequence[Callable[..., Any]], *, kit: AgentKit | None, swallow: bool, retries: int, protect: int
    ) -> Agent:
        """Make an agent.

        Args:
            bodies: functions, sync or async, whose names, docstrings, parameters and annotations (`str`, `int`) make
                the tools.
            kit: whose declarations count; None: without the adapter at all.
            swallow: the framework turns a tool's exception into text for the model.
            retries: how often the framework begins a turn or call again when a tool raised.
            protect: how often the adapter's `protect` (or the like) is applied; 1, or 2.
        """

    def error_result(self, text: str) -> Any:
        """Return what a tool returns to state an error without raising."""

    def control_flow(self) -> BaseException:
        """Return a new exception that a tool raises to steer the framework."""
