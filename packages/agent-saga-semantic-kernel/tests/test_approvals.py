"""Approvals through the framework's own pause: a terminated loop, a stored history, `resume`."""

import asyncio

import pytest
from kernel_scripted import agent_of, answers, chat, history_of, kernel_of, results, say, stored, stream
from kernel_shop import BACK, acharge, boom, charge, new
from semantic_kernel.agents import ChatHistoryAgentThread
from semantic_kernel.contents import AuthorRole, FunctionResultContent
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import KernelArguments, kernel_function

from agent_saga import Allow, Ask, SagaSuspended
from agent_saga.errors import UsageError
from agent_saga.runtime.operators import decide_approval
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect, resume

A, B = {"thing": "a"}, {"thing": "b"}
WAYS = pytest.mark.parametrize("run", [chat, stream])


class AskFirst:
    """Charges wait for a person."""

    def decide(self, call, saga):
        return Ask(f"{call.tool} needs a word", suspend=True) if call.tool == "charge" else Allow()


SAGA = {"key": "order-1", "policies": [AskFirst()]}


def ask(kit, kernel, run=chat):
    """Run a kernel's loop in a saga until it pauses; returns the history as another process would read it."""

    async def main():
        async with kit.transaction("buy", **SAGA) as saga:
            history = await run(kernel)
        return stored(history), saga.report

    return asyncio.run(main())


def answer(kit, kernel, history, word=None, **options):
    """Go on with a stored history in the saga, with a person's word."""

    async def main():
        async with kit.transaction("buy", **SAGA | options) as saga:
            left = await resume(kernel, history, approved=word)
            if not left:
                await chat(kernel, history)
        return left, saga.report

    return asyncio.run(main())


def decisions(kit):
    return [(one["decision"], one["by"]) for one in read_records(kit.log) if one["kind"] == "approval_decided"]


@WAYS
def test_a_question_ends_the_loop(kit, shop, run):
    """A call that needs a word ends the loop before its effect, and suspends the saga; calls beside it run."""
    kernel = kernel_of(charge, acharge, calls=[[("shop-charge", A), ("shop-acharge", B)], "is not asked for"], kit=kit)
    history, report = ask(kit, kernel, run)
    assert (report.outcome, shop.events) == ("suspended", [("acharge", "b")])
    assert len(kernel.services["scripted"].turns) == 1
    told = dict(results(history))
    assert "was not made yet" in told["c1"]
    assert "agent-saga approvals approve" in told["c1"]


@WAYS
def test_an_approved_call_runs_once(kit, shop, run):
    """A person's word, given with the stored history, lets the call run once; its result takes its place there."""
    calls = [[("shop-charge", A), ("shop-acharge", B)]]
    history, _ = ask(kit, kernel_of(charge, acharge, calls=calls, kit=kit), run)
    kernel = kernel_of(charge, acharge, calls=["bought"], kit=kit)
    left, report = answer(kit, kernel, history, word=True)
    assert (left, report.outcome) == ([], "committed")
    assert sorted(shop.events) == [("acharge", "b"), ("charge", "a")]
    told = {call_id: str(result) for call_id, result in results(history)}
    assert (told, len(results(history))) == ({"c1": "{'id': 'a'}", "c2": "{'id': 'b'}"}, 2)
    assert str(history.messages[-1]) == "bought"
    assert decisions(kit) == [("approved", "semantic-kernel")]


@pytest.mark.parametrize("word", [False, {"c1": False}])
def test_a_rejected_call_does_not_run(kit, shop, word):
    """A rejected call is told to the model in the framework's words, and the saga commits without it."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    left, report = answer(kit, kernel_of(charge, kit=kit), history, word=word)
    assert (left, report.outcome, shop.events) == ([], "committed", [])
    (text,) = answers(history)
    assert text.startswith("An error occurred while invoking the function shop-charge")
    assert "rejected by semantic-kernel" in text


@pytest.mark.parametrize("word", ["approved", "rejected"])
def test_a_word_in_the_log(kit, shop, word):
    """A word that was given with `agent-saga approvals` counts, also against the one that comes with the history."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    (request,) = [one for one in read_records(kit.log) if one["kind"] == "approval_requested"]
    decide_approval(kit.environment.writer(), request["approval"], word, by="ann")
    _, report = answer(kit, kernel_of(charge, kit=kit), history, word=word != "approved" or None)
    assert (report.outcome, shop.count("charge")) == ("committed", int(word == "approved"))


def test_without_a_word_it_goes_on_waiting(kit, shop):
    """A history that goes on without a word still waits, for the same approval, and so does its saga."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    left, report = answer(kit, kernel_of(charge, kit=kit), history)
    assert ([call.id for call in left], report.outcome, shop.events) == (["c1"], "suspended", [])
    left, report = answer(kit, kernel_of(charge, kit=kit), stored(history), word=True)
    assert (left, report.outcome, shop.count("charge")) == ([], "committed", 1)
    assert len([one for one in read_records(kit.log) if one["kind"] == "approval_requested"]) == 1


@pytest.mark.parametrize("same_scope", [False, True])
def test_a_history_that_goes_on_twice(kit, shop, same_scope):
    """A stored history that goes on twice makes its effects once, in one scope or in two."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    again = stored(history)
    kernel = kernel_of(charge, kit=kit)

    async def main():
        async with kit.transaction("buy", **SAGA) as saga:
            await resume(kernel, history, approved=True)
            if same_scope:
                await resume(kernel, again, approved=True)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    if not same_scope:
        answer(kit, kernel, again, word=True)
    assert shop.events == [("charge", "a")]
    assert results(again) == results(history)[:1] == [("c1", {"id": "a"})]


def test_equal_calls_are_approved_one_by_one(kit, shop):
    """Two equal calls of one turn are two questions; a word on one of them is none on the other."""
    history, _ = ask(kit, kernel_of(charge, calls=[[("shop-charge", A), ("shop-charge", A)]], kit=kit))
    left, report = answer(kit, kernel_of(charge, kit=kit), history, word={"c1": True})
    assert ([call.id for call in left], report.outcome, shop.events) == (["c2"], "suspended", [("charge", "a")])
    left, report = answer(kit, kernel_of(charge, kit=kit), history, word={"c2": True})
    assert (left, report.outcome, shop.count("charge")) == ([], "committed", 2)


@pytest.mark.parametrize("word", [True, False])
def test_a_word_within_one_scope(kit, shop, word):
    """A question that is answered while its scope is open suspends the saga no longer."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)

    async def main():
        async with kit.transaction("buy", **SAGA) as saga:
            history = await chat(kernel)
            await resume(kernel, history, approved=word)
            await chat(kernel, history)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    assert shop.count("charge") == word


def test_what_the_caller_was_handed(kit, shop):
    """A terminated loop's answer that a program also puts into its history is answered there, too."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)

    async def main():
        history = history_of()
        service = kernel.services["scripted"]
        async with kit.transaction("buy", **SAGA):
            from kernel_scripted import settings

            told = await service.get_chat_message_content(history, settings(), kernel=kernel)
            history.add_message(told)
        return told, history

    told, history = asyncio.run(main())
    assert told.role is AuthorRole.TOOL
    history = stored(history)
    answer(kit, kernel, history, word=True)
    assert (answers(history), shop.events) == ([{"id": "a"}] * 2, [("charge", "a")])


def test_other_arguments_are_another_call(kit, shop):
    """A word is on the call as it was seen: with other arguments in the stored history it is asked for again."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    (call,) = history.messages[1].items
    call.arguments = '{"thing": "the moon"}'
    (request,) = [one for one in read_records(kit.log) if one["kind"] == "approval_requested"]
    left, report = answer(kit, kernel_of(charge, kit=kit), history, word=True)
    assert ([one.id for one in left], report.outcome, shop.events) == (["c1"], "suspended", [])
    (item,) = [item for item in history.messages[2].items if isinstance(item, FunctionResultContent)]
    assert item.metadata["agent_saga_approval"] != request["approval"]


def test_an_agent_with_its_thread(kit, shop):
    """An agent whose run has paused goes on with its thread, in another process."""
    agent = protect(agent_of(kernel_of(charge, calls=[("shop-charge", A)])), kit)
    thread = ChatHistoryAgentThread()

    async def first():
        async with kit.transaction("buy", **SAGA) as saga:
            told = await agent.get_response("go", thread=thread)
        return told.message, saga.report

    async def second(history):
        other = protect(agent_of(kernel_of(charge, calls=["bought"])), kit)
        async with kit.transaction("buy", **SAGA) as saga:
            assert await resume(other, history, approved=True) == []
            told = await other.get_response(thread=ChatHistoryAgentThread(chat_history=history))
        return str(told.message), saga.report

    message, report = asyncio.run(first())
    assert (message.role, report.outcome, shop.events) == (AuthorRole.TOOL, "suspended", [])
    text, report = asyncio.run(second(stored(thread._chat_history)))
    assert (text, report.outcome, shop.events) == ("bought", "committed", [("charge", "a")])


def make_nested(kit, inner_calls, outer_calls):
    inner = agent_of(kernel_of(charge, acharge, calls=inner_calls, ids="i"), name="inner")
    kernel = kernel_of(calls=outer_calls)
    kernel.add_plugin(inner, "inner")
    return protect(kernel, kit)


def test_an_agent_as_a_plugin_pauses(kit, shop):
    """When an agent that is a plugin pauses, so does the outer loop; resumed, its standing steps are replayed."""
    calls = [("shop-acharge", B), ("shop-charge", A), "bought"]
    outer = [("inner-inner", {"messages": "buy"}), "not yet"]
    history, report = ask(kit, make_nested(kit, calls, outer))
    assert (report.outcome, shop.events) == ("suspended", [("acharge", "b")])
    assert "was not made yet" in answers(history)[0]
    left, report = answer(kit, make_nested(kit, calls, ["all done"]), history, word=True)
    assert (left, report.outcome) == ([], "committed")
    assert shop.events == [("acharge", "b"), ("charge", "a")]
    assert (str(answers(history)[0]), str(history.messages[-1])) == ("bought", "all done")


def test_a_direct_call_pauses_by_an_exception(kit, shop):
    """Without a loop there is nothing to end: the question leaves as SagaSuspended, and the saga waits."""
    kernel = kernel_of(charge, kit=kit)

    async def main():
        async with kit.transaction("buy", **SAGA):
            await kernel.invoke(plugin_name="shop", function_name="charge", thing="a")

    with pytest.raises(SagaSuspended):
        asyncio.run(main())
    assert shop.events == []


def test_filters_see_the_pause(kit, shop):
    """A filter of the user's around the call sees that it was not made, and that the loop ends."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)
    seen = []

    async def look(context, next):  # noqa: A002
        await next(context)
        seen.append((context.terminate, str(context.function_result)))

    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, look)
    ask(kit, kernel)
    ((terminated, text),) = seen
    assert terminated
    assert "was not made yet" in text


def test_arguments_of_the_run(kit, shop):
    """Functions that read the kernel arguments are given them again when their call is resumed."""

    @kernel_function(name="charge")
    def with_more(thing: str, arguments: KernelArguments) -> dict:
        return new("charge", thing + arguments["more"])

    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    more = KernelArguments(more="!")
    kernel = kernel_of(with_more, kit=kit)
    with pytest.raises(Exception, match="approval"):  # The arguments are a part of the call: it is another one.
        answer_with(kit, kernel, history, more)
    assert shop.events == []


def answer_with(kit, kernel, history, arguments):
    async def main():
        async with kit.transaction("buy", **SAGA):
            left = await resume(kernel, history, approved=True, arguments=arguments)
            assert left, "an approval is asked for again"
            raise SagaSuspended("an approval is asked for")

    try:
        asyncio.run(main())
    except SagaSuspended as wait:
        raise RuntimeError(str(wait)) from wait


def test_a_saga_that_was_halted(kit, shop):
    """What waits without an approval (a halt) is made again without a word."""
    from agent_saga_semantic_kernel import _units

    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    for message in history.messages:
        for item in message.items:
            if _units.WAITS in item.metadata:
                item.metadata[_units.WAITS] = None
    left, report = answer(kit, kernel_of(charge, kit=kit), history, word=True)
    assert ([call.id for call in left], report.outcome) == (["c1"], "suspended")
    assert shop.events == []


def test_results_that_look_like_a_pause(kit, shop):
    """A function's own text is no pause, whatever it says: nothing is made again."""
    kit.declare("says", **BACK)
    text = "This call was not made yet."

    @kernel_function
    def says(thing: str) -> str:
        return text

    kit.declare("says", effect="read_only")
    kernel = kernel_of(says, calls=[("shop-says", A)], kit=kit)

    async def main():
        async with kit.transaction("buy", **SAGA) as saga:
            history = stored(await chat(kernel))
            assert await resume(kernel, history, approved=True) == []
        return saga.report.outcome

    assert asyncio.run(main()) == "committed"


def test_what_cannot_be_resumed(kit):
    """`resume` takes a kernel, or a thing that has one."""
    with pytest.raises(UsageError, match="kernel"):
        asyncio.run(resume(charge, history_of()))


def test_a_call_that_is_gone(kit, shop):
    """A call whose function is gone, or whose arguments no longer fit, is answered by the framework."""
    history, _ = ask(kit, kernel_of(charge, calls=[("shop-charge", A)], kit=kit))
    left, report = answer(kit, kernel_of(boom, kit=kit), history, word=True)
    assert (left, report.outcome, shop.events) == ([], "committed", [])
    assert "not part of the provided tools" in answers(history)[0]
    say(kernel_of(charge), "unused")
