"""Declarations that wait for a human: no tool gets an effect class that nobody chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_saga.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.kit import AgentKit

DECIDE: Final = "DECIDE"
"""Stands where a human must write `read_only`, `reversible`, `compensable` or `irreversible`."""

_UNWRITTEN: Final = "__agent_saga_unwritten__"
F = TypeVar("F", bound="Callable[..., Any]")


class Decisions:
    """Declares tools of a kit as far as they are decided, and refuses at the end if some are not.

    Args:
        kit: where the tools are declared.

    Example:
        ```python
        from agent_saga import AgentKit
        from agent_saga.adopt.decide import Decisions

        declare = Decisions(AgentKit(log="memory:"))
        declare("search", effect="read_only")
        declare.complete()
        ```
    """

    def __init__(self, kit: AgentKit) -> None:
        self._kit = kit
        self.undecided: list[str] = []
        self.unwritten: list[tuple[str, str]] = []

    def __call__(self, name: str, *, effect: str, seen: str | None = None, **options: Any) -> None:
        """Declare a tool, or note that its effect is not decided.

        Args:
            name: the tool, as the model sees it.
            effect: an effect class, or `DECIDE`.
            seen: the digest of the code that was looked at; `agent-saga adopt` compares it.
            options: as of `AgentKit.declare`.

        Raises:
            DeclarationError: it cannot work.
        """
        if effect == DECIDE:
            self.undecided.append(name)
            return
        handler = getattr(options.get("compensate"), "compensator", None)
        if handler is not None and getattr(handler.fn, _UNWRITTEN, False):
            self.unwritten.append((name, handler.fn.__name__))
        self._kit.declare(name, effect=effect, **options)

    @staticmethod
    def unwritten_yet(fn: F) -> F:
        """Mark a compensator whose body is still to be written: a tool that needs it keeps the module from loading."""
        setattr(fn, _UNWRITTEN, True)
        return fn

    def complete(self) -> None:
        """Refuse to go on while something waits for a human.

        Raises:
            DeclarationError: it names each tool without a decision, and each compensator without a body.
        """
        lines = [f"  {name}: effect=DECIDE" for name in self.undecided]
        lines += [
            f"  {name}: its compensator {fn}() is still a stub; write it, and remove @declare.unwritten_yet"
            for name, fn in self.unwritten
        ]
        if lines:
            raise DeclarationError(
                f"{len(lines)} tools wait for your decision, so nothing that imports this module runs. Write read_only, "  # noqa: E501
                "reversible, compensable or irreversible in place of DECIDE:\n" + "\n".join(lines)
            )
