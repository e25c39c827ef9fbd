"""Consensus: several independent verifiers look at a call, and enough of them must say yes."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent_saga.errors import DeclarationError
from agent_saga.gates.rule import ALLOW, Rule, Then, answer, check_then, prepare
from agent_saga.gates.values import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.model.call import ProposedCall, SagaFacts
    from agent_saga.model.effects import Decision

_WORDS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus(Rule):
    """Lets a call through when enough of several verifiers return True; everything else a verifier does is a no.

    A verifier is a function of the call (`ProposedCall`), sync (it gets a thread of its own) or async. Each gets its
    own copy of the arguments. One that raises, takes too long, or returns anything but True has said no. The answer
    is given as soon as it is certain.

    Args:
        tool: names or shell patterns of the tools concerned.
        verifiers: different functions; that they are independent of each other is for you to see to.
        needed: how many must say yes; by default all.
        timeout_s: how long they may take, together.
        then: the answer when they do not agree.

    Limits:
        A sync verifier that hangs keeps its thread until the process ends. An async one that blocks the loop blocks it.
    """

    tool: str | tuple[str, ...]
    verifiers: tuple[Callable[[ProposedCall], Any], ...]
    needed: int | None = None
    timeout_s: float = 10.0
    then: Then = "refuse"
    count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "Consensus")
        verifiers = tuple(self.verifiers)
        count = len(verifiers) if self.needed is None else self.needed
        if not all(map(callable, verifiers)) or len({id(verifier) for verifier in verifiers}) < len(verifiers):
            raise DeclarationError("Consensus: verifiers must be functions, each given once")
        if type(count) is not int or not 1 <= count <= len(verifiers) or not self.timeout_s > 0:
            raise DeclarationError(
                f"Consensus: needed must be 1 to {len(verifiers)} (the number of verifiers) and timeout_s positive"
            )
        prepare(self, verifiers=verifiers, count=count)

    async def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        try:
            copies = [replace(call, kwargs=copy.deepcopy(dict(call.kwargs))) for _ in self.verifiers]
        except Exception as error:  # noqa: BLE001 - an argument's own code failed.
            return answer("refuse", f"{call.tool}: its arguments cannot be copied for the verifiers: {error}")
        tasks = {
            asyncio.ensure_future(_ask(verifier, view)): _name(verifier)
            for verifier, view in zip(self.verifiers, copies, strict=True)
        }
        try:
            yes, no = await self._count(tasks)
        finally:
            for task in tasks:
                task.cancel()
        if yes >= self.count:
            return ALLOW
        reasons = "; ".join(f"{name}: {reason}" for name, reason in no.items())
        return answer(
            self.then,
            f"{call.tool}: {yes} of {len(tasks)} verifiers agreed, {self.count} must ({reasons[:_WORDS_MAX]})",
        )

    async def _count(self, tasks: dict[asyncio.Task[str | None], str]) -> tuple[int, dict[str, str]]:
        """Count until the answer is certain or the time is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + float(self.timeout_s)
        waiting, yes, no = set(tasks), 0, dict[str, str]()
        while waiting and yes < self.count and len(no) <= len(tasks) - self.count:
            done, waiting = await asyncio.wait(
                waiting, timeout=max(0.0, ends_at - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                no |= {tasks[task]: f"no answer within {float(self.timeout_s):g} s" for task in waiting}
                break
            for task in done:
                reason = task.result()
                if reason is None:
                    yes += 1
                else:
                    no[tasks[task]] = reason
        return yes, no


async def _ask(verifier: Callable[[ProposedCall], Any], call: ProposedCall) -> str | None:
    """Return why a verifier says no, or None for a yes."""
    try:
        if inspect.iscoroutinefunction(verifier) or inspect.iscoroutinefunction(type(verifier).__call__):
            said = await verifier(call)
        else:
            said = await _in_thread(verifier, call)
            if inspect.isawaitable(said):
                said = await said
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it raised, it did not say yes.
        return f"{type(error).__name__}: {error}"
    if said is True:
        return None
    return "no" if said is False else f"returned {said!r}, which is neither True nor False"


async def _in_thread(verifier: Callable[[ProposedCall], Any], call: ProposedCall) -> Any:
    """Run a sync verifier in a thread that the process does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: Any, error: BaseException | None) -> None:
        if answered.done():
            return
        if error is None:
            answered.set_result(value)
        else:
            answered.set_exception(Unreadable(f"{type(error).__name__}: {error}"))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(verifier, call)
        except BaseException as raised:  # noqa: BLE001 - delivered to the task that waits.
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, value, error)
        except RuntimeError:  # The loop is closed: nobody waits any more.
            return

    threading.Thread(target=run, name=f"agent-saga verifier {_name(verifier)}", daemon=True).start()
    return await answered


def _name(verifier: Callable[..., Any]) -> str:
    return getattr(verifier, "__qualname__", None) or type(verifier).__qualname__
