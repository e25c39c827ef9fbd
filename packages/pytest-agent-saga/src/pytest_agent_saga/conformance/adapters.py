"""The contract of an adapter, as tests on the real framework. Rule ids: AD-n."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

from agent_saga import Ask, Landed, NotLanded, RollbackIncomplete, SagaSuspended
from agent_saga.errors import SagaRolledBack, UndeclaredTool
from pytest_agent_saga.conformance.adapter_case import AdapterCase, Way, Work, wrapped_tool
from pytest_agent_saga.conformance.driver import Call, Capability
from pytest_agent_saga.conformance.suite import Suite, Variant, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_agent_saga.conformance.driver import AdapterDriver
    from pytest_agent_saga.conformance.suite import Rule

C = Capability
ANN = {"customer": "ann", "amount": 42}
BEN = {"customer": "ben", "amount": 7}
_WAYS = {
    Way("sync", "sync"): {C.SYNC},
    Way("async", "async"): {C.ASYNC},
    Way("async", "sync"): {C.THREADED},
    Way("stream", "async"): {C.STREAMING, C.ASYNC},
    Way("stream", "sync"): {C.STREAMING, C.THREADED},
}


def pay(number: int = 1, arguments: Mapping[str, Any] = ANN, tool: str = "pay") -> Call:
    """Return a call."""
    return Call(tool, arguments, f"call-{number}")


class AskAlways:
    """A policy: somebody must be asked, and the saga waits for it."""

    def decide(self, call: object, saga: object) -> Ask:
        """See Policy.decide."""
        return Ask("is this right?", suspend=True)


class RefuseAlways:
    """A policy: no."""

    def decide(self, call: object, saga: object) -> Any:
        """See Policy.decide."""
        from agent_saga import Refuse

        return Refuse("not on a Sunday")


class AdapterSuite(Suite[AdapterCase]):
    """Subclass it, return your driver from `driver`, and run pytest. See `docs/conformance.md`.

    What each rule asks is tried in every way in which the framework can run an agent.
    """

    def driver(self, folder: Path) -> AdapterDriver:
        """Return a new driver; what it keeps (checkpoints) goes into `folder`."""
        raise NotImplementedError

    def declared(self) -> frozenset[str]:
        """See Suite.declared."""
        from pathlib import Path

        return frozenset(self.driver(Path()).capabilities)

    def optional(self) -> frozenset[str]:
        """See Suite.optional. One of the ways to run, and one of the ways to treat errors, is needed all the same."""
        return frozenset(Capability)

    def gaps(self) -> Mapping[str, str]:
        """See Suite.gaps."""
        from pathlib import Path

        return {str(name): why for name, why in self.driver(Path()).gaps.items()}

    def ways(self, of: Rule) -> list[Variant]:
        """See Suite.ways."""
        declared = self.declared()
        ways = [way for way, needs in _WAYS.items() if needs <= declared]
        if of.id == "AD-15":  # Only tasks can be cancelled.
            ways = [way for way in ways if way.run != "sync"]
        return [Variant(str(way), way) for way in ways]

    def _unexplained(self) -> Iterator[str]:
        yield from super()._unexplained()
        declared = self.declared()
        if not declared & {C.SYNC, C.ASYNC}:
            yield "an adapter that runs neither sync nor async runs nothing"
        if not declared & {C.RAISES, C.SWALLOWS}:
            yield "an exception of a tool either leaves the run or is told to the model"

    @contextlib.contextmanager
    def case(self, folder: Path, variant: Variant) -> Iterator[AdapterCase]:
        """See Suite.case."""
        made = AdapterCase(self.driver(folder), folder, variant.value, swallow=C.SWALLOWS in self.declared())
        try:
            yield made
        finally:
            made.close()

    # -- every call is a step ---------------------------------------------------------------------------------------

    @rule()
    def test_intent_before_body(self, case: AdapterCase) -> None:
        """AD-01: when a tool's body runs, its intent, with its arguments, is in the log already."""
        found: list[dict[str, Any]] = []

        def act(customer: str, amount: int) -> str:
            found.extend(case.records("intent", "pay"))
            return "paid"

        outcome = case.transact(Work(case.agent(case.tool("pay", act)), [[pay()]]))
        assert outcome.committed, outcome.error
        assert [{name: one["values"][f"kwargs.{name}"] for name in ANN} for one in found] == [ANN]

    @rule()
    def test_schema_is_equal(self, case: AdapterCase) -> None:
        """AD-02: the model is shown the same names, descriptions and parameters with the adapter and without."""
        body = case.tool("pay")
        before, after = case.agent(body, bare=True).schemas(), case.agent(body).schemas()
        assert before == after
        assert "pay" in json.dumps(after, default=str)

    @rule()
    def test_every_call_is_covered(self, case: AdapterCase) -> None:
        """AD-03: each call of each tool is one step, with its result; the model sees what it would see without."""
        bodies = [case.tool("pay"), case.tool("ship"), case.tool("look", lambda customer, amount: "seen")]
        turns = [[pay()], [pay(2, BEN, "ship")], [pay(3, ANN, "look")]]
        bare = case.alone(Work(case.agent(*bodies, bare=True), turns))
        case.world.effects.clear()
        outcome = case.transact(Work(case.agent(*bodies), turns))
        assert outcome.committed, outcome.error
        assert outcome.run == bare
        assert [one["tool"] for one in case.records("intent")] == ["pay", "ship", "look"]
        assert case.world.effects == [("pay", "ann", 42), ("ship", "ben", 7)]

    @rule(C.DYNAMIC)
    def test_tools_added_later_are_covered(self, case: AdapterCase) -> None:
        """AD-04: a tool that is added to a protected agent is covered like the others."""
        agent = case.agent(case.tool("pay"))
        agent.add(case.tool("ship"))
        assert case.transact(Work(agent, [[pay()], [pay(2, BEN, "ship")]])).committed
        assert [one["tool"] for one in case.records("intent")] == ["pay", "ship"]

    @rule()
    def test_undeclared_tools_are_listed(self, case: AdapterCase) -> None:
        """AD-05: undeclared tools are refused all at once, by name, before anything runs."""
        bodies = [case.tool("pay"), case.body("ship"), case.body("tell")]
        message = ""
        try:
            error = case.transact(Work(case.agent(*bodies), [[pay()], [pay(2, BEN, "ship")]])).error
            message = str(error) if isinstance(error, UndeclaredTool) else f"not an UndeclaredTool: {error!r}"
        except UndeclaredTool as raised:
            message = str(raised)
        assert all(f"kit.declare({name!r}" in message for name in ("ship", "tell")), message
        assert case.world.calls == []

    @rule()
    def test_ids_are_recorded(self, case: AdapterCase) -> None:
        """AD-06: the adapter's name and the framework's call id, with the scope in which it is unique, are recorded."""
        assert case.transact(Work(case.agent(case.tool("pay")), [[pay(7)]])).committed
        (intent,) = case.records("intent")
        assert (intent["adapter"], intent["call_id"]) == (case.driver.adapter, "call-7")
        assert intent.get("call_scope"), "a call id without a scope is unique nowhere"

    @rule()
    def test_protecting_twice(self, case: AdapterCase) -> None:
        """AD-07: protecting a thing twice changes nothing: one step, one effect."""
        assert case.transact(Work(case.agent(case.tool("pay"), protect=2), [[pay()]])).committed
        assert (len(case.records("intent")), case.world.count("pay")) == (1, 1)

    @rule()
    def test_nested_guards_join(self, case: AdapterCase) -> None:
        """AD-08: a tool that the kit wraps and the adapter guards is one effect, so it is one step."""
        assert case.transact(Work(case.agent(wrapped_tool(case, "pay")), [[pay()]])).committed
        assert (len(case.records("intent")), case.world.count("pay")) == (1, 1)

    @rule(C.VALIDATES)
    def test_invalid_arguments_never_become_intents(self, case: AdapterCase) -> None:
        """AD-09: what the framework's validation rejects is no step; a valid call afterwards is one."""
        agent = case.agent(case.tool("pay"))
        outcome = case.transact(Work(agent, [[pay(1, {"customer": "ann"})], [pay(2)]]))
        expected = ["call-2"] if outcome.committed else []
        assert [one["call_id"] for one in case.records("intent")] == expected, outcome.error
        assert case.world.calls == ["pay"] * outcome.committed

    # -- errors -------------------------------------------------------------------------------------------------

    @rule(C.RAISES)
    def test_an_exception_that_leaves_rolls_back(self, case: AdapterCase) -> None:
        """AD-10: an exception that leaves the run rolls the saga back, clean, and is the tool's own."""
        bodies = [case.tool("pay"), case.tool("ship", _fails)]
        outcome = case.transact(Work(case.agent(*bodies, swallow=False), [[pay()], [pay(2, BEN, "ship")]]))
        assert case.world.effects == []
        assert outcome.report is not None
        assert outcome.report.clean
        assert _caused_by(outcome.error, OutOfStock), repr(outcome.error)

    @rule(C.SWALLOWS)
    def test_a_swallowed_exception_does_not_commit(self, case: AdapterCase) -> None:
        """AD-11: an exception that the framework tells to the model counts: the saga rolls back, and says why."""
        bodies = [case.tool("pay"), case.tool("ship", _fails)]
        outcome = case.transact(Work(case.agent(*bodies, swallow=True), [[pay()], [pay(2, BEN, "ship")]]))
        assert "out of stock" in outcome.run.of("call-2").text
        assert type(outcome.error) is SagaRolledBack, repr(outcome.error)
        assert "ship" in str(outcome.error)
        assert case.world.effects == []

    @rule(C.SWALLOWS)
    def test_a_repaired_failure_commits(self, case: AdapterCase) -> None:
        """AD-12: a failure that the model repairs with an equal call does not roll back the world."""
        done: list[int] = []

        def act(customer: str, amount: int) -> str:
            done.append(amount)
            if len(done) == 1:
                raise OutOfStock("out of stock")
            case.world.do("ship", customer, amount)
            return "shipped"

        bodies = [case.tool("pay"), case.tool("ship", act)]
        turns = [[pay()], [pay(2, BEN, "ship")], [pay(3, BEN, "ship")]]
        outcome = case.transact(Work(case.agent(*bodies, swallow=True), turns))
        assert outcome.committed, outcome.error
        assert case.world.effects == [("pay", "ann", 42), ("ship", "ben", 7)]

    @rule(C.ERROR_RESULTS)
    def test_error_results_count(self, case: AdapterCase) -> None:
        """AD-13: a result that the framework takes for an error is a failure, like an exception."""
        bodies = [case.tool("pay"), case.tool("ship", lambda customer, amount: case.driver.error_result("sold out"))]
        outcome = case.transact(Work(case.agent(*bodies), [[pay()], [pay(2, BEN, "ship")]]))
        assert isinstance(outcome.error, SagaRolledBack), repr(outcome.error)
        assert "sold out" in outcome.run.of("call-2").text
        assert case.world.effects == []

    @rule()
    def test_a_refusal_reaches_the_model(self, case: AdapterCase) -> None:
        """AD-14: a refused call does not run; the model sees a tool error with the reason, always; the saga commits."""
        declared, body = self.declared(), case.tool("pay")
        for swallow in [False] * (C.RAISES in declared) + [True] * (C.SWALLOWS in declared):
            agent = case.agent(body, swallow=swallow)
            outcome = case.transact(Work(agent, [[pay()]]), policies=[RefuseAlways()])
            seen = outcome.run.of("call-1")
            assert seen.is_error
            assert "not on a Sunday" in seen.text
            assert outcome.committed, outcome.error
        assert case.world.calls == []

    @rule()
    def test_cancellation(self, case: AdapterCase) -> None:
        """AD-15: a call that is cancelled in flight is in doubt, and is compensated however late it lands."""
        release = threading.Event()
        late = case.way.body == "sync"  # A thread cannot be stopped: it takes effect when it is released.
        body = case.tool("pay", absent_ok=True, wait=release if late else None, linger=None if late else release)
        outcome = case.cancelled(Work(case.agent(body), [[pay()]]), "pay", release, drain_s=0.05)
        assert _not_kept(outcome), outcome
        states = {one["state"] for one in case.records("outcome", None)}
        assert states <= {"in_doubt"}, states
        case.world.wait_for(lambda: bool(case.world.landed) and case.world.effects == [])
        assert not isinstance(outcome.error, RollbackIncomplete) or case.way.body == "sync"

    @rule()
    def test_timeout(self, case: AdapterCase) -> None:
        """AD-16: a call that its declaration gives up is in doubt; its late answer is recorded and compensated."""
        release = threading.Event()
        body = case.tool("pay", absent_ok=True, wait=release, timeout_s=0.05)
        outcome = case.transact(Work(case.agent(body), [[pay()]]), drain_s=0.05)
        assert _not_kept(outcome), outcome
        assert [one["state"] for one in case.records("outcome")] == ["in_doubt"]
        release.set()
        if case.way.body == "sync":
            case.world.wait_for(lambda: bool(case.records("late_outcome")))
        case.world.wait_for(lambda: case.world.effects == [])

    # -- at the same time -----------------------------------------------------------------------------------------

    @rule(C.PARALLEL)
    def test_a_failing_sibling(self, case: AdapterCase) -> None:
        """AD-17: when one of the calls of a turn fails, what the others did is compensated, also what was in flight."""
        bodies = [case.tool("pay", absent_ok=True), case.tool("ship", _fails), case.tool("tell", absent_ok=True)]
        turn = [pay(), pay(2, BEN, "ship"), pay(3, BEN, "tell")]
        outcome = case.transact(Work(case.agent(*bodies), [turn]))
        assert not outcome.committed
        assert outcome.report is not None
        case.world.wait_for(lambda: case.world.effects == [])

    @rule()
    def test_equal_calls_are_calls(self, case: AdapterCase) -> None:
        """AD-18: calls with equal arguments and different ids, in one turn or in two, are as many effects."""
        outcome = case.transact(Work(case.agent(case.tool("pay")), [[pay(1), pay(2)], [pay(3)]]))
        assert outcome.committed, outcome.error
        assert (len(case.records("intent")), case.world.count("pay")) == (3, 3)

    # -- again --------------------------------------------------------------------------------------------------

    @rule(C.RETRIES)
    def test_a_repeated_turn_runs_effects_once(self, case: AdapterCase) -> None:
        """AD-19: when the framework begins a turn again, calls that succeeded are answered with their results."""

        def act(customer: str, amount: int) -> str:
            if case.world.calls.count("ship") == 1:
                raise OutOfStock("out of stock")
            case.world.do("ship", customer, amount)
            return "shipped"

        bodies = [case.tool("pay"), case.tool("ship", act)]
        agent = case.agent(*bodies, swallow=False, retries=1)
        outcome = case.transact(Work(agent, [[pay(), pay(2, BEN, "ship")]]))
        assert outcome.committed, outcome.error
        assert sorted(case.world.effects) == [("pay", "ann", 42), ("ship", "ben", 7)]
        assert "pay for ann" in outcome.run.of("call-1").text

    @rule(C.RETRIES)
    def test_a_lost_answer_is_not_asked_for_twice(self, case: AdapterCase) -> None:
        """AD-20: a repeated call whose first answer was lost is settled first: here its probe finds the effect."""

        def act(customer: str, amount: int) -> str:
            case.world.do("pay", customer, amount)
            raise TimeoutError("no answer")

        def look(key: str, kwargs: Mapping[str, Any]) -> Landed | NotLanded:
            return Landed("paid") if case.world.count("pay") else NotLanded()

        look.__qualname__ = f"look-{id(case)}"
        body = case.tool("pay", act, probe=_fresh_probe(look))
        outcome = case.transact(Work(case.agent(body, swallow=False, retries=1), [[pay()]]))
        assert outcome.committed, outcome.error
        assert (case.world.count("pay"), case.world.calls) == (1, ["pay"])
        assert "paid" in outcome.run.of("call-1").text

    @rule(C.RESUMES)
    def test_a_resumed_run_runs_effects_once(self, case: AdapterCase) -> None:
        """AD-21: a run that begins again in a resumed saga, elsewhere, replays what stands and goes on from there."""
        works = self._agents(case)
        first = case.transact(Work(next(works), [[pay()]]), leave=SagaSuspended("later"), key="order-1")
        assert first.report is not None
        assert first.report.outcome == "suspended"
        second = case.transact(Work(next(works), [[pay()], [pay(2, BEN, "ship")]]), key="order-1")
        assert second.committed, second.error
        assert case.world.calls == ["pay", "ship"]
        assert "pay for ann" in second.run.of("call-1").text

    @rule(C.RESUMES)
    def test_equal_ids_elsewhere_are_new_calls(self, case: AdapterCase) -> None:
        """AD-22: ids are unique only in their scope: an equal id, with equal arguments, in another thread is new."""
        agent = case.agent(case.tool("pay"))
        outcome = case.transact(Work(agent, [[pay()]]), Work(agent, [[pay()]], thread="thread-2"))
        assert outcome.committed, outcome.error
        assert case.world.count("pay") == 2

    @staticmethod
    def _agents(case: AdapterCase) -> Iterator[Any]:
        """Yield agents that share the log and the driver's own memory, as processes one after another would."""
        while True:
            yield case.agent(case.tool("pay"), case.tool("ship"))
            case.close()
            case.new_kit()

    # -- pauses and control flow ----------------------------------------------------------------------------------

    @rule(C.PAUSES)
    def test_an_approval_pauses_the_run(self, case: AdapterCase) -> None:
        """AD-23: a call that waits for a human pauses the framework's run; the saga is suspended; nothing happened."""
        paused = case.transact(Work(case.agent(case.tool("pay")), [[pay()]]), key="order-1", policies=[AskAlways()])
        assert paused.run.paused
        assert paused.report is not None
        assert paused.report.outcome == "suspended", paused.error
        assert case.world.calls == []

    @rule(C.PAUSES)
    def test_an_approved_call_runs_once(self, case: AdapterCase) -> None:
        """AD-24: the human's word, given through the framework to another agent, lets the call run, once."""
        works = self._agents(case)
        case.transact(Work(next(works), [[pay()]]), key="order-1", policies=[AskAlways()])
        outcome = case.transact(Work(next(works), answer=True), key="order-1", policies=[AskAlways()])
        assert outcome.committed, outcome.error
        assert case.world.calls == ["pay"]
        assert "pay for ann" in outcome.run.of("call-1").text

    @rule(C.PAUSES)
    def test_a_rejected_call_does_not_run(self, case: AdapterCase) -> None:
        """AD-25: a rejected call does not run; the model sees a tool error; the saga commits without it."""
        works = self._agents(case)
        case.transact(Work(next(works), [[pay()]]), key="order-1", policies=[AskAlways()])
        outcome = case.transact(Work(next(works), answer=False), key="order-1", policies=[AskAlways()])
        assert outcome.committed, outcome.error
        assert outcome.run.of("call-1").is_error
        assert case.world.calls == []

    @rule(C.CONTROL_FLOW)
    def test_control_flow_passes(self, case: AdapterCase) -> None:
        """AD-26: an exception that steers the framework does so as without the adapter, and is no failure."""

        def act(customer: str, amount: int) -> str:
            raise case.driver.control_flow()

        body = case.tool("pay", act)
        without = _attempt(case, Work(case.agent(body, bare=True), [[pay()]]))
        outcome = case.transact(Work(case.agent(body), [[pay()]]))
        with_it = outcome.runs[-1] if outcome.runs else type(outcome.error)
        assert without == with_it
        assert outcome.report is not None
        assert outcome.report.outcome in {"suspended", "committed"}, outcome.error

    # -- without a saga -------------------------------------------------------------------------------------------

    @rule()
    def test_without_a_saga_tools_are_bare(self, case: AdapterCase) -> None:
        """AD-27: outside of a saga the run is what it would be without the adapter, and no log is made."""
        body = case.tool("pay")
        without, with_it = (
            case.alone(Work(case.agent(body, bare=bare), [[pay()], [pay(2, BEN)]])) for bare in (True, False)
        )
        assert without == with_it
        assert case.world.calls == ["pay"] * 4
        assert not (case.folder / "log.db").exists()

    @rule()
    def test_a_lost_context_fails_closed(self, case: AdapterCase) -> None:
        """AD-28: in a thread that lost the saga, a tool that requires one is a step of it, or does not run."""
        body = case.tool("pay", requires_saga=True)
        case.in_lost_context(Work(case.agent(body), [[pay()]]))
        assert len(case.world.calls) == len(case.records("intent", "pay"))

    @rule()
    def test_the_key_reaches_the_tool(self, case: AdapterCase) -> None:
        """AD-29: a parameter for the idempotency key is hidden from the model, and receives the step's key."""
        keys: list[str] = []

        def note(customer: str, amount: int, idempotency_key: str = "") -> str:
            """Note something for a customer."""
            keys.append(idempotency_key)
            return "noted"

        async def anote(customer: str, amount: int, idempotency_key: str = "") -> str:
            """Note something for a customer."""
            return note(customer, amount, idempotency_key)

        body = anote if case.way.body == "async" else note
        body.__name__ = body.__qualname__ = "note"
        body.__annotations__ = {"customer": str, "amount": int, "idempotency_key": str, "return": str}
        case.kit.declare("note", effect="irreversible", key_param="idempotency_key")
        agent = case.agent(body)
        assert "idempotency_key" not in json.dumps(agent.schemas(), default=str)
        case.transact(Work(agent, [[pay(tool="note")]]), policies=[], key="order-1")
        assert keys == []  # Irreversible calls ask, and nobody answers here.
        case.kit.declare("note", effect="compensable", key_param="idempotency_key", compensate=_nothing(case))
        outcome = case.transact(Work(case.agent(body), [[pay(tool="note")]]))
        assert outcome.committed, outcome.error
        assert keys == [case.records("intent", "note")[-1]["key"]]


class OutOfStock(Exception):
    """A tool's own error."""


def _fails(customer: str, amount: int) -> str:
    raise OutOfStock("out of stock")


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Tell whether an exception is, or wraps, one of a kind: frameworks wrap what tools raise."""
    while error is not None:
        if isinstance(error, kind):
            return True
        if isinstance(error, BaseExceptionGroup):
            return any(_caused_by(one, kind) for one in error.exceptions)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _not_kept(outcome: Any) -> bool:
    return not outcome.committed or not outcome.report.kept


def _attempt(case: AdapterCase, work: Work) -> Any:
    try:
        return case.alone(work)
    except BaseException as error:  # noqa: BLE001 - compared with what happens under the adapter.
        return type(error)


def _fresh_probe(look: Any) -> Any:
    from agent_saga import probe

    return probe(f"conformance-{id(look)}")(look)


def _nothing(case: AdapterCase) -> Any:
    return case._compensator("note", absent_ok=True)  # noqa: SLF001 - a part of the case.
