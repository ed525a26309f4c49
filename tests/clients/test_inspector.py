"""The Inspector's command line in its three eras. It does one thing and ends; it is cancelled by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client import ANSWER_S, own_identity
from support.http import HttpServer
from support.waiting import wait_until

from clients.driver import CANCELLED_S, jails, server_below
from clients.install import node, package

LAUNCHER = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
TOOL_ERROR, AUTH_REQUIRED = 5, 3
SLEEP = {"code": "import time; time.sleep(120)"}
#: The transport of 2024 has no revision of 2026
CASES = [
    (transport, era)
    for transport in ("stdio", "http", "sse")
    for era in ("legacy", "auto", "modern")
    if (transport, era) != ("sse", "modern")
]


class Inspector:
    """One way to reach one server; a process for each thing that is asked."""

    def __init__(self, server: HttpServer | None, transport: str, era: str, home: Path) -> None:
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self._options = ["--cli", "--protocol-era", era, "--format", "json", "--quiet", "--stored-auth-only"]
        self._target: list[str] = [*own_identity().command, "-e", "MCP_EXEC_PREIMPORT=json", "-e", "MCP_EXEC_WARM=0"]
        if server is not None:
            url = server.url + ("/sse" if transport == "sse" else "/mcp")
            self._target = ["--transport", transport, "--server-url", url]

    def start(self, method: str, arguments: dict[str, Any] | None = None, token: str = "") -> subprocess.Popen[str]:
        asked = ["--method", method]
        if arguments is not None:
            asked += ["--tool-name", "exec", "--tool-args-json", json.dumps(arguments)]
        header = ["--header", f"X-MCP-AUTH: {token}"] if token else []
        return subprocess.Popen(
            [str(node()), str(package("inspector", LAUNCHER)), *self._options, *self._target, *asked, *header],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, method: str, arguments: dict[str, Any] | None = None, token: str = "") -> tuple[int, Any, str]:
        """Exit status, the result, what was said on stderr."""
        process = self.start(method, arguments, token)
        output, errors = process.communicate(timeout=ANSWER_S)
        return process.returncode, json.loads(output)["result"] if output else None, errors


@pytest.fixture
def server(request: pytest.FixtureRequest, transport: str) -> Iterator[HttpServer | None]:
    found: HttpServer | None = None if transport == "stdio" else request.getfixturevalue(transport)
    yield found
    if found is not None:
        wait_until(lambda: not jails(found.process.pid), ANSWER_S)


@pytest.fixture
def inspector(clients: None, server: HttpServer | None, transport: str, era: str, tmp_path: Path) -> Inspector:
    return Inspector(server, transport, era, tmp_path)


@pytest.mark.parametrize(("transport", "era"), CASES)
def test_the_inspector_lists_and_calls(inspector: Inspector, server: HttpServer | None) -> None:
    token = server.token if server else ""
    status, listed, words = inspector.ask("tools/list", token=token)
    assert (status, [tool["name"] for tool in listed["tools"]]) == (0, ["exec"]), words
    slow = {"code": "import time; print('before', flush=True); time.sleep(60)", "timeout_s": 1}
    status, late, words = inspector.ask("tools/call", slow, token)
    assert status == 0, words
    fields = late["structuredContent"]
    assert (fields["timed_out"], fields["exit_code"], fields["stdout"]) == (True, -1, "before\n")
    assert json.loads(late["content"][0]["text"]) == fields
    status, refused, _ = inspector.ask("tools/call", {"code": " "}, token)
    assert (status, refused["isError"]) == (TOOL_ERROR, True)
    assert "code is required" in refused["content"][0]["text"]


@pytest.mark.parametrize(("transport", "era"), [case for case in CASES if case[0] != "stdio"])
def test_the_inspector_with_a_wrong_token_says_that_one_is_needed(inspector: Inspector) -> None:
    status, result, words = inspector.ask("tools/list", token="wrong")
    assert (status, result) == (AUTH_REQUIRED, None)
    assert json.loads(words)["error"]["code"] == "auth_required"


def interrupt(inspector: Inspector, server: HttpServer | None, arguments: dict[str, Any]) -> int:
    """While its call is at work; the server's pid."""
    process = inspector.start("tools/call", arguments, server.token if server else "")
    try:
        found = server.process.pid if server else _wait_server(process.pid)
        wait_until(lambda: jails(found), ANSWER_S)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=ANSWER_S)
        return found
    finally:
        process.kill()


@pytest.mark.parametrize(("transport", "era"), [case for case in CASES if case != ("http", "legacy")])
def test_an_interrupted_inspector_leaves_no_jail(inspector: Inspector, server: HttpServer | None) -> None:
    found = interrupt(inspector, server, SLEEP)
    assert wait_until(lambda: not jails(found)) < CANCELLED_S


@pytest.mark.parametrize(("transport", "era"), [("http", "legacy")])
def test_in_a_session_an_interrupted_inspector_is_only_gone(inspector: Inspector, server: HttpServer) -> None:
    """It neither cancels the call nor deletes the session: the call goes on until its time limit, as MCP wants it."""
    found = interrupt(inspector, server, {**SLEEP, "timeout_s": 5})
    ended_after = wait_until(lambda: not jails(found), ANSWER_S)
    assert ended_after > CANCELLED_S


def _wait_server(client: int) -> int:
    """The Inspector needs a moment to start it."""
    found: list[int] = []

    def look() -> bool:
        try:
            found.append(server_below(client))
        except AssertionError:
            return False
        return True

    wait_until(look, ANSWER_S)
    return found[0]
