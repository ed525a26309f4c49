"""Addresses, metrics, and A28: what a jail sees of the server that listens beside it."""

from __future__ import annotations

import os
import re
import socket
import subprocess

import pytest
from support.client import Bare, Identity
from support.http import HttpServer
from support.sse import SseClient
from support.waiting import wait_until

PROBE = """
import json, socket
def reach(family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(2)
            client.connect(address)
            return "reached"
    except OSError as error:
        return error.strerror or str(error)
places = PLACES
print(json.dumps([reach(getattr(socket, family), tuple(address)) for family, address in places]))
"""


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a28_the_jail_does_not_reach_the_server_that_listens(identity: Identity, bare: Bare, transport: str) -> None:
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()[0]
    environ = {"MCP_EXEC_ADDR": ":0", "MCP_EXEC_PREIMPORT": "", "MCP_EXEC_STATELESS": "true"}
    with HttpServer(environ, transport=transport, identity=identity) as server:
        places = [("AF_INET", ["127.0.0.1", server.port]), ("AF_INET", [own, server.port])]
        if socket.has_dualstack_ipv6():
            places.append(("AF_INET6", ["::1", server.port]))
        code = PROBE.replace("PLACES", repr(places))
        if transport == "sse":
            with SseClient(server) as client:
                answer = client.run(code)
        else:
            answer = server.run(code)
        assert answer.exit_code == 0, answer
        assert "reached" not in answer.stdout
        assert bare.probe(code) == ["reached"] * len(places)  # the control


def numbers(server: HttpServer) -> dict[str, float]:
    status, told, text = server.ask("GET", "/metrics")
    assert status == 200
    assert told["content-type"].startswith("text/plain")
    return {name: float(value) for name, value in re.findall(r"^(mcp_exec_\S+) (\S+)$", text.decode(), re.MULTILINE)}


def test_metrics_count_calls_by_outcome_and_limits(root_identity: Identity) -> None:
    with HttpServer({"MCP_EXEC_PREIMPORT": "", "MCP_EXEC_STATELESS": "1", "MCP_EXEC_MEMORY": "64m"}) as server:
        before = numbers(server)
        assert before['mcp_exec_calls_total{outcome="ok"}'] == 0
        server.run("print('secret-of-a-caller')")
        server.run("1/0")
        server.run("import time; time.sleep(9)", timeout_s=1)
        server.run("x = bytearray(1 << 20)\nwhile True: x += x")
        server.post({"id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": {"code": ""}}})
        after = numbers(server)
        assert after['mcp_exec_calls_total{outcome="ok"}'] == 1
        assert after['mcp_exec_calls_total{outcome="failed"}'] == 3
        assert after['mcp_exec_calls_total{outcome="invalid"}'] == 1
        assert after['mcp_exec_limit_total{limit="time"}'] == 1
        assert after["mcp_exec_call_seconds_count"] == 5
        assert (after["mcp_exec_queued"], after["mcp_exec_draining"]) == (0, 0)
        wait_until(lambda: numbers(server)["mcp_exec_running"] == 0)  # the last jail is taken apart after its answer
        assert b"secret-of-a-caller" not in server.ask("GET", "/metrics")[2]


@pytest.mark.parametrize("addr", [":0", "localhost:0", "127.0.0.1:0", "[::1]:0", "[::]:0", "0.0.0.0:0"])
def test_addresses(root_identity: Identity, addr: str) -> None:
    if ":" in addr[:-2] and not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    with HttpServer({"MCP_EXEC_ADDR": addr, "MCP_EXEC_PREIMPORT": ""}) as server:
        host = "::1" if addr.startswith("[") else "127.0.0.1"
        with socket.create_connection((host, server.port), timeout=10) as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        assert server.stop() == 0


@pytest.mark.parametrize("addr", ["8080", "::1:8080", "[::1]", "127.0.0.1:65536", "a b:1", ":x", "[1.2.3.4]:1"])
def test_what_is_no_address(root_identity: Identity, addr: str) -> None:
    assert "MCP_EXEC_ADDR" in refused(root_identity, addr)


def test_a_port_that_is_taken(root_identity: Identity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = refused(root_identity, f"127.0.0.1:{taken.getsockname()[1]}")
    assert "MCP_EXEC_ADDR" in words
    assert "Address already in use" in words


def refused(identity: Identity, addr: str) -> str:
    done = subprocess.run(
        identity.command,
        env={"PATH": os.environ["PATH"], "MCP_EXEC_TRANSPORT": "http", "MCP_EXEC_ADDR": addr, "MCP_EXEC_PREIMPORT": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    return done.stderr.splitlines()[-1]
