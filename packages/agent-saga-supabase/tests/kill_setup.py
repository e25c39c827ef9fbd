"""What the killed program and its recovery import: the client, protected under the same name."""

import os

from supabase import create_client
from supabase.lib.client_options import SyncClientOptions

from agent_saga import AgentKit
from agent_saga_supabase import protect

KEY = "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZV9yb2xlIn0.c2ln"
URL = os.environ["SHOP_URL"]
kit = AgentKit(log=os.environ["SHOP_LOG"])
options = protect(SyncClientOptions(), kit, url=URL, key=KEY, name="shop")
client = create_client(URL, KEY, options=options)
