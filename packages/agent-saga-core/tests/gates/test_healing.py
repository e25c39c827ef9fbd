"""Going forward within bounds: fallbacks and the loop, on the real engine."""

import asyncio

import pytest
from gate_cases import Facts, MovedClock

from agent_saga import ALREADY_DONE, AgentKit, GateRefused, Refuse, compensator
from agent_saga.errors import DeclarationError, NoSaga
from agent_saga.gates import Bounds, Fallback, HealingFailed, SelfHealedProposal, SelfHealingLoop

LEDGER: list[tuple[str, int]] = []
DOWN: set[str] = set()


@compensator("healing.refund", idempotent=True, safe_if_absent=True)
def refund_maybe(bank: str, amount: int) -> object:
    if (bank, amount) not in LEDGER:
        return ALREADY_DONE
    LEDGER.remove((bank, amount))
    return None


@compensator("healing.refund_known", idempotent=True)
def refund_known(bank: str, amount: int) -> None:
    LEDGER.remove((bank, amount))


def charge(bank: str, amount: int) -> str:
    if bank in DOWN:
        raise ValueError(f"{bank} is down")
    LEDGER.append((bank, amount))
    return f"{bank}:{amount}"


def charge_and_hang_up(bank: str, amount: int) -> str:
    LEDGER.append((bank, amount))
    raise TimeoutError("no answer")


async def acharge(bank: str, amount: int) -> str:
    await asyncio.sleep(0)
    return charge(bank, amount)


@pytest.fixture
def kit():
    LEDGER.clear()
    DOWN.clear()
    made = AgentKit("memory:", policies=[Bounds(tool="charge*", argument="amount", max=100)])
    yield made
    made.close()


@pytest.fixture
def tools(kit):
    bind = {"bank": "kwargs.bank", "amount": "kwargs.amount"}
    return {
        fn.__name__: kit.wrap(fn, effect="compensable", compensate=handler.bind(**bind))
        for fn, handler in [(charge, refund_known), (acharge, refund_known), (charge_and_hang_up, refund_maybe)]
    }


def test_a_fallback_is_a_step_of_its_own(kit, tools):
    """HEAL: after a failure without effect the next fallback runs, with its own intent and compensation."""
    DOWN.add("a")
    other = Fallback(repair=lambda kwargs, problem: {**kwargs, "bank": "b"})
    with pytest.raises(RuntimeError) as failure, kit.transaction("t") as saga:
        proposal = SelfHealedProposal(tool=tools["charge"], kwargs={"bank": "a", "amount": 5}, fallbacks=[other])
        assert proposal.run() == "b:5"
        assert [step.state for step in saga.steps()] == ["absent", "standing"]
        assert LEDGER == [("b", 5)]
        raise RuntimeError("later")
    assert "clean" in "".join(failure.value.__notes__)
    assert LEDGER == []


def test_arguments_are_repaired_after_a_refusal(kit, tools):
    """HEAL: a refusal leaves nothing behind, so repaired arguments may be tried; the gate sees them too."""
    with kit.transaction("t") as saga:
        less = Fallback(repair=lambda kwargs, problem: {**kwargs, "amount": 100}, on=("refused",))
        still = Fallback(repair=lambda kwargs, problem: {**kwargs, "amount": 10**9})
        kwargs = {"bank": "a", "amount": 500}
        assert SelfHealedProposal(tool=tools["charge"], kwargs=kwargs, fallbacks=[still, less]).run() == "a:100"
        assert len(saga.steps()) == 1


def test_nothing_is_tried_after_a_call_in_doubt(kit, tools):
    """HEAL: an attempt that may have had an effect is not followed by another one."""
    with pytest.raises(HealingFailed), kit.transaction("t"):
        again = Fallback(tool=tools["charge"])
        proposal = SelfHealedProposal(
            tool=tools["charge_and_hang_up"], kwargs={"bank": "a", "amount": 5}, fallbacks=[again]
        )
        with pytest.raises(HealingFailed) as failure:
            proposal.run()
        assert [problem.kind for problem in failure.value.problems] == ["in_doubt"]
        assert isinstance(failure.value.__cause__, TimeoutError)
        assert LEDGER == [("a", 5)]
        raise failure.value
    assert LEDGER == []


def test_when_nothing_helps_the_last_error_is_the_cause(kit, tools):
    """HEAL: the failure names every attempt."""
    DOWN.update({"a", "b"})
    with kit.transaction("t"):
        fallback = Fallback(repair=lambda kwargs, problem: {**kwargs, "bank": "b"})
        with pytest.raises(HealingFailed, match=r"1: failed, ValueError: a is down; 2: failed, ValueError: b is down"):
            SelfHealedProposal(tool=tools["charge"], kwargs={"bank": "a", "amount": 5}, fallbacks=[fallback]).run()
        broken = Fallback(repair=lambda kwargs, problem: kwargs["no such"])
        with pytest.raises(HealingFailed, match="KeyError"):
            SelfHealedProposal(tool=tools["charge"], kwargs={"bank": "a", "amount": 6}, fallbacks=[broken]).run()
    assert LEDGER == []


def test_outside_a_saga_nothing_is_healed(kit, tools):
    """HEAL: without a log nobody knows what a failed attempt left."""
    with pytest.raises(NoSaga):
        SelfHealedProposal(tool=tools["charge"], kwargs={"bank": "a", "amount": 5}).run()
    with pytest.raises(NoSaga):
        SelfHealingLoop(propose=lambda problems: 1, run_call=print, sleep=print).run()
    assert LEDGER == []


def test_async_tools_are_healed_too(kit, tools):
    """HEAL: one logic for sync and async."""
    DOWN.add("a")

    async def repaired(problems):
        await asyncio.sleep(0)
        return "b" if problems else "a"

    async def main():
        async with kit.transaction("t"):
            fallback = Fallback(repair=lambda kwargs, problem: {**kwargs, "bank": "b"})
            kwargs = {"bank": "a", "amount": 5}
            first = await SelfHealedProposal(tool=tools["acharge"], kwargs=kwargs, fallbacks=[fallback]).arun()
            loop = SelfHealingLoop(
                propose=repaired, run_call=lambda bank: tools["acharge"](bank, 6), sleep=asyncio.sleep, backoff_s=0
            )
            return first, await loop.arun()

    assert asyncio.run(main()) == ("b:5", "b:6")


def test_an_async_tool_in_a_sync_run_is_refused(kit, tools):
    """HEAL: an awaitable that nobody awaits is an error, and nothing ran."""
    with kit.transaction("t"), pytest.raises(DeclarationError, match="arun"):
        SelfHealedProposal(tool=tools["acharge"], kwargs={"bank": "a", "amount": 5}).run()
    assert LEDGER == []


class Model:
    """A scripted model: proposes what a test states, and keeps what it was told."""

    def __init__(self, *calls):
        self.calls = list(calls)
        self.told = []

    def __call__(self, problems):
        self.told.append(problems)
        return self.calls[len(self.told) - 1]


def loop_of(tools, model, naps=None, **options):
    return SelfHealingLoop(
        propose=model,
        run_call=lambda call: tools[call[0]](**call[1]),
        sleep=(naps if naps is not None else []).append,
        **options,
    )


def propose(bank, amount, tool="charge"):
    return (tool, {"bank": bank, "amount": amount})


def test_the_model_is_told_why_and_proposes_again(kit, tools):
    """HEAL: a refusal and a failure reach the model with their reasons."""
    DOWN.add("a")
    model = Model(propose("a", 500), propose("a", 50), propose("b", 50))
    with kit.transaction("t"):
        assert loop_of(tools, model).run() == "b:50"
    refusal, failure = model.told[-1]
    assert (refusal.kind, failure.kind) == ("refused", "failed")
    assert "outside 0 to 100" in refusal.reason
    assert "a is down" in failure.reason
    assert isinstance(refusal.error, GateRefused)


def test_a_refused_call_is_not_made_again(kit, tools):
    """HEAL: the very call that was refused is told to be repeated, and costs an attempt."""
    model = Model(propose("a", 500), propose("a", 500), propose("a", 5))
    with kit.transaction("t") as saga:
        assert loop_of(tools, model).run() == "a:5"
        assert len(saga.steps()) == 1
    assert [problem.kind for problem in model.told[-1]] == ["refused", "repeated"]


def test_attempts_are_bounded_and_escalate(kit, tools):
    """HEAL: after the last attempt somebody else takes over, or the loop fails."""
    DOWN.add("a")
    calls = [propose("a", number) for number in range(10)]
    with kit.transaction("t"):
        seen = []
        model = Model(*calls)
        assert loop_of(tools, model, escalate=lambda problems: seen.append(problems) or "a human").run() == "a human"
        assert (len(model.told), len(seen[0])) == (3, 3)
        with pytest.raises(HealingFailed, match="none of 2 attempts succeeded"):
            loop_of(tools, Model(*calls[4:]), attempts_max=2).run()
        with pytest.raises(HealingFailed, match="the model gave up"):
            loop_of(tools, Model(None)).run()


def test_the_wait_doubles_up_to_a_cap_and_only_after_failures(kit, tools, moved_clock):
    """HEAL: capped exponential backoff; a refusal is not waited for, nor the end."""
    DOWN.add("a")
    naps = []
    model = Model(propose("a", 500), *[propose("a", number) for number in range(5)])
    with kit.transaction("t"), pytest.raises(HealingFailed):
        loop_of(tools, model, naps, attempts_max=6, backoff_s=1, backoff_s_max=5).run()
    assert naps == [2, 4, 5, 5]


def test_the_loop_stops_at_a_call_in_doubt(kit, tools):
    """HEAL: a model is not asked to try again what may have happened."""
    model = Model(propose("a", 5, "charge_and_hang_up"), propose("a", 5))
    with pytest.raises(HealingFailed, match="may have had an effect"), kit.transaction("t"):
        loop_of(tools, model).run()
    assert len(model.told) == 1
    assert LEDGER == []


def test_what_is_no_exception_leaves_at_once(kit, tools):
    """HEAL: cancellation, exit and suspension are not healed."""

    def leave(problems):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), kit.transaction("t"):
        loop_of(tools, leave).run()


def test_a_refusal_by_any_policy_is_fed_back(kit, tools):
    """HEAL: transaction policies count too."""

    class No:
        def decide(self, call, saga):
            return Refuse("not today")

    with kit.transaction("t", policies=[No()]), pytest.raises(HealingFailed, match="not today"):
        loop_of(tools, Model(propose("a", 5)), attempts_max=1).run()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SelfHealedProposal(tool=charge, fallbacks=[Fallback()]),
        lambda: SelfHealedProposal(tool=charge, fallbacks=[Fallback(tool=charge)]),
        lambda: SelfHealedProposal(tool=charge, fallbacks=[Fallback(tool=print, on=("in_doubt",))]),
        lambda: SelfHealedProposal(tool=charge, fallbacks=[Fallback(tool=print)] * 20),
        lambda: SelfHealingLoop(propose=print, run_call=print, sleep=print, attempts_max=0),
        lambda: SelfHealingLoop(propose=print, run_call=print, sleep=print, attempts_max=1000),
        lambda: SelfHealingLoop(propose=print, run_call=print, sleep=print, backoff_s=-1),
        lambda: SelfHealingLoop(propose=print, run_call=print, sleep=print, backoff_s=50),
    ],
    ids=range(8),
)
def test_what_has_no_bounds_is_refused_where_it_is_written(make):
    """HEAL: repeating the same call, falling back after doubt and endless loops are mistakes."""
    with pytest.raises(DeclarationError):
        make()


def test_facts_can_be_given():
    """HEAL: the saga may be passed, for callers that hold it."""
    loop = SelfHealingLoop(propose=lambda problems: 5, run_call=lambda call: call + 1, sleep=MovedClock)
    assert loop.run(Facts()) == 6
