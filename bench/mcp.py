"""MCP servers with a tool `exec`: over stdio, and ours over HTTP too."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.contender import Session
from bench.lines import LineProcess
from bench.programs import Outcome, Program

_REVISION = "2025-06-18"
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": _REVISION,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
_START_S, _ANSWER_S = 60.0, 120.0


def call_of(number: int, program: Program) -> dict[str, Any]:
    """The JSON-RPC request that runs a program."""
    arguments = {"code": program.code, **({"stdin": program.stdin} if program.stdin else {})}
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": "exec", "arguments": arguments},
    }


def outcome_of(message: Mapping[str, Any]) -> Outcome:
    """What an answer says. Raises ValueError if it is an error."""
    if "error" in message:
        raise ValueError(message["error"]["message"])
    result = message["result"]
    fields = result.get("structuredContent")
    if result.get("isError") or fields is None:
        raise ValueError(" ".join(block.get("text", "") for block in result["content"])[:200])
    return Outcome(stdout=fields["stdout"], stderr=fields["stderr"], exit_code=fields["exit_code"])


class StdioSession(Session):
    """One server, one client; several calls at once go over the same pipe."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self.pid = process.pid
        self._ids = itertools.count(1)
        process.send(_INITIALIZE)
        process.receive()
        process.send(_INITIALIZED)

    def run(self, program: Program) -> Outcome:
        self._start(program)
        return self._finish()

    def _start(self, program: Program) -> None:
        self._process.send(call_of(next(self._ids), program))

    def _finish(self) -> Outcome:
        """The next answer, whichever call it belongs to; notifications are passed over."""
        while "id" not in (message := self._process.receive()):
            pass
        return outcome_of(message)

    def _finish_checked(self, program: Program) -> None:
        if complaint := program.complaint(self._finish()):
            raise ValueError(complaint)

    def rate(self, program: Program, clients: int, seconds: float) -> float:
        done, started = 0, time.perf_counter()
        for _ in range(clients):
            self._start(program)
        while time.perf_counter() - started < seconds:
            self._finish_checked(program)
            self._start(program)
            done += 1
        for _ in range(clients):
            self._finish_checked(program)
        return (done + clients) / (time.perf_counter() - started)


@contextlib.contextmanager
def open_stdio(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Session]:
    """Start a server and shake hands. Raises OSError."""
    with LineProcess(command, environ) as process:
        yield StdioSession(process)


class HttpSession(Session):
    """One connection with a session of its own to a server that listens on this machine."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self._ask(_INITIALIZE)
        self._ask(_INITIALIZED)

    def _ask(self, message: Mapping[str, Any]) -> bytes:
        self._forget_closed()
        self._connection.request("POST", "/mcp", json.dumps(message).encode(), self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status >= 300:
            raise ValueError(f"HTTP status {answer.status}: {body[:200]!r}")
        if session := answer.getheader("mcp-session-id"):
            self._headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": _REVISION}
        return body

    def _forget_closed(self) -> None:
        """The server closes a connection that was idle while others were measured; the next request opens one."""
        if self._connection.sock is not None and select.select([self._connection.sock], [], [], 0)[0]:
            self._connection.close()

    def run(self, program: Program) -> Outcome:
        body = self._ask(call_of(1, program))
        if not body.startswith(b"{"):  # framed as an event; notifications may come before the answer
            body = [line for line in body.splitlines() if line.startswith(b"data: {")][-1][len(b"data: ") :]
        return outcome_of(json.loads(body))

    @contextlib.contextmanager
    def client(self) -> Iterator[Session]:
        assert self.pid is not None
        with contextlib.closing(HttpSession(self.pid, self._port)) as session:
            yield session

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def open_http(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Session]:
    """Start our server on a port that the kernel chooses. Raises OSError."""
    environ = {**environ, "MCP_EXEC_TRANSPORT": "http", "MCP_EXEC_ADDR": "127.0.0.1:0"}
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=log)
        try:
            with contextlib.closing(HttpSession(process.pid, _wait_port(process, log.name))) as session:
                yield session
        finally:
            process.terminate()
            process.wait()


def _wait_port(process: subprocess.Popen[bytes], log: str) -> int:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        with open(log) as file:
            if found := re.search(r"event=listening .*addresses=\"?\S*?:(\d+)\"?\s*$", file.read(), re.MULTILINE):
                return int(found[1])
        time.sleep(0.02)
    raise BrokenPipeError("the server does not listen")
