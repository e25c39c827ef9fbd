"""Crews and agents inside a saga, on real CrewAI."""

import asyncio
import threading

import pytest
from crewai import Crew, Task
from crewai.events import ToolUsageFinishedEvent, crewai_event_bus
from crewai.hooks import clear_all_tool_call_hooks
from crewai.tools import tool
from crewai.tools.tool_failure import ToolExecutionFailedError, ToolFailurePolicy
from crewai_scripted import make_agent, make_crew, model, told
from crewai_shop import Courier, acharge, boom, charge, look, new, refund

from agent_saga import Ask, Refuse, SagaRolledBack, SagaSuspended, spi
from agent_saga.errors import UndeclaredTool, UsageError
from agent_saga_crewai import protect

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "react"])


def run_sync(crew):
    return crew.kickoff()


def run_in_thread(crew):
    return asyncio.run(crew.kickoff_async())


def run_async(crew):
    return asyncio.run(crew.akickoff())


def run_stream(crew):
    crew.stream = True
    streaming = crew.kickoff()
    list(streaming)
    return streaming.result


class Say:
    """A policy that says one thing."""

    def __init__(self, decision):
        self.decision = decision

    def decide(self, call, saga):
        return self.decision


# -- every call is a step -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("run", [run_sync, run_in_thread, run_async, run_stream])
def test_calls_are_steps(kit, shop, records, run, native):
    """Calls of functions, async functions and classes are steps, in every way to run a crew."""
    crew, llm = make_crew(
        [charge, acharge, Courier()], [("charge", "a")], [("acharge", "b")], [("courier", "c")], native=native
    )
    protect(crew, kit)
    with kit.transaction("sell") as saga:
        run(crew)
    assert [(one["tool"], one["adapter"]) for one in records("intent")] == [
        ("charge", "crewai"),
        ("acharge", "crewai"),
        ("courier", "crewai"),
    ]
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "b", "c"])
    assert "{'id': 'c'}" in str(told(llm))


@BOTH
def test_without_a_saga_a_tool_is_bare(kit, shop, records, native, tmp_path):
    """Outside of a saga a protected crew does, and is told, what it would without; there is no log."""
    seen = []
    for protected in (False, True):
        crew, llm = make_crew([charge, boom], [("charge", "a")], [("boom", "b")], native=native)
        shop.raises["boom"] = ValueError("no")
        if protected:
            protect(crew, kit)
        crew.kickoff()
        seen.append([message["content"] for message in llm.heard[-1]])
    assert seen[0] == seen[1]
    assert shop.events == [("charge", "a")] * 2
    assert not (tmp_path / "agent-saga.db").exists()


@BOTH
def test_what_the_model_sees_is_equal(kit, shop, native):
    """Names, descriptions and schemas are the same with and without, and hide the parameter for the key."""

    @tool("charge")
    def keyed(thing: str, amount: int = 3, idempotency_key: str = "") -> dict:
        """Charge for a thing."""
        return new("charge", idempotency_key)

    @tool("charge")
    def plain(thing: str, amount: int = 3) -> dict:
        """Charge for a thing."""

    @tool("courier")
    def courier(thing: str) -> dict:
        """Send a thing."""

    shown = []
    for tools, protected in (([plain, courier], False), ([keyed, Courier()], True)):
        crew, llm = make_crew(tools, native=native)
        if protected:
            protect(crew, kit)
            assert [type(one) for one in crew.agents[0].tools] == [type(one) for one in tools]
        crew.kickoff()
        shown.append((llm.shown, [message["content"] for message in llm.heard[0]]))
    assert str(shown[0]).replace("CourierSchema", "Courier") == str(shown[1]).replace("CourierSchema", "Courier")
    assert "idempotency_key" not in str(shown)


@BOTH
def test_the_key_reaches_the_tool(kit, shop, records, native):
    """A tool that takes `idempotency_key` receives the step's key; who gives one outside of a saga is heard."""

    @tool("charge")
    def keyed(thing: str, idempotency_key: str = "none") -> dict:
        """Charge for a thing."""
        return new("charge", idempotency_key)

    crew, _ = make_crew([keyed], [("charge", "a")], native=native)
    protect(crew, kit)
    with kit.transaction("sell"):
        crew.kickoff()
    assert shop.events == [("charge", records("intent")[0]["key"])]
    mine = protect([keyed], kit)[0]
    assert (mine.run(thing="a"), mine.run(thing="a", idempotency_key="k")) == ({"id": "none"}, {"id": "k"})


def test_protect_takes_and_returns_the_same_kinds(kit, shop):
    """Lists and tools are copied, crews and agents changed in place; protecting again changes nothing."""
    crew, _ = make_crew([charge])
    assert protect(protect(crew, kit), kit) is crew
    assert crew.agents[0].tools[0] is crew.tasks[0].tools[0]
    assert charge.func is not crew.agents[0].tools[0].func
    (one,) = protect((charge,), kit)
    assert protect([one], kit) == [one]
    assert protect(one, kit) is one
    assert type(one) is type(charge)
    agent = make_agent([charge], model())
    assert protect(agent, kit) is agent
    with pytest.raises(UsageError, match="a crew, an agent, a flow"):
        protect("crew", kit)


def test_undeclared_tools_are_listed_at_once(kit, shop):
    """`protect` names every undeclared tool of all agents and tasks, as the model calls them."""

    @tool("Send a fax")
    def fax(thing: str) -> str:
        """Send a fax."""

    @tool
    def wire(thing: str) -> str:
        """Wire money."""

    clerk = make_agent([charge, fax], model())
    crew = Crew(agents=[clerk], tasks=[Task(description="d", expected_output="e", agent=clerk, tools=[wire])])
    with pytest.raises(UndeclaredTool) as caught:
        protect(crew, kit)
    assert "kit.declare('send_a_fax'" in str(caught.value)
    assert "kit.declare('wire'" in str(caught.value)


@BOTH
@pytest.mark.parametrize("late", ["agent", "unprotected"])
def test_tools_added_later_are_covered(kit, shop, records, native, late):
    """A tool that `protect` has not seen is a step too."""
    crew, _ = make_crew([look], [("charge", "a")], [("courier", "b")], native=native)
    protect([look] if late == "unprotected" else crew, kit)
    crew.agents[0].tools += [charge, Courier()]
    with kit.transaction("sell") as saga:
        crew.kickoff()
    assert [one["tool"] for one in records("intent")] == ["charge", "courier"]
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "b"])


@BOTH
def test_an_undeclared_tool_added_later_is_refused(kit, shop, native):
    """It does not run; the model is told why."""
    ran = []

    @tool
    def wire(thing: str) -> str:
        """Wire money."""
        ran.append(thing)

    crew, llm = make_crew([charge], [("wire", "a")], native=native)
    protect(crew, kit)
    crew.agents[0].tools.append(wire)
    with kit.transaction("sell"):
        crew.kickoff()
    assert ran == []
    assert "kit.declare('wire'" in str(told(llm))


def test_hooks_that_somebody_cleared_come_back(kit, shop, records):
    """`protect` puts the hooks in place again."""
    protect([charge], kit)
    clear_all_tool_call_hooks()
    crew, _ = make_crew([charge], [("charge", "a")])
    protect(crew, kit)
    with kit.transaction("sell"):
        crew.kickoff()
    assert records("intent")[0]["call_id"] == "c1"


def test_a_tool_that_cannot_be_guarded_does_not_run(kit, shop):
    """CrewAI goes on when a hook fails; ours stops the call, and says why."""
    kit.declare("wire", effect="compensable", compensate=lambda call: None, identity=["no_such_parameter"])

    @tool
    def wire(thing: str) -> str:
        """Wire money."""
        shop.happened("wire", thing)

    crew, llm = make_crew([charge], [("wire", "a")])
    protect(crew, kit)
    crew.agents[0].tools.append(wire)
    with kit.transaction("sell"):
        crew.kickoff()
    assert shop.events == []
    assert "no_such_parameter" in told(llm)["c1"]


def test_names_with_spaces(kit, shop, records):
    """A tool is declared by the name that the model sees."""

    @tool("Charge a card")
    def card(thing: str) -> dict:
        """Charge a card."""
        return new("card", thing)

    crew, _ = make_crew([card], [("charge_a_card", "a")])
    with kit.transaction("sell"):
        protect(crew, kit).kickoff()
    assert [one["tool"] for one in records("intent")] == ["charge_a_card"]


def test_invalid_arguments_are_no_step(kit, shop, records):
    """What CrewAI's validation rejects never becomes an intent."""
    crew, llm = make_crew([charge], [("charge", {"no": "string"})], [("charge", "a")])
    with kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert [one["call_id"] for one in records("intent")] == ["c2"]
    assert "validation failed" in told(llm)["c1"]
    assert saga.report.outcome == "committed"


def test_repeated_call_ids(kit, shop, records):
    """A model that counts its calls anew in each answer makes new calls; ids are unique in their scope."""
    crew, llm = make_crew([charge], [("charge", "a"), ("charge", "a")], [("charge", "a")])
    llm.turns[1] = [("charge", {"thing": "a"}, "c1")]
    with kit.transaction("sell"):
        protect(crew, kit).kickoff()
    ids = [(one["call_id"], one["call_scope"]) for one in records("intent")]
    assert sorted(known for known, _ in ids) == ["c1", "c1#2", "c2"]
    assert len({scope for _, scope in ids}) == 1
    assert shop.standing == ["a", "a", "a"]


# -- failures -----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", ["boom", "courier"])
def test_swallowed_errors_roll_back(kit, shop, native, name):
    """CrewAI tells a tool's exception to the model; the saga does not commit, and the body runs once."""
    ran = []

    class Counted(Courier):
        def _run(self, thing: str) -> dict:
            ran.append(thing)
            return super()._run(thing)

    @tool("boom")
    def counted(thing: str) -> dict:
        """Fail."""
        ran.append(thing)
        return boom.func(thing)

    shop.raises[name] = ValueError("sold out")
    crew, llm = make_crew([charge, counted, Counted()], [("charge", "a")], [(name, "b")], native=native)
    with pytest.raises(SagaRolledBack, match=name), kit.transaction("sell"):
        assert "done" in protect(crew, kit).kickoff().raw
    assert "sold out" in str(told(llm))
    assert (ran, shop.standing) == (["b"], [])


@BOTH
def test_a_repaired_failure_commits(kit, shop, native):
    """An equal call that succeeds resolves a failure."""
    failed = []

    @tool("boom")
    def once(thing: str) -> dict:
        """Fail once."""
        failed.append(thing)
        if len(failed) == 1:
            raise ValueError("sold out")
        return new("boom", thing)

    crew, _ = make_crew([charge, once], [("charge", "a")], [("boom", "b")], [("boom", "b")], native=native)
    with kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "b"])


@BOTH
def test_the_policy_raise_stops_the_run(kit, shop, native):
    """`ToolFailurePolicy.RAISE` leaves the scope as CrewAI's own error, and rolls back."""
    shop.raises["boom"] = ValueError("sold out")
    options = {"tool_failure_policy": ToolFailurePolicy.RAISE, "max_retry_limit": 0}
    crew, _ = make_crew([charge, boom], [("charge", "a")], [("boom", "b")], native=native, agent=options)
    with pytest.raises(ToolExecutionFailedError, match="sold out"), kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.clean, shop.standing) == (True, [])


@BOTH
def test_a_refusal_is_a_tool_error(kit, shop, native):
    """A refused call does not run; the model reads a tool error with the reason; the saga commits."""
    crew, llm = make_crew([charge], [("charge", "a")], native=native)
    with kit.transaction("sell", policies=[Say(Refuse("not on a Sunday"))]) as saga:
        result = protect(crew, kit).kickoff()
    assert "not on a Sunday" in str(told(llm))
    assert (saga.report.outcome, shop.events) == ("committed", [])
    assert [failure.tool_name for failure in result.tasks_output[0].tool_failures] == ["charge"]


def test_a_failing_sibling(kit, shop):
    """Calls of one turn run at the same time; when one fails, what the other did is taken back."""
    both = threading.Barrier(2, timeout=20)

    @tool("courier")
    def slow(thing: str) -> dict:
        """Send a thing."""
        both.wait()
        return new("courier", thing)

    @tool("boom")
    def bad(thing: str) -> dict:
        """Fail."""
        both.wait()
        raise ValueError("sold out")

    crew, llm = make_crew([slow, bad], [("courier", "a"), ("boom", "b")])
    with pytest.raises(SagaRolledBack), kit.transaction("sell"):
        protect(crew, kit).kickoff()
    assert (shop.events, sorted(told(llm))) == ([("courier", "a"), ("refund", "a")], ["c1", "c2"])


# -- again --------------------------------------------------------------------------------------------------------


@BOTH
def test_a_model_that_fails_repeats_the_agent(kit, shop, native):
    """`max_retry_limit` begins the agent's work anew; its calls are answered from the log."""
    turns = [[("charge", "a")], RuntimeError("500"), [("charge", "a")], RuntimeError("500"), [("charge", "a")]]
    crew, llm = make_crew([charge], *turns, native=native)
    with kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
    assert "{'id': 'a'}" in str(told(llm))


def test_two_equal_calls_and_a_retry(kit, shop):
    """A repeated unit of work is matched by occurrence: two equal calls stay two."""
    rejected = []

    def guardrail(output):
        rejected.append(output)
        return (len(rejected) > 1, output.raw if len(rejected) > 1 else "again")

    turn = [("charge", "a"), ("charge", "a")]
    crew, _ = make_crew([charge], turn, [], [*turn, ("charge", "a")], task={"guardrail": guardrail})
    with kit.transaction("sell"):
        protect(crew, kit).kickoff()
    assert shop.standing == ["a", "a", "a"]


def test_an_agent_alone(kit, shop):
    """`Agent.kickoff` is covered, its guardrail's retry included; a second kickoff is new work."""
    rejected = []

    def guardrail(output):
        rejected.append(output)
        return (len(rejected) != 1, output.raw if len(rejected) != 1 else "again")

    turns = [[("charge", "a")], [], [("charge", "a")], [], [("charge", "a")]]
    agent = protect(make_agent([charge], model(*turns), guardrail=guardrail), kit)
    with kit.transaction("sell"):
        agent.kickoff("Sell.")
        assert shop.standing == ["a"]
        agent.kickoff("Sell.")
    assert shop.standing == ["a", "a"]


def test_kickoff_for_each(kit, shop):
    """Each input is work of its own, in copies of the crew."""
    crew, _ = make_crew([charge, Courier()], [("charge", "a")], [("courier", "b")])
    with kit.transaction("sell"):
        protect(crew, kit).kickoff_for_each([{"n": 1}, {"n": 2}])
    assert shop.standing == ["a", "b", "a", "b"]


def test_a_delegate_that_is_asked_again(kit, shop, records):
    """Delegation is no step, the coworker's calls are; they run once when the coworker begins anew."""
    boss = make_agent([], model(), role="boss", allow_delegation=True)
    work = {"task": "sell", "context": "a", "coworker": "clerk"}
    boss.llm.turns = [[("delegate_work_to_coworker", work, "d1")], []]
    clerk = make_agent([charge], model([("charge", "a")], RuntimeError("500"), [("charge", "a")]))
    crew = Crew(agents=[boss, clerk], tasks=[Task(description="d", expected_output="e", agent=boss)])
    with kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert [one["tool"] for one in records("intent")] == ["charge"]
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


@BOTH
def test_a_resumed_saga_replays(kit, shop, native):
    """A crew that begins again in a resumed saga, as another process would, goes on behind what stands."""
    with pytest.raises(SagaSuspended), kit.transaction("sell", key="o1"):
        protect(make_crew([charge, look], [("charge", "a")], native=native)[0], kit).kickoff()
        raise SagaSuspended("later")
    crew, llm = make_crew([charge, look], [("charge", "a")], [("charge", "b")], native=native)
    with kit.transaction("sell", key="o1") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "b"])
    assert "{'id': 'a'}" in str(told(llm))


@BOTH
def test_an_approval_suspends_and_is_used_once(kit, shop, native):
    """A crew cannot pause: SagaSuspended leaves kickoff(). After the word the same run makes the call, once."""
    ask = {"key": "o1", "policies": [Say(Ask("sure?", suspend=True))]}
    with pytest.raises(SagaSuspended) as caught, kit.transaction("sell", **ask) as saga:
        protect(make_crew([charge], [("charge", "a")], native=native)[0], kit).kickoff()
    assert (saga.report.outcome, shop.events) == ("suspended", [])
    crew, _ = make_crew([charge], [("charge", "a")], native=native)
    with kit.transaction("sell", **ask) as saga:
        spi.decide_approval(caught.value.approval, approved=True, by="ann")
        protect(crew, kit).kickoff()
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


# -- contexts and traces ------------------------------------------------------------------------------------------


def test_a_lost_context_fails_closed(kit, shop):
    """In a thread that knows nothing of the saga, a tool that requires one does not run."""
    kit.declare("charge", effect="compensable", compensate=lambda call: None, requires_saga=True)
    crew, llm = make_crew([charge], [("charge", "a")])
    protect(crew, kit)
    with kit.transaction("sell"):
        thread = threading.Thread(target=crew.kickoff)
        thread.start()
        thread.join(60)
    assert shop.events == []
    assert "must run inside a saga" in told(llm)["c1"]


def test_events_carry_the_saga(kit, shop):
    """Events of tool calls have the saga's id in their metadata."""
    found = []
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(ToolUsageFinishedEvent)(lambda source, event: found.append(event))
        crew, _ = make_crew([charge], [("charge", "a")])
        with kit.transaction("sell") as saga:
            protect(crew, kit).kickoff()
        crewai_event_bus.flush()
    assert [event.fingerprint_metadata for event in found] == [{"saga_id": saga.id}]


def test_a_wrapped_tool_is_one_step(kit, shop, records):
    """A tool whose function is wrapped by the kit is one effect, so it is one step."""

    @kit.tool(effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    def wire(thing: str) -> dict:
        """Wire money."""
        return new("wire", thing)

    crew, _ = make_crew([tool(wire)], [("wire", "a")])
    with kit.transaction("sell") as saga:
        protect(crew, kit).kickoff()
    assert ([one["tool"] for one in records("intent")], shop.standing) == (["wire"], ["a"])
    assert saga.report.outcome == "committed"


def test_events_do_not_matter_outside(kit, shop):
    """Outside of a saga events stay as they are."""
    found = []
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(ToolUsageFinishedEvent)(lambda source, event: found.append(event.fingerprint_metadata))
        protect(make_crew([charge], [("charge", "a")])[0], kit).kickoff()
        crewai_event_bus.flush()
    assert found == [None]
