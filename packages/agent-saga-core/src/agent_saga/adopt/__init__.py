"""What a generated `saga_tools.py` needs: declarations that refuse to load before a human has decided."""

from __future__ import annotations

from agent_saga.adopt.decide import DECIDE as DECIDE
from agent_saga.adopt.decide import Decisions as Decisions

__all__ = ["DECIDE", "Decisions"]
