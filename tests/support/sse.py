"""A raw client of the legacy transport: one stream that is read by a thread, messages posted beside it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import queue
import socket
import threading
from collections.abc import Mapping
from typing import Any

from support.client import ANSWER_S, INITIALIZE, Answer, to_answer
from support.http import HttpServer


class SseClient:
    """One session; closing it is the client's going away."""

    def __init__(self, server: HttpServer, path: str = "/sse") -> None:
        self._server = server
        self._connection = server.connect()
        self._connection.request("GET", path, headers={**server.headers(), "Accept": "text/event-stream"})
        self._stream = self._connection.getresponse()
        assert self._stream.status == 200
        self._ids = itertools.count(1)
        self._events: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        name, self.endpoint = self._events.get(timeout=ANSWER_S)
        assert name == "endpoint"
        self.request("initialize", INITIALIZE)
        self.send({"method": "notifications/initialized"})

    def _read(self) -> None:
        name = ""
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            for line in self._stream:
                key, _, value = line.decode().rstrip("\r\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    self._events.put((name, value))
        self._events.put(("end", ""))

    def send(self, message: Mapping[str, Any]) -> int:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        status, _, _ = self._server.ask("POST", self.endpoint, body)
        return status

    def start(self, method: str, params: Mapping[str, Any]) -> int:
        number = next(self._ids)
        assert self.send({"id": number, "method": method, "params": dict(params)}) == 202
        return number

    def finish(self, number: int) -> dict[str, Any]:
        while True:
            name, data = self._events.get(timeout=ANSWER_S)
            assert name == "message", name
            message: dict[str, Any] = json.loads(data)
            if message.get("id") == number:
                return message

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return self.finish(self.start(method, params))

    def start_call(self, code: str, **arguments: Any) -> int:
        return self.start("tools/call", {"name": "exec", "arguments": {"code": code, **arguments}})

    def run(self, code: str, **arguments: Any) -> Answer:
        return to_answer(self.finish(self.start_call(code, **arguments))["result"])

    def close(self) -> None:
        """At once, as a client that is killed."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._thread.join(timeout=10)

    def __enter__(self) -> SseClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
