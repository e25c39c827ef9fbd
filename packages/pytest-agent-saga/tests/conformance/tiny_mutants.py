"""Adapters of the tiny framework that are wrong in one way each, and the rule that must notice."""

import contextlib
import contextvars

from tiny_adapter import SagaMiddleware, TinyDriver, protect
from tiny_framework import Pause, ToolFailed

from agent_saga import GateRefused, SagaSuspended, current_saga
from agent_saga.spi import adopt_parameters, aguard, guard


class RunsBeforeIntent(SagaMiddleware):
    """The effect first, and a step about it afterwards."""

    def call(self, run, request, tool, proceed, arguments):
        result = proceed(arguments)
        return super().call(run, request, tool, lambda given: result, arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        result = await proceed(arguments)

        async def known(given):
            return result

        return await super().acall(run, request, tool, known, arguments)


def protect_with_other_words(agent, kit):
    for tool in agent.tools.values():
        tool.description += " (in a transaction)"
    return protect(agent, kit)


class KnowsOnlyFirstTools(SagaMiddleware):
    """Covers what was there when it was set up."""

    known = None

    def covers(self, tool):
        return tool.name in self.known

    def call(self, run, request, tool, proceed, arguments):
        if not self.covers(tool):
            return proceed(arguments)
        return super().call(run, request, tool, proceed, arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        if not self.covers(tool):
            return await proceed(arguments)
        return await super().acall(run, request, tool, proceed, arguments)


def protect_known_tools(agent, kit):
    made = protect(agent, kit, KnowsOnlyFirstTools)
    agent.middleware[0].known = set(agent.tools)
    return made


class CoversFirstCallOnly(KnowsOnlyFirstTools):
    """Loses interest after one call."""

    def __init__(self, kit):
        super().__init__(kit)
        self.seen = 0

    def covers(self, tool):
        self.seen += 1
        return self.seen == 1


class ForgetsUndeclared(SagaMiddleware):
    """Lets undeclared tools pass, bare."""

    def begin(self, run, tools):
        run.notes["saga"] = current_saga()

    def call(self, run, request, tool, proceed, arguments):
        if self.kit.declarations.find(tool.name) is None:
            return proceed(arguments)
        return super().call(run, request, tool, proceed, arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        if self.kit.declarations.find(tool.name) is None:
            return await proceed(arguments)
        return await super().acall(run, request, tool, proceed, arguments)


class ListsOneUndeclared(ForgetsUndeclared):
    """Refuses undeclared tools only when they are called, one by one."""

    call, acall = SagaMiddleware.call, SagaMiddleware.acall


class WithOptions(SagaMiddleware):
    """Passes other options to `guard`."""

    changes = {}  # noqa: RUF012 - read only.

    def options(self, run, request):
        return super().options(run, request) | self.changes


class HasNoName(WithOptions):
    changes = {"adapter": "other"}  # noqa: RUF012


class HasNoIds(WithOptions):
    changes = {"call_id": None, "scope": None}  # noqa: RUF012


class SaysOneScope(WithOptions):
    changes = {"scope": "everywhere"}  # noqa: RUF012


class SaysOneId(WithOptions):
    changes = {"call_id": "call"}  # noqa: RUF012


class NeverSaysAgain(SagaMiddleware):
    """Neither the attempt nor an id: a repeated turn is new."""

    def options(self, run, request):
        return super().options(run, request) | {"attempt": 0, "call_id": f"{request.id}-{run.attempt}"}


class NewIdsEachTime(SagaMiddleware):
    """A counter instead of the framework's ids."""

    count = 0

    def options(self, run, request):
        NewIdsEachTime.count += 1
        return super().options(run, request) | {"call_id": f"n{self.count}", "scope": f"s{self.count}"}

    def begin(self, run, tools):
        super().begin(run, tools)
        saga = current_saga()
        if saga is not None:
            saga.live.unclaimed.clear()
            saga.live.resumed = False
            saga.live.by_identity.clear()


class DropsErrorResults(WithOptions):
    changes = {"is_error": None}  # noqa: RUF012


class TakesPausesForFailures(WithOptions):
    changes = {"is_pause": None}  # noqa: RUF012


class GuardsOutside(SagaMiddleware):
    """The guard sees errors as the text that the model is told: the step has succeeded."""

    def call(self, run, request, tool, proceed, arguments):
        caught = []

        def quiet(given):
            try:
                return proceed(given)
            except Exception as error:
                caught.append(error)
                return f"Error: {error}"

        result = super().call(run, request, tool, quiet, arguments)
        if caught:
            raise caught[0]
        return result

    async def acall(self, run, request, tool, proceed, arguments):
        caught = []

        async def quiet(given):
            try:
                return await proceed(given)
            except Exception as error:
                caught.append(error)
                return f"Error: {error}"

        result = await super().acall(run, request, tool, quiet, arguments)
        if caught:
            raise caught[0]
        return result


class WaivesFailures(SagaMiddleware):
    """Thinks that what the model was told needs no further attention."""

    @contextlib.contextmanager
    def translated(self, request):
        try:
            with super().translated(request):
                yield
        except Exception:
            saga = current_saga()
            for step in saga.steps() if saga is not None else ():
                saga.waive(step)
            raise


class RefusesLoudly(SagaMiddleware):
    """A refusal ends the run."""

    @contextlib.contextmanager
    def translated(self, request):
        try:
            yield
        except SagaSuspended as error:
            raise Pause({"approval": error.approval}) from error


class RefusesWithoutReason(SagaMiddleware):
    @contextlib.contextmanager
    def translated(self, request):
        try:
            with super().translated(request):
                yield
        except ToolFailed as error:
            raise ToolFailed("not allowed") if isinstance(error.__cause__, GateRefused) else error from None


class RefusalAsResult(SagaMiddleware):
    """A refusal looks like a success to the model."""

    def call(self, run, request, tool, proceed, arguments):
        try:
            return super().call(run, request, tool, proceed, arguments)
        except ToolFailed as error:
            return str(error)

    async def acall(self, run, request, tool, proceed, arguments):
        try:
            return await super().acall(run, request, tool, proceed, arguments)
        except ToolFailed as error:
            return str(error)


class WrapsExceptions(SagaMiddleware):
    """Replaces the tool's own exception."""

    @contextlib.contextmanager
    def translated(self, request):
        try:
            with super().translated(request):
                yield
        except (Pause, ToolFailed):
            raise
        except Exception as error:
            raise RuntimeError(f"a tool failed: {type(error).__name__}") from None


class LosesContext(SagaMiddleware):
    """Does not carry the saga into the framework's threads."""

    @contextlib.contextmanager
    def attached(self, run):
        yield


class FailsOpen(SagaMiddleware):
    """Where there is no saga it does not ask `guard` either."""

    def call(self, run, request, tool, proceed, arguments):
        if current_saga() is None and run.notes["saga"] is None:
            return proceed(arguments)
        return super().call(run, request, tool, proceed, arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        if current_saga() is None and run.notes["saga"] is None:
            return await proceed(arguments)
        return await super().acall(run, request, tool, proceed, arguments)


class OpensItsOwnSaga(SagaMiddleware):
    """Where there is no saga it makes one."""

    def call(self, run, request, tool, proceed, arguments):
        if run.notes["saga"] is not None:
            return super().call(run, request, tool, proceed, arguments)
        with self.kit.transaction("own"):
            return guard(request.tool, arguments, proceed, **self.options(run, request))

    async def acall(self, run, request, tool, proceed, arguments):
        if run.notes["saga"] is not None:
            return await super().acall(run, request, tool, proceed, arguments)
        async with self.kit.transaction("own"):
            return await aguard(request.tool, arguments, proceed, **self.options(run, request))


class FreshContext(SagaMiddleware):
    """Runs the tool in a context that knows no step: a wrapped tool makes a second one."""

    def call(self, run, request, tool, proceed, arguments):
        def fresh(given):
            saga = current_saga()

            def inside():
                if saga is None:
                    return proceed(given)
                with saga.attach():
                    return proceed(given)

            return contextvars.Context().run(inside)

        return super().call(run, request, tool, fresh, arguments)


class SwallowsCancellation(SagaMiddleware):
    """A cancelled call is told to the model, and stands."""

    async def acall(self, run, request, tool, proceed, arguments):
        async def stubborn(given):
            try:
                return await proceed(given)
            except BaseException as error:
                if isinstance(error, Exception):
                    raise
                return "done"

        return await super().acall(run, request, tool, stubborn, arguments)


class ForgetsToPause(SagaMiddleware):
    """A call that waits for a human is an error for the model."""

    @contextlib.contextmanager
    def translated(self, request):
        try:
            yield
        except (GateRefused, SagaSuspended) as error:
            raise ToolFailed(str(error)) from error


class IgnoresTheAnswer(SagaMiddleware):
    """Runs again without telling anybody what the human said."""

    @contextlib.contextmanager
    def translated(self, request):
        try:
            yield
        except GateRefused as error:
            raise ToolFailed(str(error)) from error
        except SagaSuspended as error:
            raise Pause({"approval": error.approval}) from error


class AlwaysApproves(SagaMiddleware):
    @contextlib.contextmanager
    def translated(self, request):
        if request.answer is not None:
            object.__setattr__(request, "answer", (request.answer[0], True))
        with super().translated(request):
            yield


class ChangesResults(SagaMiddleware):
    def call(self, run, request, tool, proceed, arguments):
        return f"[saga] {super().call(run, request, tool, proceed, arguments)}"

    async def acall(self, run, request, tool, proceed, arguments):
        return f"[saga] {await super().acall(run, request, tool, proceed, arguments)}"


class HidesNoKey(SagaMiddleware):
    def begin(self, run, tools):
        super().begin(run, tools)
        for tool in tools:
            tool.hidden = set()


def protect_with_key_in_sight(agent, kit):
    agent.middleware.append(HidesNoKey(kit))
    for tool in agent.tools.values():
        adopt_parameters(tool.name, tool.parameters, kit)
    return agent


class KeepsTheKey(SagaMiddleware):
    """The tool never gets its key."""

    def call(self, run, request, tool, proceed, arguments):
        return super().call(run, request, tool, lambda given: proceed(dict(arguments)), arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        return await super().acall(run, request, tool, lambda given: proceed(dict(arguments)), arguments)


class BlindToStreams(SagaMiddleware):
    """Guards `run` only."""

    async def acall(self, run, request, tool, proceed, arguments):
        return await proceed(arguments)


def protect_again(agent, kit):
    """The second time, a second step around the first, under a context of its own."""
    made = protect(agent, kit) if not agent.middleware else agent
    if agent.middleware and agent.middleware[0] is not None and getattr(agent, "once", False):
        agent.middleware.append(FreshOuter(kit))
    agent.once = True
    return made


class FreshOuter(SagaMiddleware):
    """Runs what is inside as another call."""

    def call(self, run, request, tool, proceed, arguments):
        return super().call(run, request, tool, proceed, arguments)

    def options(self, run, request):
        return super().options(run, request) | {"call_id": f"{request.id}-again"}

    async def acall(self, run, request, tool, proceed, arguments):
        await super().acall(run, request, tool, proceed, arguments)
        return await super().acall(run, request, tool, proceed, arguments)


def guards_before_validation(agent, kit):
    """Takes the place of the framework's validation, and does not validate."""
    agent = protect(agent, kit)
    for tool in agent.tools.values():
        tool.validate = dict
    return agent


def driver_of(change):
    """Return a driver whose adapter is the mutant."""

    class Mutated(TinyDriver):
        if isinstance(change, type):
            protect = staticmethod(lambda agent, kit: protect(agent, kit, change))
        else:
            protect = staticmethod(change)

    return Mutated


MUTANTS = {
    RunsBeforeIntent: "AD-01",
    protect_with_other_words: "AD-02",
    CoversFirstCallOnly: "AD-03",
    ChangesResults: "AD-03",
    BlindToStreams: "AD-03",
    protect_known_tools: "AD-04",
    ForgetsUndeclared: "AD-05",
    ListsOneUndeclared: "AD-05",
    HasNoName: "AD-06",
    HasNoIds: "AD-06",
    protect_again: "AD-07",
    FreshContext: "AD-08",
    guards_before_validation: "AD-09",
    WrapsExceptions: "AD-10",
    GuardsOutside: "AD-11",
    WaivesFailures: "AD-11",
    DropsErrorResults: "AD-13",
    RefusesLoudly: "AD-14",
    RefusesWithoutReason: "AD-14",
    RefusalAsResult: "AD-14",
    SwallowsCancellation: "AD-15",
    LosesContext: "AD-17",
    SaysOneId: "AD-18",
    NeverSaysAgain: "AD-19",
    NewIdsEachTime: "AD-21",
    SaysOneScope: "AD-22",
    ForgetsToPause: "AD-23",
    IgnoresTheAnswer: "AD-24",
    AlwaysApproves: "AD-25",
    TakesPausesForFailures: "AD-26",
    OpensItsOwnSaga: "AD-27",
    FailsOpen: "AD-28",
    protect_with_key_in_sight: "AD-29",
    KeepsTheKey: "AD-29",
}
"""Each mutant, and the rule that must kill it."""
