"""agent-saga for Supabase: `protect(options, kit, ...)` makes the writes of a client steps that are taken back."""

from __future__ import annotations

from agent_saga_supabase._calls import NotCapturable as NotCapturable
from agent_saga_supabase._info import INFO as INFO
from agent_saga_supabase._protect import guarantees as guarantees
from agent_saga_supabase._protect import migration as migration
from agent_saga_supabase._protect import protect as protect

__all__ = ["INFO", "NotCapturable", "guarantees", "migration", "protect"]
