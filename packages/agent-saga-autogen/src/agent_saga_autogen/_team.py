"""Teams: they run in the saga, stop when one of them waits for a person, and go on with that one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import BaseChatMessage, StopMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken

from agent_saga_autogen._agent import ADOPT
from agent_saga_autogen._turns import WAITS, carry, saga_of, within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

REACHABLE: Final = "_agent_saga_reachable"


class Meets(BaseGroupChat):
    """What is added to every team."""

    async def run_stream(
        self, *, cancellation_token: CancellationToken | None = None, **options: Any
    ) -> AsyncGenerator[Any, None]:
        inner: Any = super()
        token = cancellation_token or CancellationToken()
        saga = saga_of(self)
        vars(self)[ADOPT](self)
        others = [thing for thing in vars(self)[REACHABLE](self) if thing is not self]
        carry(others, saga)
        stream = inner.run_stream(cancellation_token=token, **options)
        step: asyncio.Future[Any] | None = None
        try:
            while True:
                with within(None, saga):
                    step = asyncio.ensure_future(anext(stream, None))
                if (item := await _or_cancel(step, token)) is None:
                    return
                yield item
        finally:
            carry(others, None)
            if step is None or step.done():  # A second cancellation does not wait for the first.
                await stream.aclose()

    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], Any]:
        make: Callable[[], Any] = super()._create_group_chat_manager_factory(*args, **options)  # type: ignore[safe-super]

        def make_pausing() -> Any:
            manager = make()
            select = manager.select_speaker

            async def select_speaker(thread: Sequence[Any]) -> Any:
                source = _who_waits(thread)
                return await select(thread) if source is None else _member(self, source)

            manager.select_speaker = select_speaker
            manager._termination_condition = _Waits(manager._termination_condition)  # noqa: SLF001
            return manager

        return make_pausing


async def _or_cancel(step: asyncio.Future[Any], token: CancellationToken) -> Any:
    """Wait for a team. When its run is cancelled, so are its calls: AutoGen would wait for them, however long."""
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        if not step.done():
            token.cancel()
            await asyncio.wait([step])
            _ = step.cancelled() or step.exception()  # Looked at: the cancellation is what leaves.
        raise


def _member(team: Any, source: str) -> str:
    """Return the participant that an agent is, or is in."""
    reachable = vars(team)[REACHABLE]
    for member in team._participants:  # noqa: SLF001
        if any(getattr(thing, "name", None) == source for thing in reachable(member)):
            return str(member.name)
    return source


def _who_waits(thread: Sequence[Any]) -> str | None:
    """Return the agent whose last word was that it waits."""
    since: set[str] = set()
    for message in reversed(thread):
        if isinstance(message, BaseChatMessage):
            if WAITS in message.metadata and message.source not in since:
                return message.source
            since.add(message.source)
    return None


class _Waits(TerminationCondition):
    """The team's own condition, and that none of it waits."""

    def __init__(self, theirs: TerminationCondition | None) -> None:
        self._theirs = theirs
        self._stopped = False

    @property
    def terminated(self) -> bool:
        return self._stopped or (self._theirs is not None and self._theirs.terminated)

    async def __call__(self, messages: Sequence[Any]) -> StopMessage | None:
        theirs = None if self._theirs is None else await self._theirs(messages)
        waits = [one for one in messages if isinstance(one, BaseChatMessage) and WAITS in one.metadata]
        if not waits:
            return theirs
        self._stopped = True
        return StopMessage(content=waits[-1].to_text(), source=waits[-1].source, metadata=waits[-1].metadata)

    async def reset(self) -> None:
        self._stopped = False
        if self._theirs is not None:
            await self._theirs.reset()
