"""An invocation as a step: inside of every filter, after the framework's own conversion of the arguments."""

from __future__ import annotations

import contextlib
import copy
import inspect
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from pydantic import TypeAdapter
from semantic_kernel.contents.chat_message_content import CMC_ITEM_TYPES
from semantic_kernel.functions.function_result import FunctionResult
from semantic_kernel.functions.kernel_function_from_method import KernelFunctionFromMethod

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_semantic_kernel import _mcp, _units
from agent_saga_semantic_kernel._info import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semantic_kernel.functions.kernel_function import KernelFunction

    from agent_saga import AgentKit

_GIVEN: Final = frozenset({"kernel", "service", "execution_settings"})
"""Parameters that the kernel fills in with objects of its own."""
_ERROR: Final = "An error occurred while invoking"
"""How the framework's loop tells a model of an exception; a function that passes it on has failed, too."""
_contents: Final[TypeAdapter[Any]] = TypeAdapter(list[CMC_ITEM_TYPES])


class Invocation:
    """One invocation of a function; filters may begin it several times."""

    def __init__(self, function: KernelFunction, name: str, unit: _units.Unit, kit: AgentKit | None) -> None:
        self.function = function
        self.name = name
        self._unit = unit
        self._kit = kit
        self._value: Any = None
        self._returned = False
        self._errors: list[Any] = []

    async def run(self, invoke: Any, context: Any) -> None:
        """Invoke the function as the framework does, with the guard in the place of the user's method.

        Args:
            invoke: the framework's own way, a bound method of the function.
            context: of the innermost filter.
        """
        saga = current_saga()
        if saga is not None:
            trace.get_current_span().set_attribute("saga.id", saga.id)
        if not isinstance(self.function, KernelFunctionFromMethod):
            await self._run_other(invoke, context)
            return
        twin = copy.copy(self.function)
        twin.__dict__["method"] = self._method
        if twin.stream_method is not None:
            twin.__dict__["stream_method"] = self._stream
        await invoke.__func__(twin, context)

    async def _method(self, **given: Any) -> Any:
        method = self.function.method  # type: ignore[attr-defined]
        _mcp.listen(method)
        return await self._guard(given, lambda arguments: _finished(method(**arguments)))

    async def _stream(self, **given: Any) -> AsyncIterator[Any]:
        async def begin(arguments: dict[str, Any]) -> Any:
            return self.function.stream_method(**arguments)  # type: ignore[attr-defined]

        source = await self._guard(given, begin)
        if hasattr(source, "__aiter__"):
            async with contextlib.aclosing(source):
                async for item in source:
                    yield item
        else:
            with contextlib.closing(source):
                for item in source:
                    yield item

    async def _run_other(self, invoke: Any, context: Any) -> None:
        """Run a function of a class of the user's: it takes its arguments from the context itself."""

        async def body(_arguments: dict[str, Any]) -> Any:
            await invoke(context)
            value = context.result.value if context.result else None
            if inspect.isasyncgen(value) or inspect.isgenerator(value):
                raise UsageError(f"{self.name!r} is a {type(self.function).__name__}: it cannot be streamed in a saga")
            return context.result

        names = [str(one.name) for one in self.function.parameters]
        given = {name: context.arguments[name] for name in names if name in context.arguments}
        result = await self._guard(given, body)
        if not isinstance(result, FunctionResult):
            context.result = FunctionResult(function=self.function.metadata, value=result)

    async def _guard(self, given: dict[str, Any], call: Callable[[dict[str, Any]], Awaitable[Any]]) -> Any:
        objects = {name: value for name, value in given.items() if name in _GIVEN or name == "arguments"}
        named = {name: value for name, value in given.items() if name not in objects}
        if "arguments" in objects:
            named["arguments"] = dict(objects["arguments"])

        async def body(effective: dict[str, Any]) -> Any:
            self._returned, self._errors = False, []
            heard, unit = _mcp.errors.set(self._errors), _units.current.set(None)
            try:
                self._value = await call({**effective, **objects})
            finally:
                _units.current.reset(unit)
                _mcp.errors.reset(heard)
            self._returned = True
            return self._value.value if isinstance(self._value, FunctionResult) else self._value

        attempt, self._unit.begun = self._unit.begun, self._unit.begun + 1
        result = await spi.aguard(
            self.name,
            named,
            body,
            adapter=NAME,
            call_id=self._unit.call_id,
            scope=self._unit.scope,
            attempt=attempt,
            is_error=self._is_error,
            plain_replay=True,
            kit=self._kit,
        )
        if not self._returned:
            return _restored(self.function, result)
        return self._value if isinstance(self._value, FunctionResult) else result

    def _is_error(self, result: Any) -> bool:
        if isinstance(self._value, FunctionResult) and self._value.metadata.get("exception") is not None:
            return True
        return bool(self._errors) or (isinstance(result, str) and result.startswith(_ERROR))


async def _finished(result: Any) -> Any:
    """Return what a method comes to, as the framework has it: streams as lists."""
    if inspect.isasyncgen(result):
        return [item async for item in result]
    if inspect.isawaitable(result):
        return await result
    return list(result) if inspect.isgenerator(result) else result


def _restored(function: KernelFunction, value: Any) -> Any:
    """Return a result that was replayed, which is plain data, as the function would."""
    kind = getattr(function.return_parameter, "type_object", None)
    if isinstance(value, dict) and isinstance(kind, type) and hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if isinstance(value, list) and value and all(isinstance(one, dict) and "content_type" in one for one in value):
        return _contents.validate_python(value)
    return value
