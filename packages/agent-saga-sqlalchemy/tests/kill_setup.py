"""What the killed program and its recovery import: the engine, protected under the same name."""

import os

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from agent_saga import AgentKit
from agent_saga_sqlalchemy import protect

kit = AgentKit(log=os.environ["SHOP_LOG"])
url = os.environ["SHOP_URL"]
is_async = url.startswith(("sqlite+aiosqlite", "postgresql+asyncpg"))
engine = protect((create_async_engine if is_async else sa.create_engine)(url), kit, name="shop")
