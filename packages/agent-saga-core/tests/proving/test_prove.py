"""`prove_rollback`: what it runs, what it compares, what it must find. Rule ids: PR-n."""

import asyncio
import json

import pytest
from proving_cases import deny, prove

from agent_saga import AgentKit
from agent_saga.errors import UsageError
from agent_saga.testing import prove_rollback


def kinds(proof):
    return {(finding.kind, finding.severity, finding.subject.partition("-")[0]) for finding in proof.findings}


def test_a_workflow_that_rolls_back_is_proven(shop):
    """PR-1: each call is broken in six ways, each compensation of each rollback in six; nothing is found."""
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            for item in "abc":
                reserve(item=item)

    proof = prove(shop, scenario)
    assert (proof.proven, proof.findings) == (True, ())
    assert proof.executions == len(proof.broken) == 1 + 3 * 6 + (1 + 2 + 3) * 6
    assert all(one.reached for one in proof.broken)
    assert proof.broken[0].sagas == ("shop: committed",)
    assert {one.sagas for one in proof.broken[1:]} == {("shop: rolled back, clean",)}
    assert proof.format_text().startswith("rollback proven, in 55 executions\nbound: each call broken in 6 ways")


def test_the_same_scenario_gives_the_same_proof(shop):
    """PR-2: order and content do not vary; the proof is JSON."""
    reserve = shop.tool(lambda item: None, name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    first, second = prove(shop, scenario).to_dict(), prove(shop, scenario).to_dict()
    assert first == second
    assert first == json.loads(json.dumps(first))


def test_a_log_in_a_file_stays_as_it_is(tmp_path, shop):
    """PR-3: each execution has a fresh log of the same sort; the kit's own is not even made."""
    shop.kit = AgentKit(log=tmp_path / "own.db")
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop", key="order-1"):
            reserve(item="a")

    proof = prove(shop, scenario)
    assert (proof.proven, proof.executions) == (True, 13)
    assert list(tmp_path.iterdir()) == []


def test_async_with_savepoints_and_parallel_calls(shop):
    """PR-4: async scenarios are cancelled instead of interrupted; nested scopes are compared on their own."""
    reserve = shop.async_good()

    async def scenario():
        async with shop.kit.transaction("shop"):
            await reserve(item="a")
            async with shop.kit.transaction("inner"):
                await reserve(item="b")
            await asyncio.gather(reserve(item="c"), reserve(item="d"))

    proof = asyncio.run(prove(shop, scenario))
    assert proof.findings == ()
    assert any("the run is cancelled before reserve" in one.what for one in proof.broken)
    assert any("inner: rolled back, clean" in one.sagas for one in proof.broken)
    assert {one.raised for one in proof.broken if one.what.startswith("the run is cancelled")} == {"CancelledError"}


def test_a_lying_compensation_is_named(shop):
    """PR-5: a compensation that returns and leaves the effect is found, also between honest ones."""
    reserve, lie = shop.good(name="reserve"), shop.tool(lambda item: None, name="pay", handler="lie", idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            lie(item="b")
            reserve(item="c")

    proof = prove(shop, scenario)
    assert {("lying_compensation", "lie")} == {(f.kind, f.subject.partition("-")[0]) for f in proof.violations}
    assert not proof.proven
    assert "of 'pay': it returns, and changes nothing" in proof.format_text()


def test_a_compensation_that_changes_too_much_is_named(shop):
    """PR-6: a compensation that restores another world than the one before its step is found."""

    def greedy(item):
        shop.world.clear()

    reserve, other = shop.good(name="reserve"), shop.tool(greedy, name="pay", handler="greedy", idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            other(item="b")
            raise ValueError

    found = kinds(prove(shop, scenario))
    assert (
        "lying_compensation",
        "violation",
        "greedy",
    ) not in found  # In the end nothing is left: no report was wrong.

    def nested():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            with shop.kit.transaction("inner"):
                other(item="b")

    assert ("lying_compensation", "violation", "greedy") in kinds(prove(shop, nested))


@pytest.mark.parametrize("declared", [True, False])
def test_a_compensation_that_is_not_idempotent_is_named(shop, declared):
    """PR-7: an attempt after one that took effect must do nothing; declared idempotent or retried after an error."""
    shop.world["balance"] = 0

    def reset():
        shop.world.clear()
        shop.world["balance"] = 0

    def charge(item):
        shop.world["balance"] -= 5

    def refund(item):
        shop.world["balance"] += 5

    pay = shop.tool(refund, body=charge, name="pay", handler="refund", idempotent=declared)

    def scenario():
        with shop.kit.transaction("shop"):
            pay(item="a")

    proof = prove_rollback(scenario, snapshot=shop.snapshot, reset=reset)
    assert ("not_idempotent", "violation", "refund") in kinds(proof)
    lost = "the workflow fails right after pay and refund"
    where = next(finding.where for finding in proof.findings if finding.kind == "not_idempotent")
    assert declared is any("answer is lost" in place for place in where), lost


def test_a_tool_that_takes_effect_and_raises_is_named(shop):
    """PR-8: where the tool itself does so it is a violation; where the test did it, an assumption of the report."""

    def take_and_raise(item):
        shop.take(item)
        raise ValueError("after all")

    raises = shop.tool(shop.give_back, body=take_and_raise, name="own")
    reserve = shop.tool(lambda item: shop.world.pop(item, None), name="reserve", idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            raises(item="b")

    found = kinds(prove(shop, scenario))
    assert ("effect_despite_error", "violation", "own") in found
    assert ("effect_despite_error", "assumption", "reserve") in found
    assert not any(kind == "world_differs" for kind, _, _ in found)


def test_a_read_only_tool_with_an_effect_is_named(shop):
    """PR-9: what is declared read_only and changes the world is missing in every report."""
    look, reserve = shop.tool(effect="read_only", name="look"), shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            look(item="b")

    assert kinds(prove(shop, scenario)) == {("missed_effect", "violation", "look")}


def test_an_effect_outside_of_tools_is_named(shop):
    """PR-10: a change between two calls, by something that is no tool, is found when a clean report denies it."""
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            shop.world["unseen"] = 1
            reserve(item="b")

    proof = prove(shop, scenario)
    assert {("missed_effect", "violation", "shop")} == kinds(proof)
    assert "between call of reserve and call of reserve #2" in proof.findings[0].text


def test_a_lying_probe_is_found(shop):
    """PR-11: a probe that denies an effect makes the report miss it."""
    reserve = shop.tool(shop.give_back, name="lies", probe=deny, idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    assert ("missed_effect", "violation", "lies") in kinds(prove(shop, scenario))


def test_an_honest_probe_settles_everything(shop):
    """PR-12: with a probe nothing is assumed and nothing needs a human."""

    def undo(item):
        shop.world.pop(item, None)

    reserve = shop.tool(undo, name="reserve", probe=shop.probe, idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            reserve(item="b")

    assert prove(shop, scenario).findings == ()


def test_a_swallowed_failure_is_found(shop):
    """PR-13: a saga that commits although a step failed is found; not if it was repeated, or is handled."""
    reserve, gift = shop.good(name="reserve"), shop.good(name="gift")

    def swallows():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            try:
                gift(item="b")
            except Exception:
                return

    assert kinds(prove(shop, swallows)) == {("commits_despite_failure", "violation", "gift")}
    assert prove(shop, swallows, handled=["gift"]).findings == ()

    def repeats():
        with shop.kit.transaction("shop"):
            try:
                gift(item="b")
            except Exception:
                gift(item="b")

    assert prove(shop, repeats).findings == ()


def test_a_savepoint_that_rolls_back_is_a_consequence(shop):
    """PR-14: a failure that its nested scope rolled back may be followed by a commit of the whole."""
    reserve, gift = shop.good(name="reserve"), shop.good(name="gift")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")
            try:
                with shop.kit.transaction("inner"):
                    gift(item="b")
            except Exception:
                return

    assert prove(shop, scenario).findings == ()


def test_what_needs_a_human_is_said(shop):
    """PR-15: a lost answer that nothing can settle is no violation: the report says so, and so does the proof."""

    def undo(item):
        shop.world.pop(item, None)

    reserve = shop.tool(undo, name="reserve", idempotent=True)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    proof = prove(shop, scenario)
    assert proof.proven
    assert [finding.subject for finding in proof.left_to_humans] == ["reserve"]
    assert "left to a human, and stated by the reports:" in proof.format_text()


def test_parallel_liars_are_named(shop):
    """PR-16: where calls overlap, the executions in which one of them ran alone tell whose fault it is."""
    shop.tool(lambda item: None, name="unused", handler="lie", idempotent=True)
    handler = shop.kit.declarations.find("unused").compensate.compensator

    @shop.kit.tool(effect="compensable", compensate=handler.bind(item="kwargs.item"))
    async def reserve(item):
        await asyncio.sleep(0)
        shop.take(item)
        await asyncio.sleep(0)

    async def scenario():
        async with shop.kit.transaction("shop"):
            await asyncio.gather(reserve(item="a"), reserve(item="b"))
            raise ValueError("no")

    proof = asyncio.run(prove(shop, scenario))
    assert ("lying_compensation", "violation", "lie") in kinds(proof)
    assert "world_differs" not in {finding.kind for finding in proof.findings}, "the suspicion is explained"


def test_two_sagas_are_compared_each_with_its_own_beginning(shop):
    """PR-17: a saga that committed before stays; the rollback of the next one is compared with the world after it."""
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("one"):
            reserve(item="a")
        with shop.kit.transaction("two"):
            reserve(item="b")

    proof = prove(shop, scenario)
    assert proof.findings == ()
    assert ("one: committed", "two: rolled back, clean") in {one.sagas for one in proof.broken}


def test_a_tool_with_retries_is_broken_too(shop):
    """PR-27: what the engine tries again may succeed; the workflow's own failure afterwards is not tried again."""
    reserve = shop.good(name="tries", retry=2, probe=shop.probe)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    proof = prove(shop, scenario)
    assert proof.findings == ()
    ended = {one.what: one.sagas for one in proof.broken}
    assert ended["tries raises before it does anything"] == ("shop: committed",)
    assert ended["the workflow fails right after tries"] == ("shop: rolled back, clean",)


def test_an_engine_that_compensates_nothing_is_caught(shop, monkeypatch):
    """PR-18: a seeded bug: compensations recorded as successful without having been run."""
    import agent_saga.runtime.compensate as engine

    def claims(live, step, operation):
        yield from ()
        return {"state": "compensated"}

    monkeypatch.setattr(engine, "_run", claims)
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    assert ("world_differs", "violation", "shop") in kinds(prove(shop, scenario))


# -- what makes a proof worthless ---------------------------------------------------------------------------------


def test_a_blind_snapshot_proves_nothing(shop):
    """PR-19: a snapshot that does not change while effects run is a violation."""
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    proof = prove_rollback(scenario, snapshot=lambda: 0, reset=shop.reset)
    assert kinds(proof) == {("blind_snapshot", "violation", "snapshot")}


def test_a_reset_that_does_not_reset_is_refused(shop):
    """PR-20: every execution must begin in the same world."""
    reserve = shop.good(name="reserve")

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    with pytest.raises(UsageError, match=r"reset\(\) does not bring the world back after 'unbroken'"):
        prove_rollback(scenario, snapshot=shop.snapshot, reset=lambda: None)


def test_errors_of_the_test_itself_are_raised(shop):
    """PR-21: what `snapshot` raises is not the tool's error, and ends the proof; the engine is as before."""
    reserve = shop.good(name="reserve")
    asked = []

    def snapshot():
        asked.append(1)
        if len(asked) > 3:
            raise LookupError("no world")
        return dict(shop.world)

    def scenario():
        with shop.kit.transaction("shop"):
            reserve(item="a")

    with pytest.raises(LookupError, match="no world"):
        prove_rollback(scenario, snapshot=snapshot, reset=shop.reset)
    with pytest.raises(LookupError, match="no world"):
        prove_rollback(scenario, snapshot=snapshot, reset=shop.reset)
    assert prove(shop, scenario).proven


def test_a_real_interrupt_ends_the_proof(shop):
    """PR-22: Ctrl-C of whoever waits for the proof is not taken for a fault."""

    def scenario():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prove(shop, scenario)


def test_a_cancelled_proof_ends(shop):
    """PR-23: cancelling the proof cancels the scenario."""
    started = asyncio.Event()

    async def scenario():
        started.set()
        await asyncio.Event().wait()

    async def main():
        task = asyncio.ensure_future(prove(shop, scenario))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_it_refuses_to_run_inside_a_saga_or_itself(shop):
    """PR-24: a rehearsal is of the whole process, and of no saga that is open."""
    with shop.kit.transaction("outer"), pytest.raises(UsageError):
        prove(shop, lambda: None)

    def scenario():
        prove(shop, lambda: None)

    assert {one.raised for one in prove(shop, scenario).broken} == {"UsageError"}
    with pytest.raises(UsageError):
        prove(shop, lambda: None, executions_max=0)


def test_the_bound_says_where_it_stopped(shop):
    """PR-25: limits, unreached places and uncompared scopes are part of the answer."""
    reserve = shop.good(name="reserve")
    runs = []

    def scenario():
        runs.append(1)
        with shop.kit.transaction("shop"):
            reserve(item="a")
            if len(runs) == 1:
                reserve(item="b")

    proof = prove(shop, scenario, executions_max=15)
    assert proof.executions == 15
    assert "executions did not come to the place to be broken" in proof.bound
    assert proof.bound.endswith("stopped after executions_max=15")


def test_async_snapshot_and_reset(shop):
    """PR-26: `snapshot` and `reset` may be async, with async tools and with sync ones."""
    reserve = shop.async_good()

    async def snapshot():
        await asyncio.sleep(0)
        return dict(shop.world)

    async def reset():
        await asyncio.sleep(0)
        shop.world.clear()

    async def scenario():
        async with shop.kit.transaction("shop"):
            await reserve(item="a")

    assert asyncio.run(prove_rollback(scenario, snapshot=snapshot, reset=reset)).findings == ()
    tool = shop.good(name="plain")

    def plain():
        with shop.kit.transaction("shop"):
            tool(item="a")

    assert prove_rollback(plain, snapshot=snapshot, reset=reset).findings == ()
