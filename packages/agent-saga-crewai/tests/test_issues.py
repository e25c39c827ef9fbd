"""What users of CrewAI reported, as runs inside a saga."""

import pytest
from crewai.tools import tool
from crewai.tools.tool_failure import ToolFailure
from crewai_scripted import make_crew, told
from crewai_shop import Courier, boom, charge, look, probed

from agent_saga import AgentKit, Allow, Ask, Refuse, SagaRolledBack, SagaSuspended
from agent_saga_crewai import protect

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "react"])


class AskFirst:
    """Charges wait for a person."""

    def decide(self, call, saga):
        return Ask("sure?")


@BOTH
def test_crewai_5802_a_guardrail_repeats_payments(kit, shop, native):
    """https://github.com/crewAIInc/crewAI/issues/5802: a rejected task runs again; the payment does not."""
    seen = []

    def guardrail(output):
        seen.append(output)
        return (len(seen) > 2, output.raw if len(seen) > 2 else "again")

    turns = [[("charge", "a")], []] * 3
    crew, llm = make_crew([charge], *turns, native=native, task={"guardrail": guardrail})
    with kit.transaction("pay") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.outcome, shop.events, len(seen)) == ("committed", [("charge", "a")], 3)
    assert "{'id': 'a'}" in str(told(llm))


@pytest.mark.parametrize("added", ["before", "later"])
def test_crewai_7449_each_attempt_calls_twice(kit, shop, records, added):
    """https://github.com/crewAIInc/crewAI/issues/7449: a ReAct tool that posts and then raises posts once."""
    shop.raises["probed"] = TimeoutError("no answer")
    crew, llm = make_crew([probed] if added == "before" else [charge], [("probed", "a")], native=False)
    protect(crew, kit)
    if added == "later":
        crew.agents[0].tools.append(probed)
    with kit.transaction("pay") as saga:
        crew.kickoff()
    assert [one["state"] for one in records("outcome")] == ["in_doubt"]
    assert "no answer" in told(llm)
    assert shop.events == [("probed", "a")]
    assert saga.report.outcome == "committed"  # Its probe found the payment.


@BOTH
@pytest.mark.parametrize("answer", [EOFError("no terminal"), False])
def test_crewai_6859_an_approval_without_a_terminal(tmp_path, shop, native, answer):
    """https://github.com/crewAIInc/crewAI/issues/6859: when nobody can be asked, the tool does not run."""

    def approver(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    kit = AgentKit(tmp_path / "agent-saga.db", approver=approver)
    shop.declare(kit)
    crew, llm = make_crew([charge], [("charge", "a")], native=native)
    with kit.transaction("pay", policies=[AskFirst()]):
        protect(crew, kit).kickoff()
    kit.close()
    assert shop.events == []
    assert "refused" in str(told(llm)) or "rejected" in str(told(llm))


@BOTH
def test_crewai_6262_errors_become_text(kit, shop, records, native):
    """https://github.com/crewAIInc/crewAI/issues/6262: kickoff returns normally; the saga knows the error."""
    shop.raises["boom"] = RuntimeError("out of paper")
    crew, _ = make_crew([boom], [("boom", "a")], native=native)
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("pay"):
        assert "done" in protect(crew, kit).kickoff().raw
    (outcome,) = records("outcome")
    assert (outcome["state"], outcome["error"], outcome["values"]["error"]) == (
        "failed",
        "RuntimeError",
        "out of paper",
    )


@BOTH
def test_crewai_4822_async_execution(kit, shop, native):
    """https://github.com/crewAIInc/crewAI/issues/4822: a task in a thread of its own is in the saga."""
    crew, _ = make_crew([charge], [("charge", "a")], native=native, task={"async_execution": True})
    with pytest.raises(ZeroDivisionError), kit.transaction("pay"):
        protect(crew, kit).kickoff()
        raise ZeroDivisionError
    assert shop.events == [("charge", "a"), ("refund", "a")]


@BOTH
def test_crewai_6509_an_answer_from_the_cache(kit, shop, records, native):
    """https://github.com/crewAIInc/crewAI/pull/6509: a cached answer is no call: one effect, one step."""
    turns = [[("charge", "a")], [("charge", "b")], [("charge", "a")]]
    crew, llm = make_crew([charge], *turns, native=native, cache=True, agent={"cache": True})
    with kit.transaction("pay"):
        protect(crew, kit).kickoff()
    assert (len(records("intent")), shop.standing) == (2, ["a", "b"])
    assert str(told(llm)).count("{'id': 'a'}") == 2


@BOTH
def test_a_refusal_is_not_cached(kit, shop, native):
    """A call that was refused is looked at again when the model makes it again."""

    class OnceMore:
        answers = iter([Refuse("not yet"), Allow()])

        def decide(self, call, saga):
            return next(self.answers)

    turns = [[("charge", "a")], [("look", "b")], [("charge", "a")]]
    crew, _ = make_crew([charge, look], *turns, native=native, cache=True, agent={"cache": True})
    with kit.transaction("pay", policies=[OnceMore()]):
        protect(crew, kit).kickoff()
    assert shop.events == [("charge", "a")]


@BOTH
def test_crewai_6712_a_failure_that_is_returned(kit, shop, records, native):
    """https://github.com/crewAIInc/crewAI/pull/6712: a tool that returns a ToolFailure has failed."""

    @tool("boom")
    def soft(thing: str) -> object:
        """Say that it failed."""
        return ToolFailure(message="HTTP 200, ok: false", code="channel_not_found")

    crew, llm = make_crew([charge, soft], [("charge", "a")], [("boom", "b")], native=native)
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("pay"):
        protect(crew, kit).kickoff()
    assert "ok: false" in str(told(llm))
    assert ([one["state"] for one in records("outcome")], shop.standing) == (["succeeded", "failed"], [])


def test_crewai_1978_a_crew_that_ran_twice(kit, shop):
    """https://github.com/crewAIInc/crewAI/issues/1978: a second kickoff is new work; a resumed saga's is not."""
    turns = [[("charge", "a")], []] * 2
    with pytest.raises(SagaSuspended), kit.transaction("pay", key="o1"):
        crew, _ = make_crew([charge], *turns)
        protect(crew, kit).kickoff()
        crew.kickoff()
        raise SagaSuspended("later")
    assert shop.standing == ["a", "a"]
    with kit.transaction("pay", key="o1") as saga:
        crew, _ = make_crew([charge], *turns)
        protect(crew, kit).kickoff()
        crew.kickoff()
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "a"])


@BOTH
def test_crewai_4126_a_guardrail_that_crashes(kit, shop, native):
    """https://github.com/crewAIInc/crewAI/issues/4126: an error after the tools ran rolls them back."""

    def guardrail(output):
        return False, "this is never good enough"

    options = {"guardrail": guardrail, "guardrail_max_retries": 1}
    crew, _ = make_crew([Courier()], [("courier", "a")], [], [("courier", "a")], native=native, task=options)
    with pytest.raises(Exception, match="validation after 1 retries"), kit.transaction("pay") as saga:
        protect(crew, kit).kickoff()
    assert (saga.report.clean, shop.events) == (True, [("courier", "a"), ("refund", "a")])
