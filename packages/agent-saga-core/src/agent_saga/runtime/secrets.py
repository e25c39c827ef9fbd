"""Secrets on their way into a log in plain text: noticed at declaration and before a call is recorded."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final, Literal

from agent_saga.errors import DeclarationError, UsageError
from agent_saga.model import records as r
from agent_saga.model.secrets import is_secret_name, secret_in
from agent_saga.runtime.refusal import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_saga.model.values import Encoded
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.saga import Saga

Secrets = Literal["warn", "refuse", "ignore"]
_CHOICES: Final = ("warn", "refuse", "ignore")
_PLACES_MAX: Final = 1000


class SecretInLog(UserWarning):
    """What looks like a secret is stored in the log in plain text."""


class SecretsWatch:
    """What a kit does about secrets.

    Args:
        choice: `warn`, `refuse` or `ignore`.

    Raises:
        UsageError: it is none of these.
    """

    def __init__(self, choice: Secrets) -> None:
        if choice not in _CHOICES:
            raise UsageError(f"secrets={choice!r} is none of {', '.join(map(repr, _CHOICES))}")
        self.choice = choice
        self._told: set[tuple[str, str]] = set()

    def check_parameters(self, declaration: Declaration, parameters: Iterable[str]) -> None:
        """Look at the names of a tool's parameters.

        Raises:
            DeclarationError: one is named like a secret and not redacted, and the kit refuses that.
        """
        if self.choice == "ignore":
            return
        hidden = declaration.redacted | {declaration.key_param}
        named = [name for name in parameters if name not in hidden and is_secret_name(name)]
        if not named:
            return
        text = (
            f"tool {declaration.name!r}: {', '.join(map(repr, named))} is named like a secret, and its values would be "
            f"in the log in plain text: redact={named!r}, or AgentKit(encryption=...); secrets='ignore' if it is none"
        )
        if self.choice == "refuse":
            raise DeclarationError(text)
        warnings.warn(text, category=SecretInLog, stacklevel=4)

    def check_call(self, saga: Saga, tool: str, encoded: Mapping[str, Encoded]) -> None:
        """Look at the arguments of a call, before anything of it is recorded.

        Raises:
            GateRefused: one looks like a secret, and the kit refuses that; nothing happened.
        """
        for name, value in encoded.items():
            found = secret_in(f"kwargs.{name}", value.text)
            if found is None:
                continue
            text = f"{found[0]} holds what looks like {found[1]}, which the log would hold in plain text"
            if self.choice == "refuse":
                reason = f"{text}; declare redact=[{name!r}], or encrypt the log"
                saga.live.emit(r.Decided, tool=tool, decision="refuse", policy="secrets", reason=reason, hold=True)
                raise refusal(saga, tool, reason)
            self._tell(tool, found[0], text)

    def _tell(self, tool: str, place: str, text: str) -> None:
        """Warn once of each place."""
        if (tool, place) in self._told or len(self._told) >= _PLACES_MAX:
            return
        self._told.add((tool, place))
        what = (
            f"tool {tool!r}: {text}; declare redact=, encrypt the log (AgentKit(encryption=...)), or secrets='ignore'"
        )
        warnings.warn(what, category=SecretInLog, stacklevel=2)
