"""Plugins of OpenAPI documents and of MCP servers, against real servers on this machine."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx
import pytest
from kernel_scripted import answers, chat, kernel_of
from kernel_shop import new, refund
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_connected_server_and_client_session
from semantic_kernel.connectors.ai.function_calling_utils import kernel_function_metadata_to_function_call_format
from semantic_kernel.connectors.mcp import MCPStdioPlugin
from semantic_kernel.connectors.openapi_plugin import OpenAPIFunctionExecutionParameters
from semantic_kernel.contents import TextContent
from semantic_kernel.filters import FilterTypes

from agent_saga import RollbackIncomplete, SagaRolledBack
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect

pytestmark = pytest.mark.filterwarnings("ignore:Spec is deprecated")  # The framework uses it.
PLAIN = {"effect": "compensable", "compensate": refund.bind(thing="kwargs.thing")}


def document(port):
    parameters = [
        {"name": "thing", "in": "query", "required": True, "schema": {"type": "string"}},
        {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}},
    ]
    ok = {"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}}
    wire = {"operationId": "wire", "summary": "Wire.", "parameters": parameters, "responses": ok}
    return {
        "openapi": "3.0.0",
        "info": {"title": "bank", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{port}"}],
        "paths": {"/wire": {"post": wire}},
    }


class Bank(BaseHTTPRequestHandler):
    """`status` decides how it answers; `keys` are those that it was given."""

    status = 200
    keys: ClassVar = []

    def do_POST(self):
        thing = httpx.URL(self.path).params["thing"]
        self.keys.append(self.headers["Idempotency-Key"])
        if self.status < 400:
            new("wire", thing)
        body = json.dumps({"id": thing}).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def bank():
    Bank.status, Bank.keys = 200, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def kernel_with(bank, *calls):
    kernel = kernel_of(calls=calls)
    settings = OpenAPIFunctionExecutionParameters(
        http_client=httpx.AsyncClient(), server_url_validation_allowed_base_urls=[f"http://127.0.0.1:{bank}"]
    )
    kernel.add_plugin_from_openapi("bank", openapi_parsed_spec=document(bank), execution_settings=settings)
    return kernel, settings.http_client


def run_openapi(kit, bank, *calls):
    kernel, client = kernel_with(bank, *calls)
    protect(kernel, kit)

    async def main():
        try:
            async with kit.transaction("buy") as saga:
                told.extend(answers(await chat(kernel)))
        finally:
            await client.aclose()
        return saga.report

    told = []
    return asyncio.run(main()), told, kernel


def test_openapi(kit, shop, bank):
    """An operation of an OpenAPI document is a step; its key is a header that no model sees, and reaches the server."""
    kit.declare("wire", key_param="Idempotency_Key", **PLAIN)
    report, told, kernel = run_openapi(kit, bank, ("bank-wire", {"thing": "a"}))
    (step,) = report.kept
    assert (step.tool, step.kwargs, shop.events) == ("wire", {"thing": "a"}, [("wire", "a")])
    assert Bank.keys == [step.key]
    assert told == ['{"id": "a"}']
    (shown,) = [
        kernel_function_metadata_to_function_call_format(one) for one in kernel.get_full_list_of_function_metadata()
    ]
    assert list(shown["function"]["parameters"]["properties"]) == ["thing"]


@pytest.mark.parametrize(("status", "error"), [(404, SagaRolledBack), (503, RollbackIncomplete)])
def test_openapi_errors(kit, shop, bank, status, error):
    """A request that is answered with an error has failed, or is in doubt, by the public table."""
    kit.declare("wire", key_param="Idempotency_Key", **PLAIN)
    Bank.status = status
    with pytest.raises(SagaRolledBack) as caught:
        run_openapi(kit, bank, ("bank-wire", {"thing": "a"}))
    assert type(caught.value) is error
    outcomes = [one["state"] for one in read_records(kit.log) if one["kind"] == "outcome"]
    assert outcomes == ["failed" if status == 404 else "in_doubt"]


def test_openapi_undeclared(kit, bank):
    """Operations that are not declared are named like other functions."""
    kernel, client = kernel_with(bank)
    asyncio.run(client.aclose())
    with pytest.raises(UndeclaredTool, match=r"kit.declare\('wire'"):
        protect(kernel, kit)


# -- MCP ----------------------------------------------------------------------------------------------------------


def bank_server(fails=None):
    server = Server("bank")
    schema = {
        "type": "object",
        "properties": {"thing": {"type": "string"}, "idempotency_key": {"type": "string"}},
        "required": ["thing", "idempotency_key"],
    }
    server.given = []

    @server.list_tools()
    async def list_tools():
        return [types.Tool(name="wire", description="Wire.", inputSchema=schema)]

    @server.call_tool()
    async def call_tool(name, arguments):
        server.given.append(arguments)
        if fails:
            raise ValueError(fails)
        new("wire", arguments["thing"])
        return [types.TextContent(type="text", text=f"wired {arguments['thing']}")]

    return server


@asynccontextmanager
async def connected(server):
    async with create_connected_server_and_client_session(server) as session:
        plugin = MCPStdioPlugin(name="bank", command="unused", session=session, load_prompts=False)
        await plugin.connect()
        yield plugin


@pytest.mark.parametrize("added", ["before", "after"])
def test_mcp(kit, shop, added):
    """A tool of an MCP server is a step; its key is hidden from the model, and reaches the server."""
    kit.declare("wire", **PLAIN)
    server = bank_server()

    async def main():
        async with connected(server) as plugin:
            kernel = kernel_of(calls=[("bank-wire", {"thing": "a"})])
            if added == "before":
                kernel.add_plugin(plugin)
                protect(kernel, kit)
            else:
                protect(kernel, kit)
                kernel.add_plugin(plugin)
            async with kit.transaction("buy") as saga:
                history = await chat(kernel)
            offered = kernel.services["scripted"].offered[0]
            return answers(history), saga.report, [kernel_function_metadata_to_function_call_format(o) for o in offered]

    told, report, offered = asyncio.run(main())
    (step,) = report.kept
    assert (step.kwargs, shop.events) == ({"thing": "a"}, [("wire", "a")])
    assert server.given == [{"thing": "a", "idempotency_key": step.key}]
    assert "wired a" in str(told)
    assert "idempotency_key" not in str(offered)


def test_mcp_errors(kit, shop):
    """A server's answer that says `isError`, which the plugin drops, is a failure: nothing commits."""
    kit.declare("wire", **PLAIN)

    async def main():
        async with connected(bank_server(fails="no cover")) as plugin:
            kernel = kernel_of(calls=[("bank-wire", {"thing": "a"})])
            kernel.add_plugin(plugin)
            protect(kernel, kit)
            async with kit.transaction("buy"):
                assert "no cover" in str(answers(await chat(kernel)))

    with pytest.raises(BaseException) as caught:
        asyncio.run(main())
    assert caught.group_contains(SagaRolledBack, match="wire") or isinstance(caught.value, SagaRolledBack)
    assert shop.standing == []


def test_mcp_replay(kit, shop):
    """A replay of a server's answer is what the plugin made of it: contents, and no plain data."""
    kit.declare("wire", **PLAIN)

    async def run(saga_options, seen):
        async with connected(bank_server()) as plugin:
            kernel = kernel_of(calls=[("bank-wire", {"thing": "a"})])
            kernel.add_plugin(plugin)
            protect(kernel, kit)

            async def look(context, next):  # noqa: A002
                await next(context)
                seen.append(context.result.value)

            kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, look)
            async with kit.transaction("buy", key="order-1", **saga_options) as saga:
                await chat(kernel)
        return saga.report

    seen = []
    asyncio.run(run({}, seen))
    asyncio.run(run({}, seen))
    assert shop.events == [("wire", "a")]
    assert [[type(one) for one in value] for value in seen] == [[TextContent]] * 2
    assert [str(value[0]) for value in seen] == ["wired a"] * 2
