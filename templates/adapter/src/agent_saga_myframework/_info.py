"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "myframework"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="myframework>=1.0",  # FILL IN: the oldest release that you test
    capabilities=(),  # FILL IN: what the conformance suite showed
    gaps=(),  # FILL IN: what you know not to be covered, in one line each
)
