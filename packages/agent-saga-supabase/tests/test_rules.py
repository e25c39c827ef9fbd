"""What a protected client does inside a saga, and outside of it."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import KEY
from postgrest.exceptions import APIError
from supabase import create_async_client
from supabase.lib.client_options import AsyncClientOptions

from agent_saga import RollbackIncomplete
from agent_saga.errors import UndeclaredTool
from agent_saga_supabase import NotCapturable, guarantees, protect


class GaveUp(Exception):
    """The agent."""


def everything(client):
    """Write in each form."""
    people = client.table("people")
    people.insert({"name": "dan", "tags": ["a,b", 'c"'], "doc": {"z": None}, "balance": 1}).execute()
    people.insert([{"name": "eve"}, {"name": "fay", "ratio": 0.25}], returning="minimal").execute()
    changed = people.update({"balance": 5, "raw": {"q": 1}, "tags": []}).eq("name", "ann").select("id", "balance")
    assert changed.execute().data == [{"id": 1, "balance": 5}]
    people.delete().in_("name", ["ann", "eve"]).execute()
    people.update({"ok": True}).or_("name.eq.bob,balance.gt.100").execute()
    client.table("kv").upsert([{"k": "a", "n": 1, "v": "9"}, {"k": "c", "n": 1, "v": "8"}], on_conflict="k,n").execute()
    client.table("kv").delete().is_("v", "null").execute()


def test_every_form_is_taken_back(world, client, kit):
    """After a rollback the database is as it was; cascades and text forms included."""
    before = world.dump()
    with pytest.raises(GaveUp), kit.transaction("order") as saga:
        everything(client)
        assert before != world.dump()
        raise GaveUp
    assert (saga.report.clean, saga.report.verified) == (True, True)
    assert before == world.dump()


def test_a_committed_saga_keeps_what_it_wrote(world, client, kit):
    """A commit changes nothing more."""
    with kit.transaction("order") as saga:
        everything(client)
        left = world.dump()
    assert saga.report.outcome == "committed"
    assert left == world.dump()


def test_without_a_saga_the_client_is_bare(bare_world, client):
    """Outside of sagas there is one request a call, and no migration is needed."""
    everything(client)
    assert len([path for method, path in bare_world.requests if method != "GET"]) == 7
    assert not [path for _, path in bare_world.requests if "rpc" in path]


def test_a_foreign_update_is_a_conflict_with_three_values(world, client, kit):
    """Nothing is written back, not even the other rows of the same step."""
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("order"):
        client.table("kv").update({"v": "ours"}).eq("k", "a").execute()
        world.run("update kv set v = 'theirs' where k = 'a' and n = 2")
        left = world.dump()
        raise GaveUp
    (step,) = caught.value.report.conflicted
    assert left == world.dump()
    for value in ("ours", "theirs"):
        assert value in step.reason


def test_a_row_of_others_is_not_taken_away_by_a_cascade(world, client, kit):
    """What others hung on a row of ours stays, and the row with it."""
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("order"):
        made = client.table("people").insert({"name": "dan"}).execute().data[0]
        world.run(f"insert into orders (person, item) values ({made['id']}, 'theirs')")
        left = world.dump()
        raise GaveUp
    assert len(caught.value.report.conflicted) == 1
    assert left == world.dump()


def test_a_rejected_write_has_no_effect(world, client, kit):
    """The client's own error reaches the caller; nothing is left to compensate."""
    before = world.dump()
    with pytest.raises(APIError, match="duplicate key"), kit.transaction("order") as saga:
        client.table("people").insert({"name": "ann"}).execute()
    assert saga.report.clean
    assert before == world.dump()


def test_a_rejection_that_the_program_catches_does_not_roll_the_saga_back(world, client, kit):
    """The client is called directly, so catching its error resolves it."""
    with kit.transaction("order") as saga:
        with pytest.raises(APIError, match="duplicate key"):
            client.table("people").insert({"name": "ann"}).execute()
        client.table("people").insert({"name": "zoe"}).execute()
    assert saga.report.outcome == "committed"
    assert "zoe" in str(world.dump()["people"])


def test_the_key_of_a_row_cannot_be_changed(world, client, kit):
    """The database refuses it, before anything is written."""
    before = world.dump()
    with pytest.raises(APIError, match="primary key"), kit.transaction("order"):
        client.table("kv").update({"k": "z"}).eq("k", "a").execute()
    assert before == world.dump()


@pytest.mark.parametrize("table", ["loose", "nowhere"])
def test_a_table_that_is_not_protected_is_refused_before_the_effect(world, client, kit, table):
    """Nothing is written, and no intent is recorded."""
    with pytest.raises(NotCapturable, match=table), kit.transaction("order"):
        client.table(table).insert({"a": 1}).execute()
    assert ("POST", f"/rest/v1/{table}") not in world.requests


def test_without_the_migration_writes_are_refused(bare_world, client, kit):
    """The error says what to do."""
    before = bare_world.dump()
    with pytest.raises(NotCapturable, match=r"migration\(\)"), kit.transaction("order"):
        client.table("kv").insert({"k": "q", "n": 1}).execute()
    assert before == bare_world.dump()


def test_undeclared_functions_are_refused(world, client, kit):
    """Functions of the database and at the edge do not run until they are declared."""
    for call in (
        lambda: client.rpc("agent_saga_state", {"step_id": "x"}).execute(),
        lambda: client.functions.invoke("hello"),
        lambda: client.storage.from_("b").remove(["x"]),
    ):
        count = len(world.requests)
        with pytest.raises(UndeclaredTool), kit.transaction("order"):
            call()
        assert count == len(world.requests)
    kit.declare_read_only("supabase:shop:rpc.agent_saga_state")
    with kit.transaction("order"):
        assert client.rpc("agent_saga_state", {"step_id": "x"}).execute().data is None


@pytest.mark.parametrize("lost", ["request", "response"])
def test_a_lost_answer_is_settled_by_the_database(world, client, kit, lost):
    """The caller sees the time-out; the rollback asks, and leaves nothing."""
    before = world.dump()
    with pytest.raises(httpx.TransportError), kit.transaction("order") as saga:
        client.table("kv").insert({"k": "warm", "n": 1}).execute()
        world.loses = lost
        client.table("kv").insert({"k": "lost", "n": 1}).execute()
    assert saga.report.clean
    assert before == world.dump()


@pytest.mark.parametrize("lost", ["request", "response"])
def test_a_retry_after_a_lost_answer_writes_once(world, client, kit, lost):
    """The retry is settled first: it runs where the first try did not land, and only there."""
    with kit.transaction("order") as saga:
        world.loses = lost
        with pytest.raises(httpx.TransportError):
            client.table("orders").insert({"person": 3, "item": "once"}).execute()
        client.table("orders").insert({"person": 3, "item": "once"}).execute()
    assert saga.report.outcome == "committed"
    assert str(world.dump()["orders"]).count("once") == 1


def test_parallel_writes_are_steps_of_their_own(world, client, kit):
    """Threads that carry the saga write at once, and all of it is taken back."""
    before = world.dump()
    with pytest.raises(GaveUp), kit.transaction("order") as saga, ThreadPoolExecutor(4) as pool:
        write = saga.bind(lambda n: client.table("kv").insert({"k": "p", "n": n}).execute())
        list(pool.map(write, range(8)))
        raise GaveUp
    assert len(saga.report.compensated) == 8
    assert before == world.dump()


def test_the_async_client(world, kit):
    """The same through the async client, calls in parallel included."""
    before = world.dump()

    async def run():
        options = protect(AsyncClientOptions(), kit, url=world.address, key=KEY, name="shop")
        client = await create_async_client(world.address, KEY, options=options)
        with pytest.raises(GaveUp):
            async with kit.transaction("order") as saga:
                await asyncio.gather(
                    *(client.table("kv").insert({"k": "p", "n": n}).execute() for n in range(4)),
                    client.table("people").delete().eq("name", "ann").execute(),
                )
                raise GaveUp
        await options.httpx_client.aclose()
        return saga.report

    report = asyncio.run(run())
    assert (report.clean, len(report.compensated)) == (True, 5)
    assert before == world.dump()


def test_storage_and_auth_by_their_classes(world, client, kit):
    """Uploads, copies, moves and made users are offset; what cannot be is refused without an approval."""
    world.files["b", "old"] = b"1"
    with pytest.raises(GaveUp), kit.transaction("files") as saga:
        bucket = client.storage.from_("b")
        bucket.upload("new", b"2")
        bucket.copy("old", "twin")
        bucket.move("old", "elsewhere")
        client.auth.admin.create_user({"email": "a@b.c", "password": "secret-word"})
        assert len(world.users) == 1
        raise GaveUp
    assert saga.report.clean
    assert ({("b", "old")}, {}) == (set(world.files), world.users)


def test_protecting_twice_changes_nothing(world, kit):
    """The transport is wrapped once, and the name stays."""
    options = protect(AsyncClientOptions(), kit, url=world.address, key=KEY, name="shop")
    transport = options.httpx_client._transport
    assert protect(options, kit, url=world.address, key=KEY, name="shop") is options
    assert transport is options.httpx_client._transport


def test_guarantees_can_be_written_down():
    """What is claimed, and what is not."""
    assert {"claims", "not_claimed"} == set(json.loads(json.dumps(guarantees())))


def test_a_request_that_arrives_after_it_was_given_up_writes_nothing(world):
    """The database refuses its key, and only who gave it up last may reopen it."""
    before, url = world.dump(), f"{world.address}/rest/v1"
    for nonce in ("owner", "recovery"):
        asked = httpx.post(f"{url}/rpc/agent_saga_probe", json={"step_id": "late", "given_nonce": nonce})
        assert asked.json() == {"landed": False}
    reopened = httpx.post(f"{url}/rpc/agent_saga_reopen", json={"step_id": "late", "given_nonce": "owner"})
    late = httpx.post(f"{url}/kv", json={"k": "z", "n": 1}, headers={"x-agent-saga-step": "late"})
    assert (reopened.json(), late.json()["code"]) == (False, "AS001")
    assert before == world.dump()
