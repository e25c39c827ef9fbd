"""`protect(options, kit, ...)`: the transport of a client, and the steps that its requests become."""

from __future__ import annotations

from collections.abc import Generator
from importlib.resources import files
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
from supabase.lib.client_options import AsyncClientOptions, SyncClientOptions

from agent_saga import compensator, current_saga, current_step
from agent_saga.errors import UsageError
from agent_saga.spi import AgentKit, aguard, default_kit, guard
from agent_saga_supabase._calls import Call, call_of
from agent_saga_supabase._info import INFO, NAME
from agent_saga_supabase._project import (
    STEP_HEADER,
    DeleteUser,
    HasLanded,
    IsRestored,
    MoveFile,
    Project,
    RemoveFile,
    Restore,
    Work,
    adrive,
    drive,
)

O = TypeVar("O", SyncClientOptions, AsyncClientOptions)  # noqa: E741 - of options.
_CLIENT_TIMEOUT_S: Final = 120  # As the client's own.
_KEY: Final = "idempotency_key"
# The program calls the client itself and sees its errors, so one that it catches is its decision, as with any direct
# call; a framework's adapter would have hidden it from the program.
_DIRECT: Any = None


def protect(options: O, kit: AgentKit | None = None, *, url: str, key: str, name: str | None = None) -> O:
    """Make the writes of a Supabase client steps of the sagas in which they run; outside of sagas they are bare.

    Args:
        options: for `create_client` or `create_async_client`.
        kit: whose sagas they are; by default the default kit.
        url: of the project, as given to the client.
        key: with which compensations and probes run, wherever they do. It must be allowed to call the functions of
            the migration (the service's key is). It is not recorded.
        name: of the project in the log. A recovering process finds the project by it: the module that it imports
            (`--import`) must call `protect` with the same name. By default the host of the URL.

    Returns:
        The same options. Calling it again changes nothing.

    Raises:
        UsageError: the options are protected under another name.
    """
    is_async = isinstance(options, AsyncClientOptions)
    client: Any = options.httpx_client
    transport: Any = getattr(client, "_transport", None)
    name = name or urlsplit(url).hostname or url
    if isinstance(transport, SagaTransport | AsyncSagaTransport):
        project = transport.project
        if project.name != name:
            raise UsageError(f"these options are protected as {project.name!r} already, and cannot be {name!r} too")
        _declare(project, kit or default_kit())
        return options
    project = Project(name=name, url=url.rstrip("/"), key=key, is_async=is_async)
    _declare(project, kit or default_kit())
    if is_async:
        if client is None:
            client = httpx.AsyncClient(timeout=_CLIENT_TIMEOUT_S, follow_redirects=True)
        client._transport = AsyncSagaTransport(client._transport, project, kit)  # noqa: SLF001
    else:
        if client is None:
            client = httpx.Client(timeout=_CLIENT_TIMEOUT_S, follow_redirects=True)
        client._transport = SagaTransport(client._transport, project, kit)  # noqa: SLF001
    # httpx has no public way to wrap the transport of a client that the program has made.
    options.httpx_client = client
    return options


def migration() -> str:
    """Return the SQL to run once in the database, as the owner of the tables."""
    return (files(__package__ or "agent_saga_supabase") / "migration.sql").read_text("utf-8")


def guarantees() -> dict[str, list[str]]:
    """Return what is claimed for a protected client, and what is not, JSON-serialisable."""
    return {"claims": list(INFO.capabilities), "not_claimed": list(INFO.gaps)}


def _declare(project: Project, kit: AgentKit) -> None:
    restore = compensator(project.tool("restore"), idempotent=True, safe_if_absent=True, verify=IsRestored(project))(
        Restore(project)
    )
    kit.declare(
        project.tool("write"),
        effect="reversible",
        compensate=restore.bind(step="key"),
        probe=HasLanded(project),
        key_param=_KEY,
        no_effect_on=(_Rejected,),
    )
    remove = compensator(project.tool("storage.remove"), idempotent=True)(RemoveFile(project))
    back = compensator(project.tool("storage.move_back"))(MoveFile(project))
    delete = compensator(project.tool("auth.delete_user"))(DeleteUser(project))
    for tool, inverse in (
        ("storage.upload", remove.bind(bucket="kwargs.bucket", path="kwargs.path")),
        ("storage.copy", remove.bind(bucket="kwargs.destination_bucket", path="kwargs.destination")),
        (
            "storage.move",
            back.bind(
                bucket="kwargs.destination_bucket",
                path="kwargs.destination",
                back_bucket="kwargs.bucket",
                back="kwargs.source",
            ),
        ),
        ("auth.create_user", delete.bind(user_id="result.json.id")),
    ):
        kit.declare(project.tool(tool), effect="compensable", compensate=inverse, in_doubt_on=(_Unclear,))
    kit.declare(project.tool("auth.change"), effect="irreversible", in_doubt_on=(_Unclear,))


class _Rejected(httpx.HTTPStatusError):
    """The service said no: nothing was changed."""


class _Unclear(httpx.HTTPStatusError):
    """The service, or a gateway before it, failed: it may have changed something."""


class _Step:
    """One request with an effect inside a saga; its requests are sent by a driver of either kind."""

    def __init__(self, project: Project, call: Call, request: httpx.Request) -> None:
        self.project = project
        self.call = call
        self.request = request
        self.response: httpx.Response | None = None

    def prepare(self) -> Work:
        """Refuse, before any intent, what could not be taken back."""
        if self.call.tool == "write":
            yield from self.project.check(self.call.kwargs["table"])

    def perform(self, key: str | None) -> Generator[httpx.Request, httpx.Response, dict[str, Any]]:
        """Send the request, and return what is recorded of its answer."""
        if key is not None and self.call.tool == "write":
            yield from self.project.reopen(key)
            self.request.headers[STEP_HEADER] = key
        self.response = response = yield self.request
        if not response.is_success:
            text = f"HTTP {response.status_code}: {response.text[:300]}"
            unclear = response.is_server_error or response.status_code == httpx.codes.REQUEST_TIMEOUT
            raise (_Unclear if unclear else _Rejected)(text, request=self.request, response=response)
        return self._recorded(response)

    def _recorded(self, response: httpx.Response) -> dict[str, Any]:
        if self.call.keeps is None:
            kept = {
                name: response.headers[name] for name in ("content-type", "content-range") if name in response.headers
            }
            return {"status": response.status_code, "headers": kept, "text": response.text}
        body = response.json() if self.call.keeps else {}
        return {"status": response.status_code, "json": {name: body[name] for name in self.call.keeps if name in body}}

    def answer(self, recorded: Any) -> httpx.Response:
        """Return what the client gets: the live answer, or the one of the call that this is a retry of."""
        if self.response is not None:
            # Its body is read and decoded: what the stream was encoded in must not be decoded again.
            headers = [pair for pair in self.response.headers.multi_items() if pair[0] not in _ENCODED]
            status, content = self.response.status_code, self.response.content
            return httpx.Response(status, headers=headers, content=content, request=self.request)
        text = recorded.get("text", "")
        return httpx.Response(recorded["status"], headers=recorded.get("headers"), text=text, request=self.request)


_ENCODED: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def _is_left_to_its_tool() -> bool:
    """Tell whether the tool that runs here declares an inverse of its own: what it writes is a part of its step."""
    saga, step = current_saga(), current_step()
    if saga is None or step is None:
        return False
    declaration = saga.environment.declarations.find(step.tool)
    return declaration is not None and declaration.compensate is not None


class SagaTransport(httpx.BaseTransport):
    """The transport of a sync client."""

    def __init__(self, inner: httpx.BaseTransport, project: Project, kit: AgentKit | None) -> None:
        self._inner = inner
        self._kit = kit
        self.project = project

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; inside a saga, one with an effect is a step."""
        request.read()
        call = call_of(request, urlsplit(self.project.url).path)
        if call is None or _is_left_to_its_tool():
            return self._inner.handle_request(request)
        tool = self.project.tool(call.tool)
        if current_saga() is None:
            return guard(tool, {}, lambda _: self._inner.handle_request(request), adapter=NAME, kit=self._kit)
        step = _Step(self.project, call, request)
        drive(step.prepare(), self._send)

        def perform(given: dict[str, Any]) -> Any:
            return drive(step.perform(given.get(_KEY)), self._send)

        try:
            return step.answer(guard(tool, call.kwargs, perform, adapter=_DIRECT))
        except (_Rejected, _Unclear):
            return step.answer(None)

    def close(self) -> None:
        """Close the transport inside."""
        self._inner.close()

    def _send(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        response.request = request
        return response


class AsyncSagaTransport(httpx.AsyncBaseTransport):
    """The transport of an async client."""

    def __init__(self, inner: httpx.AsyncBaseTransport, project: Project, kit: AgentKit | None) -> None:
        self._inner = inner
        self._kit = kit
        self.project = project

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See SagaTransport.handle_request."""
        await request.aread()
        call = call_of(request, urlsplit(self.project.url).path)
        if call is None or _is_left_to_its_tool():
            return await self._inner.handle_async_request(request)
        tool = self.project.tool(call.tool)
        if current_saga() is None:
            return await aguard(
                tool, {}, lambda _: self._inner.handle_async_request(request), adapter=NAME, kit=self._kit
            )
        step = _Step(self.project, call, request)
        await adrive(step.prepare(), self._send)

        async def perform(given: dict[str, Any]) -> Any:
            return await adrive(step.perform(given.get(_KEY)), self._send)

        try:
            return step.answer(await aguard(tool, call.kwargs, perform, adapter=_DIRECT))
        except (_Rejected, _Unclear):
            return step.answer(None)

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self._inner.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        response.request = request
        return response
