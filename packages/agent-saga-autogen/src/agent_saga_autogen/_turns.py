"""What is known of a run: the agent, its conversation, the model's turn, and the call that is being made."""

from __future__ import annotations

import contextlib
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_autogen._info import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogen_agentchat.messages import BaseChatMessage

    from agent_saga import Saga

WAITS: Final = "agent_saga_waits"
"""In a message's metadata: the run has ended with it, and waits for these approvals."""
WORDS: Final = {"agent_saga_approve": True, "agent_saga_reject": False}
"""In a message's metadata: a person's words on approvals, by their ids."""
_SAGA: Final = "_agent_saga_saga"
_CONVERSATION: Final = "_agent_saga_conversation"


@dataclass(slots=True)
class Turn:
    """One message of a model with calls.

    Attributes:
        stream: the framework's own object for it.
        scope: where its call ids are unique.
        approvals: the requests that its calls wait for.
        fatal: what must leave the run, which cannot while a tool runs.
        made: its calls, by the identity of the framework's object for the result.
        ended: all of them have results.
    """

    stream: object
    scope: str
    approvals: list[str] = field(default_factory=list)
    fatal: BaseException | None = None
    made: dict[int, Active] = field(default_factory=dict)
    ended: bool = False


@dataclass(slots=True)
class Conversation:
    """What an agent's saved state says beside its messages.

    Attributes:
        turns: how many there were, so that a run that begins again from the same state has the same scopes.
        saga: the last saga that it ran in.
        done: the calls in it whose results the model has, by scope.
        waiting: the calls of the turn that waits, each with its result or None.
        known: results that need no call, by the identity of the framework's call object.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    turns: int = 0
    saga: str = ""
    done: dict[str, list[str]] = field(default_factory=dict)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    known: dict[int, Any] = field(default_factory=dict)
    turn: Turn | None = None

    def turn_of(self, stream: object) -> Turn:
        if self.turn is None or self.turn.stream is not stream:
            self.turn = Turn(stream, f"{self.id}/{self.turns}/")
            self.turns += 1
        return self.turn

    def saved(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("id", "turns", "saga", "done", "waiting")}

    def enter(self, saga: Saga) -> None:
        """Say which of its calls in a resumed saga will not be made again."""
        if self.saga != saga.id:
            self.saga, self.done = saga.id, {}
        for scope, ids in self.done.items():
            spi.claim(ids, adapter=NAME, scope=scope)


def conversation_of(agent: Any) -> Conversation:
    """Return an agent's conversation; it has one from when it is protected to when it is reset."""
    found: Conversation = vars(agent).setdefault(_CONVERSATION, Conversation())
    return found


def new_conversation(agent: Any, saved: dict[str, Any] | None = None) -> None:
    vars(agent)[_CONVERSATION] = Conversation(**(saved or {}))


@dataclass(slots=True)
class Active:
    """A call that is being made, and the one within which it is, of an agent that uses this one as a tool."""

    turn: Turn
    call: Any
    outer: Active | None
    result: Any = None
    waits: list[str] = field(default_factory=list)


running: Final[ContextVar[Any]] = ContextVar("agent_saga_autogen_agent", default=None)
active: Final[ContextVar[Active | None]] = ContextVar("agent_saga_autogen_call", default=None)


def note_fatal(error: BaseException) -> None:
    """Have an exception leave the run, and those around it, when their turns have ended: AutoGen would hang earlier."""
    call = active.get()
    while call is not None:
        call.turn.fatal = call.turn.fatal or error
        call = call.outer


def raise_fatal(own: Conversation) -> None:
    """Raise what had to wait for the end of its turn."""
    if own.turn is not None and own.turn.ended and own.turn.fatal is not None:
        raise own.turn.fatal


def note_wait(approval: str, text: str) -> bool:
    """Have the run, and those around it, end with this turn; tells whether they can."""
    call = active.get()
    known = call is not None
    while call is not None:
        call.waits.append(text)
        call.turn.approvals.append(approval)
        call = call.outer
    return known


def hear(messages: Sequence[BaseChatMessage]) -> None:
    """Record the words that people have sent as messages."""
    for message in messages:
        for name, approved in WORDS.items():
            for approval in message.metadata.get(name, "").split():
                with contextlib.suppress(UsageError):  # Decided already, or to be signed: the gate says what is true.
                    spi.decide_approval(approval, approved=approved, by=message.source, note=message.to_text())


# -- the saga, where AutoGen loses it -------------------------------------------------------------------------------


def carry(things: list[Any], saga: Saga | None) -> None:
    """Tell agents and teams in which saga they run, because a runtime that was started before it does not."""
    for thing in things:
        vars(thing)[_SAGA] = saga


def saga_of(thing: Any) -> Saga | None:
    saga: Saga | None = current_saga() or vars(thing).get(_SAGA)
    return saga


@contextlib.contextmanager
def within(agent: Any, saga: Saga | None) -> Iterator[None]:
    """Let an agent or team do one step of its stream in its saga."""
    token = running.set(agent)
    try:
        with contextlib.nullcontext() if saga is None or current_saga() is not None else saga.attach():
            yield
    finally:
        running.reset(token)
