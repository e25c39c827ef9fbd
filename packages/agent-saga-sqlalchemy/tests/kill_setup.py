"""What the killed program and its recovery import: the engine, protected under the same name."""

import os

import sqlalchemy as sa

from agent_saga import AgentKit
from agent_saga_sqlalchemy import protect

kit = AgentKit(log=os.environ["SHOP_LOG"])
engine = protect(sa.create_engine(os.environ["SHOP_URL"]), kit, name="shop")
