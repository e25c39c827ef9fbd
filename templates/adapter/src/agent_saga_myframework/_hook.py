"""Where MyFramework calls its tools, and how these calls become steps. Fill this in, and remove these words.

Find the innermost place that every call of a tool passes, after the framework has validated the arguments; outer
callbacks see text instead of exceptions. Two ways are common:

* The framework has middleware or a filter around the call. Add one in `protect`, which makes a `FrameworkCall` and
  calls `step` or `astep` with what the framework would call next.
* It has not. Then replace the function of each tool object, keep its type, name, description and schema, and do so for
  tools that are added later as well.

In both: `require_declared(names, kit)` when the tools are known, so that all undeclared ones are named at once, and
`adopt_parameters(name, parameters, kit)`, which returns the parameter for the key that no model may see.
"""

from __future__ import annotations

from typing import TypeVar

from agent_saga.spi import AgentKit

T = TypeVar("T")


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make the calls of all tools steps, and return the same thing; a second time changes nothing."""
    raise NotImplementedError(
        "agent_saga_myframework/_hook.py, protect: put `step` and `astep` around the innermost call of each tool"
    )
