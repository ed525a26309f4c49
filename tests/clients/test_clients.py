"""Real clients against the real server: list, call, tool error, timeout, cancel, and a token that is wrong."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from support.client import COLD, own_identity
from support.http import HttpServer

from clients.driver import CANCELLED_S, Client, Tour, server_below

MODERN = "2026-07-28"
CLIENTS = (
    Client(name="python-1.2.0", program="python_v1.py", transports=("stdio", "sse")),
    # over HTTP it posts one message after the other: no notification overtakes a call
    Client(name="python-1.8.0", program="python_v1.py", leaves=("http",)),
    Client(name="python-1.30.0", program="python_v1.py"),
    Client(name="python-2.3.0", program="python_v2.py", eras=("legacy", "auto", MODERN)),
    Client(name="fastmcp", program="fastmcp_client.py", eras=("legacy", "auto", MODERN)),
    Client(name="typescript-1", program="typescript_v1.mjs"),
    Client(name="typescript-2", program="typescript_v2.mjs", eras=("legacy", "auto", MODERN)),
)
#: The transport of 2024 has no revision of 2026
CASES = [
    pytest.param(client, transport, era, id=f"{client.name}-{transport}-{era}")
    for client in CLIENTS
    for transport in client.transports
    for era in client.eras
    if (transport, era) != ("sse", MODERN)
]


def command_of(client: Client, server: HttpServer | None, transport: str, era: str, token: str = "") -> list[str]:
    asked: dict[str, Any] = {"transport": transport, "era": era, "leave": transport in client.leaves}
    if server is None:
        asked["command"] = own_identity().command
        asked["env"] = {"PATH": os.environ["PATH"], "MCP_EXEC_PREIMPORT": "", **COLD}
    else:
        asked["url"] = server.url + ("/sse" if transport == "sse" else "/mcp")
        asked["headers"] = {"X-MCP-AUTH": token or server.token}
    return client.command(asked)


def server_of(request: pytest.FixtureRequest, transport: str) -> HttpServer | None:
    return None if transport == "stdio" else request.getfixturevalue(transport)


def fields_of(result: dict[str, Any]) -> dict[str, Any]:
    """From the text, which every client passes on; the structured content must say the same."""
    assert not result.get("isError"), result
    fields: dict[str, Any] = json.loads(result["content"][0]["text"])
    assert result.get("structuredContent", fields) == fields
    return fields


@pytest.mark.parametrize(("client", "transport", "era"), CASES)
def test_a_client_can_do_all_there_is(
    clients: None, request: pytest.FixtureRequest, client: Client, transport: str, era: str
) -> None:
    server = server_of(request, transport)
    with Tour(command_of(client, server, transport, era)) as tour:
        assert tour.next() == {"names": ["exec"]}
        called = fields_of(tour.next()["call"])
        assert (called["stdout"], called["stderr"], called["exit_code"]) == ("42\n", "", 0)
        refused = tour.next()["error"]
        assert refused["isError"]
        assert "code is required" in refused["content"][0]["text"]
        late = fields_of(tour.next()["timeout"])
        assert (late["timed_out"], late["exit_code"], late["stdout"]) == (True, -1, "before\n")
        pid = server.process.pid if server else server_below(tour.process.pid)
        assert tour.cancel(pid) < CANCELLED_S
        if transport not in client.leaves:
            assert tour.next() == {"cancelled": True}
            tour.go()  # until here it was connected: its going away is not what ended the call
            assert fields_of(tour.next()["after"])["stdout"] == "42\n"
        assert tour.end()[0] == 0


@pytest.mark.parametrize(("client", "transport", "era"), [case for case in CASES if case.values[1] != "stdio"])
def test_a_client_with_the_wrong_token_is_told_401(
    clients: None, request: pytest.FixtureRequest, client: Client, transport: str, era: str
) -> None:
    server = server_of(request, transport)
    with Tour(command_of(client, server, transport, era, token="wrong")) as tour:
        status, words = tour.end()
    assert status == 1
    assert "401" in words
