"""agent-saga for SQLAlchemy: `protect(engine, kit)` makes database transactions steps whose inverse is derived."""

from __future__ import annotations

from agent_saga_sqlalchemy._guard_rows import guard_table as guard_table
from agent_saga_sqlalchemy._guard_rows import images_table as images_table
from agent_saga_sqlalchemy._info import INFO as INFO
from agent_saga_sqlalchemy._protect import protect as protect
from agent_saga_sqlalchemy._statements import NotCapturable as NotCapturable

__all__ = ["INFO", "NotCapturable", "guard_table", "images_table", "protect"]
