"""Tools made of Python functions: the function itself is the step, in whatever thread the framework runs it.

So arguments are validated before there is an intent, the step sees the function's own exception and result, and a
function whose run was cancelled still tells the saga what came of it.
"""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_origin, get_type_hints

from agents import FunctionTool, RunContextWrapper, function_tool
from agents.function_schema import function_schema
from agents.tool_context import ToolContext

from agent_saga import spi
from agent_saga_openai_agents._step import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga import AgentKit

_CONTEXT: Final = "agent_saga_context"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedFunction:
    """The function of a tool, guarded, and what runs it.

    Attributes:
        invoker: the framework's own invoker of it.
    """

    step: Step
    plan: _Plan
    invoker: Any
    guard: Callable[..., Any]

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the step that a call with these of the model's would be.

        Raises:
            ValueError: they are not valid.
        """
        schema = function_schema(self.guard, use_docstring_info=False, strict_json_schema=False)
        args, kwargs = schema.to_call_args(schema.params_pydantic_model(**json.loads(json.dumps(given))))
        return self.plan.named(tuple(args), kwargs)


def guarded_function(tool: FunctionTool, kit: AgentKit | None) -> GuardedFunction | None:
    """Return the guarded function of a tool, or None for a tool that is not a function's, or has a typed output."""
    fn = getattr(tool, "__wrapped__", None)
    if fn is None or inspect.isclass(fn) or tool.output_json_schema is not None:
        return None
    fn = fn if inspect.isroutine(fn) else fn.__call__
    hints = get_type_hints(fn, include_extras=True)
    parameters = list(inspect.signature(fn).parameters.values())
    takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
    own = parameters[1:] if takes_context else parameters
    key_param = spi.adopt_parameters(tool.name, [p.name for p in own], kit)
    step = Step(name=tool.name, kit=kit, key_param=key_param)
    shown = _shown(own, key_param)
    is_plain = all(p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} for p in own)
    signatures = {"given": inspect.Signature(shown), "signature": inspect.Signature(own)}
    plan = _Plan(fn=fn, step=step, takes_context=takes_context, is_plain=is_plain, **signatures)
    guard = _aguard(plan) if inspect.iscoroutinefunction(fn) else _guard(plan)
    context = inspect.Parameter(_CONTEXT, inspect.Parameter.POSITIONAL_ONLY)
    guard.__signature__ = inspect.Signature([context, *shown])  # type: ignore[attr-defined]
    guard.__annotations__ = {
        _CONTEXT: ToolContext[Any],
        **{name: hint for name, hint in hints.items() if not (takes_context and name == parameters[0].name)},
    }
    if key_param in guard.__annotations__:
        guard.__annotations__[key_param] |= None
    remade = function_tool(guard, name_override=tool.name, use_docstring_info=False, strict_mode=False)
    return GuardedFunction(step=step, plan=plan, invoker=remade.on_invoke_tool, guard=guard)


def _is_context(hint: Any) -> bool:
    return (get_origin(hint) or hint) in {RunContextWrapper, ToolContext}


def _shown(own: list[inspect.Parameter], key_param: str | None) -> list[inspect.Parameter]:
    """Return the parameters that the framework gives arguments for.

    No model is told of the key, but a caller who gives one may, so its parameter stays: last, and not required.
    """
    shown = [p for p in own if p.name != key_param]
    key = [p.replace(kind=p.KEYWORD_ONLY, default=None) for p in own if p.name == key_param]
    at = len(shown) - (bool(shown) and shown[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return [*shown[:at], *key, *shown[at:]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How a function is called.

    Attributes:
        given: the parameters that the framework gives arguments for.
        signature: the function's own, without the context.
        is_plain: all of them can be given by name.
    """

    fn: Callable[..., Any]
    step: Step
    given: inspect.Signature
    signature: inspect.Signature
    takes_context: bool
    is_plain: bool

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.is_plain:
            return self.step.without_key(dict(zip(self.given.parameters, args, strict=False)) | kwargs)
        return self.step.without_key(self.given.bind_partial(*args, **kwargs).arguments)

    def call(self, context: Any, effective: dict[str, Any]) -> Any:
        lead = (context,) if self.takes_context else ()
        if self.is_plain:
            return self.fn(*lead, **effective)
        known = {name: value for name, value in effective.items() if name in self.signature.parameters}
        # A function that the kit wraps hides its key, and takes it.
        hidden = {name: value for name, value in effective.items() if name not in known}
        bound = inspect.BoundArguments(self.signature, known)
        return self.fn(*lead, *bound.args, **bound.kwargs, **hidden)


def _guard(plan: _Plan) -> Callable[..., Any]:
    @functools.wraps(plan.fn)
    def guard(context: Any, *args: Any, **kwargs: Any) -> Any:
        named = plan.named(args, kwargs)
        return plan.step.run(context, named, lambda effective: plan.call(context, effective))

    return guard


def _aguard(plan: _Plan) -> Callable[..., Any]:
    @functools.wraps(plan.fn)
    async def guard(context: Any, *args: Any, **kwargs: Any) -> Any:
        async def body(effective: dict[str, Any]) -> Any:
            return await plan.call(context, effective)

        return await plan.step.arun(context, plan.named(args, kwargs), body)

    return guard
