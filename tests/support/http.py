"""The real server over HTTP or SSE, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from support.client import ANSWER_S, COLD, INITIALIZE, Answer, Identity, own_identity, to_answer

TOKEN = "token-of-the-tests"
ACCEPT = "application/json, text/event-stream"
MODERN = "2026-07-28"


class Endpoint:
    """Raw requests to a server or to a proxy before one."""

    def __init__(self, port: int = 0, token: str = "") -> None:
        self.port = port
        self.token = token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def headers(self, **more: str) -> dict[str, str]:
        token = {"X-MCP-AUTH": self.token} if self.token else {}
        return {"Accept": ACCEPT, "Content-Type": "application/json", **token, **more}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers in lower case, body."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(self.headers() if headers is None else headers))
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()

    def post(self, message: Mapping[str, Any], **headers: str) -> tuple[int, dict[str, str], list[dict[str, Any]]]:
        """One message to /mcp: status, headers, the messages that came back."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        status, told, data = self.ask("POST", "/mcp", body, self.headers(**headers))
        return status, told, messages_of(data)

    def session(self) -> str:
        """The id of a new stateful session."""
        status, told, _ = self.post({"id": 0, "method": "initialize", "params": INITIALIZE})
        assert status == 200
        self.post({"method": "notifications/initialized"}, **session_header(told["mcp-session-id"]))
        return told["mcp-session-id"]

    def run(self, code: str, session: str = "", **arguments: Any) -> Answer:
        """One call, in a session or, without one, stateless."""
        message = {
            "id": 1,
            "method": "tools/call",
            "params": {"name": "exec", "arguments": {"code": code, **arguments}},
        }
        status, _, messages = self.post(message, **(session_header(session) if session else {}))
        assert status == 200, messages
        return to_answer(messages[-1]["result"])


class HttpServer(Endpoint):
    """One server on a port that the kernel chose; its log is read meanwhile."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, transport: str = "http", identity: Identity | None = None
    ) -> None:
        self.identity = identity or own_identity()
        self.environ = {
            "PATH": os.environ.get("PATH", ""),
            "MCP_EXEC_TRANSPORT": transport,
            "MCP_EXEC_ADDR": "127.0.0.1:0",
            "MCP_EXEC_CONCURRENCY": "4",
            **COLD,
            **(environ or {}),
        }
        super().__init__(token=self.environ.get("MCP_EXEC_AUTH_TOKEN", ""))
        self.log: list[str] = []
        self._listening = threading.Event()
        self.process = self.identity.popen(
            self.identity.command, self.environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
        )
        self._thread = threading.Thread(target=self._read_log, daemon=True)
        self._thread.start()
        assert self._listening.wait(ANSWER_S), self.log
        assert self.port, self.log
        self.environ["MCP_EXEC_ADDR"] = f"127.0.0.1:{self.port}"

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.decode())
            if found := re.search(r"event=listening .*addresses=\"?\S*?:(\d+)\"?\s*$", self.log[-1]):
                self.port = int(found[1])
                self._listening.set()
        self._listening.set()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._thread.join(timeout=10)
            assert self.process.stderr is not None
            self.process.stderr.close()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def session_header(session: str) -> dict[str, str]:
    return {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-06-18"}


def modern_headers(method: str, name: str = "") -> dict[str, str]:
    named = {"Mcp-Name": name} if name else {}
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **named}


def modern(params: dict[str, Any]) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol"
    meta = {
        f"{prefix}/protocolVersion": MODERN,
        f"{prefix}/clientInfo": {"name": "tests", "version": "1"},
        f"{prefix}/clientCapabilities": {},
    }
    return {**params, "_meta": {**meta, **params.get("_meta", {})}}


def messages_of(data: bytes) -> list[dict[str, Any]]:
    """The JSON-RPC messages of an answer, framed as events or bare."""
    if not data.strip():
        return []
    if data.lstrip().startswith((b"{", b"[")):
        return [json.loads(data)]
    return [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]


@contextlib.contextmanager
def open_call(server: Endpoint, code: str, session: str = "", **headers: str) -> Iterator[http.client.HTTPConnection]:
    """A call whose answer nobody has waited for yet; leaving closes the connection."""
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    message["params"] = {"name": "exec", "arguments": {"code": code}}
    more = {**(session_header(session) if session else {}), **headers}
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/mcp", json.dumps(message).encode(), server.headers(**more))
        yield connection
