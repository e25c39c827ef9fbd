"""The log of agent-saga in PostgreSQL: `AgentKit(log="postgresql://user@host/database")`.

Nothing of this package need be imported: agent-saga finds it when a log's URL begins with `postgresql://`.
"""

from agent_saga_postgres.log import PostgresLog as PostgresLog
from agent_saga_postgres.log import open_log as open_log

__all__ = ["PostgresLog", "open_log"]
