"""A raw JSON-RPC client of the real server over stdio, and the same programs run bare, as controls."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 60.0
#: For tests that count processes: nothing is there but what runs
COLD = {"MCP_EXEC_WARM": "0"}


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who runs the server, and with which installation."""

    name: str
    command: tuple[str, ...]
    python: str
    prefix: tuple[str, ...] = ()

    def popen(self, arguments: Sequence[str], environ: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.prefix, *arguments], env=dict(environ), **options)


@dataclass(frozen=True, kw_only=True)
class Answer:
    stdout: str
    stderr: str
    exit_code: int
    duration_ms: int
    truncated: bool
    timed_out: bool
    meta: dict[str, Any]


class ToolError(Exception):
    """The answer had isError."""


class ProtocolError(Exception):
    """The answer was a JSON-RPC error."""


class StdioClient:
    """Speaks lines to one server; answers are matched to requests by a reader thread."""

    def __init__(
        self, identity: Identity, environ: Mapping[str, str] | None = None, *, initialize: bool = True
    ) -> None:
        self.identity = identity
        self.process = identity.popen(
            identity.command,
            {"PATH": os.environ.get("PATH", ""), **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
        )
        # bufsize=0 is for stdin; what comes would be read byte by byte
        self._output, self._errors = map(io.BufferedReader, (self.process.stdout, self.process.stderr))
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self.notifications: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.raw: list[bytes] = []
        self.log: list[bytes] = []
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._read_log)]
        for thread in self._threads:
            thread.start()
        if initialize:
            self.request("initialize", INITIALIZE)
            self.notify("notifications/initialized")

    def _read(self) -> None:
        for line in self._output:
            self.raw.append(line)
            message = json.loads(line)
            waiting = self._answers.pop(message.get("id"), None)
            (waiting or self.notifications).put(message)
        for waiting in list(self._answers.values()):
            waiting.put({"error": {"code": 0, "message": "the server is gone"}})

    def _read_log(self) -> None:
        self.log.extend(self._errors)

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.send({"method": method, "params": dict(params or {})})

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.finish(*self.start(method, params or {}))

    def start(self, method: str, params: Mapping[str, Any]) -> tuple[int, queue.SimpleQueue[dict[str, Any]]]:
        number = next(self._ids)
        waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._answers[number] = waiting
        self.send({"id": number, "method": method, "params": dict(params)})
        return number, waiting

    def finish(self, _number: int, waiting: queue.SimpleQueue[dict[str, Any]]) -> dict[str, Any]:
        message = waiting.get(timeout=ANSWER_S)
        if "error" in message:
            raise ProtocolError(message["error"]["code"], message["error"]["message"])
        result: dict[str, Any] = message["result"]
        return result

    def start_call(self, code: str, **arguments: Any) -> tuple[int, queue.SimpleQueue[dict[str, Any]]]:
        return self.start("tools/call", {"name": "exec", "arguments": {"code": code, **arguments}})

    def call(self, code: str, **arguments: Any) -> dict[str, Any]:
        return self.finish(*self.start_call(code, **arguments))

    def run(self, code: str, **arguments: Any) -> Answer:
        return to_answer(self.call(code, **arguments))

    @functools.cached_property
    def has_cgroup(self) -> bool:
        """Whether the server says that its runs have one."""
        tool = self.request("tools/list")["tools"][0]
        return "held by cgroup v2" in tool["description"]

    def probe(self, code: str, **arguments: Any) -> Any:
        """What a well-behaved program printed as JSON."""
        answer = self.run(code, **arguments)
        assert answer.exit_code == 0, answer
        return json.loads(answer.stdout)

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join(timeout=10)
        for stream in (self._output, self._errors):
            stream.close()
        return status

    def __enter__(self) -> StdioClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "1"},
}


def to_answer(result: Mapping[str, Any]) -> Answer:
    if result.get("isError"):
        raise ToolError(result["content"][0]["text"])
    return Answer(**result["structuredContent"], meta=result["_meta"])


@dataclass(frozen=True, kw_only=True)
class Bare:
    """Controls: the same program by the same user without a jail."""

    identity: Identity

    def run(self, code: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.identity.prefix, self.identity.python, "-c", code],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            cwd=options.pop("cwd", "/"),
            env={"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})},
            stdin=subprocess.DEVNULL,
            **options,
        )

    def run_file(self, script: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.identity.prefix, self.identity.python, script.name],
            cwd=script.parent,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
        )

    def probe(self, code: str, **options: Any) -> Any:
        done = self.run(code, **options)
        assert done.returncode == 0, done
        return json.loads(done.stdout)


def own_identity() -> Identity:
    folder = Path(sys.executable).parent
    return Identity(name="self", command=(str(folder / "mcp-exec"),), python=sys.executable)
