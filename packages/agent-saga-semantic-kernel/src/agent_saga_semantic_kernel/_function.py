"""What the adapter knows about a function: its declared name, its key, and whether it is a step at all."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from semantic_kernel.functions.kernel_function_from_prompt import KernelFunctionFromPrompt

from agent_saga import current_saga, spi

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.functions.kernel_function import KernelFunction

    from agent_saga import AgentKit

_READY: Final = "__agent_saga_ready__"


def name_of(function: KernelFunction, kernel: Kernel, kit: AgentKit | None) -> str:
    """Return the name under which a function is to be declared.

    `plugin-function` if that is declared; else the function's own, unless several plugins have one of that name.
    """
    full = function.fully_qualified_name
    name = function.name
    if spi.effect_of(full, None if current_saga() is not None else kit) is not None:
        return full
    homes = sum(name in plugin.functions for plugin in kernel.plugins.values())
    return full if homes > 1 else name


def passes_through(function: KernelFunction) -> bool:
    """Tell a function that is no step: prompts, agents and handoffs act through the functions that they call."""
    if isinstance(function, KernelFunctionFromPrompt):
        return True
    return getattr(_innermost(function), "__module__", "").startswith("semantic_kernel.agents.")


def agent_of(function: KernelFunction) -> Any:
    """Return the agent that a function is made of, or None."""
    method = _innermost(function)
    if not passes_through(function) or getattr(method, "__name__", None) != "_as_kernel_function":
        return None
    cells = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=False))
    return cells["self"].cell_contents if "self" in cells else None


def _innermost(function: KernelFunction) -> Any:
    method = getattr(function, "method", None)
    return method.func if isinstance(method, functools.partial) else method


def make_ready(function: KernelFunction, kernel: Kernel, kit: AgentKit | None) -> None:
    """Compare a function with its declaration, once, and hide the parameter that receives the key from models.

    Raises:
        DeclarationError: the declaration names parameters that the function does not have.
    """
    if _READY in function.__dict__ or passes_through(function):
        return
    name = name_of(function, kernel, kit)
    if spi.effect_of(name, kit) is None:
        return
    key_param = spi.adopt_parameters(name, [str(one.name) for one in function.parameters], kit)
    for parameter in function.parameters:
        if parameter.name == key_param:
            parameter.include_in_function_choices = False
            parameter.is_required = False
    function.__dict__[_READY] = True  # Copies are ready, too: of the metadata they have a copy.
