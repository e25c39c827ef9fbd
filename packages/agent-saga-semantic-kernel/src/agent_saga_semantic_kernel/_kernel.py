"""Protected kernels: of the user's own class, with ours around the innermost call of each function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from semantic_kernel.filters.filter_types import FilterTypes

from agent_saga_semantic_kernel import _units
from agent_saga_semantic_kernel._function import agent_of, make_ready, name_of, passes_through
from agent_saga_semantic_kernel._invoke import Invocation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semantic_kernel import Kernel

    from agent_saga import AgentKit

_MARK: Final = "__agent_saga_kernel__"


class _Mark:
    """What a protected kernel knows. Copies of the kernel share it."""

    __slots__ = ("adopt", "kit")

    def __init__(self, kit: AgentKit | None, adopt: Callable[[Any], None]) -> None:
        self.kit = kit
        self.adopt = adopt

    def __deepcopy__(self, memo: dict[int, Any]) -> _Mark:
        return self


def is_protected(kernel: Kernel) -> bool:
    """Tell whether a kernel is protected."""
    return _MARK in kernel.__dict__


def guard_kernel(kernel: Kernel, kit: AgentKit | None, adopt: Callable[[Any], None]) -> None:
    """Make the functions of a kernel steps, now and later; doing it again changes nothing.

    Args:
        kernel: it is changed in place.
        kit: where the functions are declared.
        adopt: protects an agent that turns out to be a function.
    """
    if is_protected(kernel):
        return
    kernel.__class__ = _class_of(type(kernel))
    kernel.__dict__[_MARK] = _Mark(kit, adopt)


@functools.cache
def _class_of(kind: Any) -> Any:
    """Return the class of protected kernels; a class, because copies of a kernel keep it."""

    def construct_call_stack(self: Any, filter_type: FilterTypes, inner_function: Any) -> Any:
        if filter_type == FilterTypes.FUNCTION_INVOCATION:
            inner_function = _guarded(self, inner_function)
        elif filter_type == FilterTypes.AUTO_FUNCTION_INVOCATION:
            inner_function = _units.noting(inner_function)
        return kind.construct_call_stack(self, filter_type, inner_function)

    def clone(self: Any) -> Any:
        mark = self.__dict__[_MARK]
        copied = kind.clone(self)
        guard_kernel(copied, mark.kit, mark.adopt)
        return copied

    def get_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = kind.get_function(self, *args, **kwargs)
        make_ready(function, self, self.__dict__[_MARK].kit)
        return function

    def get_full_list_of_function_metadata(self: Any) -> Any:
        make_all_ready(self)
        return kind.get_full_list_of_function_metadata(self)

    def get_list_of_function_metadata(self: Any, *args: Any, **kwargs: Any) -> Any:
        make_all_ready(self)
        return super(changed, self).get_list_of_function_metadata(*args, **kwargs)

    methods = [construct_call_stack, clone, get_function]
    methods += [get_full_list_of_function_metadata, get_list_of_function_metadata]
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    changed: Any = type(kind)(kind.__name__, (kind,), {**about, **{one.__name__: one for one in methods}})
    return changed


def make_all_ready(kernel: Kernel) -> None:
    """See `make_ready`."""
    for plugin in kernel.plugins.values():
        for function in plugin.functions.values():
            make_ready(function, kernel, kernel.__dict__[_MARK].kit)


def _guarded(kernel: Kernel, invoke: Any) -> Callable[[Any], Awaitable[None]]:
    """Return the innermost call of one invocation as a step."""
    function, mark = invoke.__self__, kernel.__dict__[_MARK]
    unit = _units.take(function)
    if passes_through(function):
        agent = agent_of(function)
        if agent is not None:
            mark.adopt(agent)
        return invoke  # type: ignore[no-any-return]
    make_ready(function, kernel, mark.kit)
    invocation = Invocation(function, name_of(function, kernel, mark.kit), unit, mark.kit)
    return lambda context: invocation.run(invoke, context)
