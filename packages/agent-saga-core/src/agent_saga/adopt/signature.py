"""The parameters of a tool that a caller gives: without those that a framework injects."""

from __future__ import annotations

import ast
import re
from typing import Final

from agent_saga.adopt.source import Defined, Function

_INJECTED: Final = re.compile(
    r"\b(RunContextWrapper|ToolContext|RunContext|Context|InjectedState|InjectedStore|InjectedToolCallId|ToolRuntime|"
    r"InjectedToolArg|RunnableConfig|CancellationToken|CallbackManagerForToolRun|AsyncCallbackManagerForToolRun|"
    r"InvocationContext|BaseStore|ServerSession)\b"
)
_NAMES: Final = frozenset({"self", "cls", "run_manager", "callbacks", "tool_context", "cancellation_token"})


def parameters_of(defined: Defined) -> tuple[tuple[str, str, bool], ...]:
    """Return name, annotation, and whether there is a default, of each parameter that a caller gives."""
    node = defined.node
    assert isinstance(node, Function)
    plain = [*node.args.posonlyargs, *node.args.args]
    with_default = {a.arg for a in plain[len(plain) - len(node.args.defaults) :]} if node.args.defaults else set()
    with_default |= {
        a.arg for a, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is not None
    }
    found = []
    for argument in [*plain, *node.args.kwonlyargs]:
        annotation = "" if argument.annotation is None else text_of(argument.annotation)
        if argument.arg not in _NAMES and not _INJECTED.search(annotation):
            found.append((argument.arg, annotation, argument.arg in with_default))
    return tuple(found)


def text_of(node: ast.expr) -> str:
    """Return an annotation as text, a quoted one without its quotes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)
