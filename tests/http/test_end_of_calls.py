"""Cancel, disconnect, DELETE, drain: what ends a call, on each transport; and that the jail is dead soon after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest
from support.client import Identity, ToolError
from support.http import TOKEN, HttpServer, messages_of, modern, modern_headers, open_call, session_header
from support.processes import children_of, launcher_of
from support.sse import SseClient
from support.waiting import wait_until

SLEEP = "import time; time.sleep(120)"
ENDED_S = 2.0  # 1 s is promised; the rest is for a machine that does other things as well


def runs(server: HttpServer) -> int:
    """Jails at work below the launcher, as the host sees them."""
    return len(children_of(launcher_of(server.process.pid)))


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[HttpServer]:
    server: HttpServer = request.getfixturevalue(getattr(request, "param", "server"))
    wait_until(lambda: runs(server) == 0)
    yield server
    wait_until(lambda: runs(server) == 0)


def test_cancelled_in_a_session(busy: HttpServer) -> None:
    session = busy.session()
    with open_call(busy, SLEEP, session) as connection:
        wait_until(lambda: runs(busy) == 1)
        note = {"method": "notifications/cancelled", "params": {"requestId": 7}}
        assert busy.post(note, **session_header(session))[0] == 202
        assert wait_until(lambda: runs(busy) == 0) < ENDED_S
        answer = connection.getresponse()
        assert b'"result"' not in answer.read()
    assert busy.run("print(1)", session).stdout == "1\n"


def test_another_sessions_request_is_not_cancelled(busy: HttpServer) -> None:
    first, second = busy.session(), busy.session()
    with open_call(busy, "import time; time.sleep(2); print('whole')", first) as connection:
        wait_until(lambda: runs(busy) == 1)
        busy.post({"method": "notifications/cancelled", "params": {"requestId": 7}}, **session_header(second))
        assert b"whole" in connection.getresponse().read()


def test_a_deleted_session_ends_its_calls(busy: HttpServer) -> None:
    session = busy.session()
    with open_call(busy, SLEEP, session):
        wait_until(lambda: runs(busy) == 1)
        assert busy.ask("DELETE", "/mcp", headers=busy.headers(**session_header(session)))[0] == 200
        assert wait_until(lambda: runs(busy) == 0) < ENDED_S
    status, _, _ = busy.post({"id": 1, "method": "tools/list"}, **session_header(session))
    assert status == 404


def test_a_client_of_a_session_that_is_only_gone_is_waited_for(busy: HttpServer) -> None:
    """MCP 2025-11-25, Transports: disconnection is not cancellation."""
    session = busy.session()
    with open_call(busy, "import time; time.sleep(3)", session):
        wait_until(lambda: runs(busy) == 1)
    time.sleep(1)
    assert runs(busy) == 1


@pytest.mark.parametrize("busy", ["stateless"], indirect=True)
def test_without_sessions_a_client_that_is_gone_ends_its_call(busy: HttpServer) -> None:
    with open_call(busy, SLEEP):
        wait_until(lambda: runs(busy) == 1)
    assert wait_until(lambda: runs(busy) == 0) < ENDED_S


def modern_message() -> bytes:
    params = modern({"name": "exec", "arguments": {"code": SLEEP}})
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


@pytest.mark.parametrize("busy", ["server", "stateless"], indirect=True)
def test_since_2026_a_client_that_is_gone_ends_its_call(busy: HttpServer) -> None:
    connection = busy.connect()
    connection.request("POST", "/mcp", modern_message(), busy.headers(**modern_headers("tools/call", "exec")))
    wait_until(lambda: runs(busy) == 1)
    connection.close()
    assert wait_until(lambda: runs(busy) == 0) < ENDED_S


@pytest.mark.parametrize("busy", ["sse"], indirect=True)
def test_over_sse_both_end_a_call(busy: HttpServer) -> None:
    with SseClient(busy) as client:
        number = client.start_call(SLEEP)
        wait_until(lambda: runs(busy) == 1)
        client.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        assert wait_until(lambda: runs(busy) == 0) < ENDED_S
        assert client.run("print(1)").stdout == "1\n"
        client.start_call(SLEEP)
        wait_until(lambda: runs(busy) == 1)
    assert wait_until(lambda: runs(busy) == 0) < ENDED_S


def drained(environ: dict[str, str] | None = None, transport: str = "http") -> HttpServer:
    return HttpServer({"MCP_EXEC_PREIMPORT": "", "MCP_EXEC_AUTH_TOKEN": TOKEN, **(environ or {})}, transport=transport)


def healthcheck(server: HttpServer, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*server.identity.command, "healthcheck", *arguments],
        env={**server.environ, **environ},
        capture_output=True,
        text=True,
    )


def test_sigterm_lets_runs_end_and_refuses_new_ones(root_identity: Identity) -> None:
    with drained() as server:
        first, second = server.session(), server.session()
        assert healthcheck(server).returncode == 0
        with open_call(server, "import time; time.sleep(4); print('whole')", first) as connection:
            wait_until(lambda: runs(server) == 1)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.ask("GET", "/readyz")[0] == 503)
            assert server.ask("GET", "/healthz")[0] == 200
            asked = healthcheck(server)
            assert asked.returncode == 1
            assert "503" in asked.stderr
            assert healthcheck(server, "--live").returncode == 0
            with pytest.raises(ToolError, match="shutting down"):
                server.run("print(1)", second)
            (message,) = messages_of(connection.getresponse().read())
            assert message["result"]["structuredContent"]["stdout"] == "whole\n"
        assert server.process.wait(10) == 0


def test_at_the_end_no_answer_is_empty(root_identity: Identity) -> None:
    with drained({"MCP_EXEC_STATELESS": "true"}) as server, ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(statuses_until_the_end, server) for _ in range(8)]
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        statuses = [status for client in clients for status in client.result(timeout=60)]
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) > 8
        assert server.process.wait(10) == 0


def statuses_until_the_end(server: HttpServer) -> list[int]:
    """Of calls one after another; an answer of 200 must be whole."""
    params = {"name": "exec", "arguments": {"code": "print(1)"}}
    statuses = []
    while True:
        try:
            status, _, messages = server.post({"id": 1, "method": "tools/call", "params": params})
        except (OSError, HTTPException):
            return statuses
        statuses.append(status)
        assert messages or status == 503


def test_over_sse_too(root_identity: Identity) -> None:
    with drained(transport="sse") as server, SseClient(server) as client:
        number = client.start_call("import time; time.sleep(2); print('whole')")
        wait_until(lambda: runs(server) == 1)
        server.process.send_signal(signal.SIGTERM)
        assert client.finish(number)["result"]["structuredContent"]["stdout"] == "whole\n"
        assert server.process.wait(10) == 0


def test_what_takes_longer_than_the_drain_is_told_so(root_identity: Identity) -> None:
    with drained({"MCP_EXEC_DRAIN_S": "1"}) as server:
        with open_call(server, SLEEP, server.session()) as connection:
            wait_until(lambda: runs(server) == 1)
            server.process.send_signal(signal.SIGTERM)
            (message,) = messages_of(connection.getresponse().read())
        assert message["result"]["isError"]
        assert "shutting down" in message["result"]["content"][0]["text"]
        assert server.process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_everything_at_once(root_identity: Identity, number: signal.Signals) -> None:
    with drained() as server, open_call(server, SLEEP, server.session()):
        wait_until(lambda: runs(server) == 1)
        launcher = launcher_of(server.process.pid)
        server.process.send_signal(number)
        wait_until(lambda: server.ask("GET", "/readyz")[0] == 503)
        server.process.send_signal(number)
        assert server.process.wait(5) == 0
        assert not os.path.exists(f"/proc/{launcher}")


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_idle_clients_do_not_delay_the_end(root_identity: Identity, transport: str) -> None:
    with drained(transport=transport) as server:
        idle = [server.connect() for _ in range(5)]
        for one in idle:
            one.connect()
        stream = server.connect()
        header = {} if transport == "sse" else session_header(server.session())
        stream.request("GET", "/sse" if transport == "sse" else "/mcp", headers=server.headers(**header))
        reader = threading.Thread(target=stream.getresponse)
        reader.start()
        time.sleep(0.2)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 5
        reader.join(10)
        for one in (*idle, stream):
            one.close()


def test_healthcheck_says_what_is_wrong(server: HttpServer) -> None:
    wrong = healthcheck(server, MCP_EXEC_AUTH_TOKEN="other")
    assert (wrong.returncode, "401" in wrong.stderr) == (1, True)
    everywhere = healthcheck(server, MCP_EXEC_ADDR=f":{server.port}")
    assert (everywhere.returncode, everywhere.stdout) == (0, "ok\n")
    nobody = healthcheck(server, MCP_EXEC_ADDR="127.0.0.1:1")
    assert (nobody.returncode, "127.0.0.1:1" in nobody.stderr) == (1, True)
    stdio = healthcheck(server, MCP_EXEC_TRANSPORT="stdio")
    assert (stdio.returncode, "stdio" in stdio.stderr) == (2, True)
