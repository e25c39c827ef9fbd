"""Random writes through the client: after a rollback the database is as its shadow copy."""

import random

import pytest
from postgrest.exceptions import APIError


class GaveUp(Exception):
    """The agent."""


def write(client, chance):
    """Write something: of one row, of some, or of none."""
    names = [chance.choice(["ann", "bob", "cid", "dan", "eve"]) for _ in range(2)]
    people, kv, orders = client.table("people"), client.table("kv"), client.table("orders")
    number, letter = chance.randrange(4), chance.choice("abc")
    values = {"balance": chance.randrange(100) / 4, "doc": chance.choice([None, {"a": [1, None]}, []])}
    forms = (
        lambda: people.insert({"name": names[0], **values}),
        lambda: people.update(values).in_("name", names),
        lambda: people.update({"tags": [letter, 'q"'], "ok": None, "raw": values}).gt("balance", 2),
        lambda: people.delete().eq("name", names[0]),
        lambda: people.upsert({"name": names[1], "ratio": chance.random()}, on_conflict="name"),
        lambda: kv.upsert(
            [{"k": letter, "n": n, "v": names[0]} for n in range(number)] or [{"k": "z", "n": 9}], on_conflict="k,n"
        ),
        lambda: kv.update({"v": None}).lt("n", number),
        lambda: kv.delete().eq("k", letter),
        lambda: orders.insert({"person": number, "item": letter}),
        lambda: orders.update({"person": number}).eq("item", "tea"),
        lambda: orders.delete().neq("item", letter),
    )
    chance.choice(forms)().execute()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 12))])
def test_random_writes_are_taken_back(world, client, kit, seed):
    """Some are refused by constraints: their effect is none."""
    chance, refused = random.Random(seed), 0
    for _ in range(2):
        before = world.dump()
        with pytest.raises(GaveUp), kit.transaction("random") as saga:
            for _ in range(12):
                try:
                    write(client, chance)
                except APIError:
                    refused += 1
            raise GaveUp
        assert (saga.report.clean, saga.report.verified) == (True, True), saga.report.format_text()
        assert before == world.dump(), f"seed {seed}"
    assert refused < 24
