"""The tiny framework has middleware around the innermost call of each tool."""

from __future__ import annotations

from typing import Any

from agent_saga_tiny._step import FrameworkCall, astep, step
from tiny_framework import Middleware

from agent_saga import current_saga
from agent_saga.spi import AgentKit, adopt_parameters, require_declared


class SagaMiddleware(Middleware):
    def __init__(self, kit: AgentKit | None) -> None:
        self.kit = kit

    def begin(self, run: Any, tools: list[Any]) -> None:
        run.notes["saga"] = current_saga()
        require_declared([tool.name for tool in tools], self.kit)
        self.hide_keys(tools)

    def hide_keys(self, tools: list[Any]) -> None:
        for tool in tools:
            tool.hidden = {adopt_parameters(tool.name, tool.parameters, self.kit)} - {None}

    def call(self, run: Any, request: Any, tool: Any, proceed: Any, arguments: Any) -> Any:
        return step(self.seen(run, request, arguments), proceed, self.kit)

    async def acall(self, run: Any, request: Any, tool: Any, proceed: Any, arguments: Any) -> Any:
        return await astep(self.seen(run, request, arguments), proceed, self.kit)

    def seen(self, run: Any, request: Any, arguments: Any) -> FrameworkCall:
        answer = None
        if request.answer is not None and request.answer[0] is not None:
            answer = (request.answer[0]["approval"], request.answer[1])
        return FrameworkCall(
            tool=request.tool,
            arguments=arguments,
            call_id=request.id,
            scope=f"thread:{run.thread}",
            attempt=run.attempt,
            saga=run.notes["saga"],
            answer=answer,
        )


def protect(thing: Any, kit: AgentKit | None = None) -> Any:
    if not any(isinstance(one, SagaMiddleware) for one in thing.middleware):
        guarding = SagaMiddleware(kit)
        guarding.hide_keys(list(thing.tools.values()))
        thing.middleware.append(guarding)
    return thing
