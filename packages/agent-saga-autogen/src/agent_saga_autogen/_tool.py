"""Tools, guarded in place: `run`, behind the framework's validation, is the step; a sync function is one in its thread.

AutoGen runs sync functions in threads that know no saga, and lets them run on when their run is cancelled. So there the
function itself is the step: it is given the saga, and tells it what came of a call that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from contextlib import aclosing
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final

from autogen_core.tools import BaseStreamTool, BaseTool, FunctionTool
from pydantic import BaseModel, create_model
from pydantic.json_schema import SkipJsonSchema

from agent_saga import current_saga, spi
from agent_saga.errors import DeclarationError
from agent_saga_autogen._step import NotRun, Step, is_of_the_call, mark_span
from agent_saga_autogen._turns import note_fatal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from autogen_core import CancellationToken

    from agent_saga import AgentKit

GUARDED: Final = "_agent_saga_guarded"
"""On a tool that was looked at: it is guarded, or runs an agent that is."""
_call_id: ContextVar[str | None] = ContextVar("agent_saga_autogen_call_id", default=None)


def guard_tool(tool: BaseTool[Any, Any], kit: AgentKit | None) -> None:
    """Make the calls of a tool steps. Doing it again changes nothing.

    Raises:
        DeclarationError: its declaration names parameters that it does not have, or that cannot be hidden.
    """
    if GUARDED in vars(tool):
        return
    key_param = spi.adopt_parameters(tool.name, tool.args_type().model_fields, kit)
    if key_param is not None:
        _hide(tool, key_param)
    kind: Any = type(tool)
    guard = _Guard(tool, Step(name=tool.name, kit=kit), key_param)
    changed: dict[str, Any] = {GUARDED: True}
    is_sync = isinstance(tool, FunctionTool) and not asyncio.iscoroutinefunction(tool._func)  # noqa: SLF001
    changed["run"] = guard.run_function if is_sync else guard.stepping(tool.run)
    inner = tool.run_json if kind.run_json is BaseTool.run_json else guard.stepping_json(tool.run_json)
    changed["run_json"] = _bearable(inner)
    if isinstance(tool, BaseStreamTool):
        changed["run_stream"] = guard.stepping_stream(tool.run_stream)
        changed["run_json_stream"] = _bearable_stream(tool.run_json_stream)
    vars(tool).update(changed)


def _hide(tool: BaseTool[Any, Any], key_param: str) -> None:
    """Hide a parameter from models; whoever calls the tool without a saga may give it all the same."""
    theirs = tool.args_type()
    field = theirs.model_fields[key_param]
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    skip: Any = SkipJsonSchema
    hint: Any = field.annotation
    known: dict[str, Any] = {key_param: (skip[hint | None], default)}
    made = create_model(theirs.__name__, __base__=theirs, __module__=theirs.__module__, **known)
    tool._args_type = made  # noqa: SLF001 - what the schema is made of; the tests see to it.
    if key_param in tool.schema.get("parameters", {}).get("properties", {}):
        raise DeclarationError(
            f"tool {tool.name!r} makes its schema itself, so its parameter {key_param!r} cannot be hidden from models; "
            "leave it out, and read current_step().key in the tool"
        )


class _Guard:
    """How the calls of one tool run."""

    def __init__(self, tool: BaseTool[Any, Any], step: Step, key_param: str | None) -> None:
        self.tool, self.step, self.key_param = tool, step, key_param

    def _with_key(self, args: BaseModel, effective: Mapping[str, Any]) -> BaseModel:
        if self.key_param is None or self.key_param not in effective:
            return args
        return args.model_copy(update={self.key_param: effective[self.key_param]})

    def _result(self, result: Any) -> Any:
        """Return a replayed result as the tool returns it: a replay is plain data."""
        kind = self.tool.return_type()
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        return kind.model_validate(result) if is_model and isinstance(result, dict) else result

    def stepping(self, inner: Any) -> Any:
        async def run(args: BaseModel, cancellation_token: CancellationToken) -> Any:
            mark_span()

            async def body(effective: dict[str, Any]) -> Any:
                return await inner(self._with_key(args, effective), cancellation_token)

            return self._result(await self.step.arun(_plain(args), body, _call_id.get()))

        return run

    async def run_function(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
        mark_span()
        called: Any = copy.copy(self.tool)
        called._func = functools.partial(copy_context().run, self._function, args, _call_id.get())  # noqa: SLF001
        return self._result(await type(called).run(called, args, cancellation_token))

    def _function(self, args: BaseModel, call_id: str | None, **given: Any) -> Any:
        fn: Any = self.tool._func  # type: ignore[attr-defined]  # noqa: SLF001 - a FunctionTool's.

        def body(effective: dict[str, Any]) -> Any:
            key = self.key_param
            return fn(**given) if key is None or key not in effective else fn(**given | {key: effective[key]})

        return self.step.run(_plain(args), body, call_id)

    def stepping_json(self, inner: Any) -> Any:
        """Guard a tool that does not leave `run_json` to the framework: it need not come to `run`."""

        async def run_json(
            args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
        ) -> Any:
            named = dict(args)
            if current_saga() is not None:
                named = _plain(self.tool.args_type().model_validate(args))

            async def body(effective: dict[str, Any]) -> Any:
                key = {name: value for name, value in effective.items() if name == self.key_param}
                return await inner({**args, **key}, cancellation_token, call_id=call_id)

            return self._result(await self.step.arun(named, body, call_id))

        return run_json

    def stepping_stream(self, inner: Any) -> Any:
        """Guard a stream: one step, whose result is the last item; it runs in a task, no faster than it is read."""

        async def run_stream(args: BaseModel, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
            mark_span()
            items: asyncio.Queue[Any] = asyncio.Queue()
            asked: asyncio.Queue[None] = asyncio.Queue()

            async def body(effective: dict[str, Any]) -> Any:
                item = None
                async with aclosing(inner(self._with_key(args, effective), cancellation_token)) as stream:
                    async for item in stream:
                        items.put_nowait(item)
                        await asked.get()
                return item

            step = asyncio.ensure_future(self.step.arun(_plain(args), body, _call_id.get()))
            cancellation_token.link_future(step)
            replayed = True
            async with aclosing(_until(step, items)) as read:
                async for item in read:
                    replayed = False
                    yield item
                    asked.put_nowait(None)
            if replayed:
                yield self._result(step.result())
            step.result()

        return run_stream


async def _until(step: asyncio.Future[Any], items: asyncio.Queue[Any]) -> AsyncGenerator[Any, None]:
    """Yield what is put into a queue until a step has ended; cancel the step when nobody reads on."""
    try:
        while True:
            getting = asyncio.ensure_future(items.get())
            await asyncio.wait([getting, step], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                return
            yield getting.result()
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait([step])


def _plain(args: BaseModel) -> dict[str, Any]:
    return args.model_dump(warnings=False)


def _bearable(inner: Any) -> Any:
    """Return `run_json` so that inside a saga nothing but an `Exception` leaves it: AutoGen would wait for ever.

    See https://github.com/microsoft/autogen/issues/7956.
    """

    async def run_json(
        args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Any:
        token = _call_id.set(call_id)
        try:
            return await inner(args, cancellation_token, call_id=call_id)
        except Exception:
            raise
        except BaseException as error:
            raise _told(error, cancellation_token) from error
        finally:
            _call_id.reset(token)

    return run_json


def _bearable_stream(inner: Any) -> Any:
    async def run_json_stream(
        args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]:
        async with aclosing(inner(args, cancellation_token, call_id=call_id)) as stream:
            while True:
                token = _call_id.set(call_id)
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    return
                except Exception:
                    raise
                except BaseException as error:
                    raise _told(error, cancellation_token) from error
                finally:
                    _call_id.reset(token)
                yield item

    return run_json_stream


def _told(error: BaseException, token: CancellationToken) -> BaseException:
    if current_saga() is None:
        return error
    if isinstance(error, asyncio.CancelledError):
        return NotRun("cancelled; what it did until then is not known") if is_of_the_call(token) else error
    note_fatal(error)
    return NotRun(f"{type(error).__name__}: {error}")
