"""A saga of three writes that fails at its end, killed at the point that the environment names."""

import kill_setup

from agent_saga.testing.crash import CrashPoints, watch_commits

points = CrashPoints.from_environment()
watch_commits(kill_setup.kit.writer(), points)
inner = kill_setup.options.httpx_client._transport._inner
handle_request = inner.handle_request


def watched(request):
    if "rpc" in request.url.path:
        return handle_request(request)
    points.reach("before a write")
    response = handle_request(request)
    points.reach("after a write")
    return response


inner.handle_request = watched
try:
    with kill_setup.kit.transaction("order"):
        client = kill_setup.client
        client.table("people").delete().eq("name", "ann").execute()
        client.table("kv").upsert({"k": "a", "n": 1, "v": "9"}, on_conflict="k,n").execute()
        client.table("orders").insert({"person": 3, "item": "tea"}).execute()
        raise KeyError("the agent gave up")
except KeyError:
    print("\n".join(points.reached))
