"""The same tool over HTTP and SSE as over stdio: revisions, sizes, errors, progress."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.client import INITIALIZE, ROOT, StdioClient, ToolError, own_identity
from support.http import HttpServer, modern, modern_headers, session_header
from support.sse import SseClient


def call(code: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "exec", "arguments": {"code": code, **arguments}}


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_revision_with_a_handshake(server: HttpServer, revision: str) -> None:
    params = {**INITIALIZE, "protocolVersion": revision}
    status, told, (message,) = server.post({"id": 0, "method": "initialize", "params": params})
    assert (status, message["result"]["protocolVersion"]) == (200, revision)
    headers = {"Mcp-Session-Id": told["mcp-session-id"], "MCP-Protocol-Version": revision}
    assert server.post({"method": "notifications/initialized"}, **headers)[0] == 202
    _, _, messages = server.post({"id": 1, "method": "tools/call", "params": call("print(1)")}, **headers)
    assert messages[-1]["result"]["structuredContent"]["stdout"] == "1\n"


@pytest.mark.parametrize("name", ["server", "stateless"])
def test_the_revision_without_a_handshake(request: pytest.FixtureRequest, name: str) -> None:
    server: HttpServer = request.getfixturevalue(name)
    message = {"id": 1, "method": "tools/call", "params": modern(call("print(1)"))}
    status, told, (answer,) = server.post(message, **modern_headers("tools/call", "exec"))
    assert status == 200
    assert "mcp-session-id" not in told
    assert answer["result"]["structuredContent"]["stdout"] == "1\n"


def test_the_tool_is_the_same_on_every_transport(server: HttpServer, stateless: HttpServer, sse: HttpServer) -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_CONCURRENCY": "4", "MCP_EXEC_PREIMPORT": ""}) as client:
        expected = client.request("tools/list")
        refusal = client.call(" ")
    message = {"id": 1, "method": "tools/list", "params": {}}
    assert server.post(message, **session_header(server.session()))[2][-1]["result"] == expected
    assert stateless.post(message)[2][-1]["result"] == expected
    with SseClient(sse) as client:
        assert client.request("tools/list", {})["result"] == expected
        assert client.finish(client.start_call(" "))["result"] == refusal


def test_go_clients_may_open_sse_at_any_path(sse: HttpServer) -> None:
    for path in ("/sse", "/", "/any/other"):
        with SseClient(sse, path) as client:
            assert client.endpoint.startswith("/messages/?session_id=")
            assert client.run("print(1)").stdout == "1\n"
    assert sse.ask("POST", "/sse")[0] == 405
    assert sse.ask("POST", "/messages/?session_id=00000000000000000000000000000000", b"{}")[0] == 404


def test_paths_of_http(server: HttpServer) -> None:
    status, _, words = server.ask("POST", "/other", b"{}")
    assert status == 404
    assert b"/mcp" in words
    assert server.ask("POST", "/mcp/", json.dumps({"jsonrpc": "2.0"}).encode())[0] == 400


@pytest.mark.parametrize(
    "code",
    [
        "print('x' * (1 << 20), end='')",
        "print('\\0' * (1 << 20), end='')",
        "print('é' * (1 << 19), end='')",
        "import sys; print('\"' * (1 << 19), end=''); sys.stderr.write('\\\\' * (1 << 19))",
        "import sys; sys.stderr.write('\\U0001f600' * (1 << 18))",
    ],
)
def test_an_answer_is_cut_where_clients_stop_and_says_so(server: HttpServer, code: str) -> None:
    session = server.session()
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call(code)}).encode()
    status, _, data = server.ask("POST", "/mcp", body, server.headers(**session_header(session)))
    assert status == 200
    assert 900_000 < len(data) <= 1_000_000
    answer = server.run(code, session)
    assert answer.truncated
    assert answer.exit_code == 0


def test_what_fits_is_whole(server: HttpServer) -> None:
    answer = server.run("print('x' * 900_000, end='')", server.session())
    assert (len(answer.stdout), answer.truncated) == (900_000, False)


def test_a_limits_name_outlives_the_cut(server: HttpServer) -> None:
    code = (
        "import sys, time\nfor _ in range(16): sys.stderr.write('\\0' * (1 << 16))\nsys.stderr.flush(); time.sleep(60)"
    )
    answer = server.run(code, server.session(), timeout_s=2)
    assert answer.timed_out
    assert answer.stderr.endswith("\nmcp-exec: the time limit of 2 s ended the run\n")


def test_the_official_client_takes_a_mebibyte_on_every_transport(
    server: HttpServer, stateless: HttpServer, sse: HttpServer
) -> None:
    from mcp import ClientSession
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def run(client: Any) -> Any:
        async with client as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            result = await session.call_tool("exec", {"code": "print('x' * (1 << 20), end='')"})
            assert not result.is_error
            stdin = await session.call_tool(
                "exec", {"code": "import sys; print(len(sys.stdin.read()))", "stdin": "\0" * (1 << 20)}
            )
            assert stdin.structured_content["stdout"] == f"{1 << 20}\n"
            return result.structured_content

    async def scenario() -> None:
        headers = {"X-MCP-AUTH": server.token}
        for url in (server.url, stateless.url):
            async with create_mcp_http_client(headers=headers) as http:
                fields = await run(streamable_http_client(f"{url}/mcp", http_client=http))
            assert fields["truncated"]
            assert len(fields["stdout"]) > 900_000
        fields = await run(sse_client(f"{sse.url}/sse", headers=headers))
        assert fields["truncated"]
        assert len(fields["stdout"]) > 900_000

    asyncio.run(scenario())


def test_a_body_beyond_every_limit_is_413(server: HttpServer) -> None:
    assert server.ask("POST", "/mcp", b"x" * (60 << 20))[0] == 413
    assert server.run("print(1)", server.session()).stdout == "1\n"


@pytest.mark.parametrize("code", ["", " ", 3, None])
def test_bad_arguments_are_tool_errors(server: HttpServer, code: Any) -> None:
    with pytest.raises(ToolError):
        server.run(code, server.session())


def test_a_lone_surrogate_is_refused_and_the_next_call_works(server: HttpServer) -> None:
    session = server.session()
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"code":"\\ud800"}}}'
    status, _, words = server.ask("POST", "/mcp", body, server.headers(**session_header(session)))
    assert (status == 400 and b"error" in words) or b"isError" in words
    assert server.run("print(1)", session).stdout == "1\n"


def test_progress_comes_while_the_program_runs(server: HttpServer) -> None:
    params = {**call("import time; time.sleep(2.5)"), "_meta": {"progressToken": "p"}}
    _, _, messages = server.post(
        {"id": 1, "method": "tools/call", "params": params}, **session_header(server.session())
    )
    seen = [message["params"]["progress"] for message in messages if message.get("method") == "notifications/progress"]
    assert len(seen) >= 3
    assert seen == sorted(seen)
    assert messages[-1]["result"]["structuredContent"]["exit_code"] == 0


def test_the_example_is_answered(server: HttpServer) -> None:
    report, sales = (ROOT / f"examples/{name}" for name in ("csv_report.py", "sales.csv"))
    assert "North" in server.run(report.read_text(), server.session(), stdin=sales.read_text()).stdout
