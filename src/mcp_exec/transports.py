"""[server] How bytes of a client reach the MCP session: stdio streams of our own.

The SDK's own reader blocks in a thread, so SIGINT and SIGTERM could not end the server cleanly; these streams wait in
the event loop. Descriptors 0 and 1 are moved away first: nothing that prints can reach the wire.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from anyio import AsyncFile
from mcp.server.stdio import stdio_server
from mcp_types import jsonrpc_message_adapter

from mcp_exec.aio import wait_readable, write_all

_CHUNK = 1 << 16
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600  # JSON-RPC 2.0, section 5.1


class _LineReader:
    """Lines of a descriptor, each at most `limit` bytes. What is no message is answered here; the session drops it."""

    def __init__(self, descriptor: int, limit: int, writer: _Writer) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._writer = writer
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            line = await self._next_line()
            if line is None:
                refusal: str | None = _refuse(None, _PARSE_ERROR, f"a message is longer than {self._limit} bytes")
            else:
                refusal = _check(line)
            if line is not None and refusal is None:
                return line
            await self._writer.write(f"{refusal}\n")

    async def _next_line(self) -> str | None:
        """None stands for a line that was too long and is skipped."""
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > self._limit:
                self._skipping = True
                self._buffer.clear()
                self._searched = 0
            if not await self._fill():
                return self._last_line()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        if self._skipping:
            self._skipping = False
            return None
        return line.decode("utf-8", "replace")

    async def _fill(self) -> bool:
        while True:
            await wait_readable(self._descriptor)
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # a terminal that hung up
                return False
            self._buffer += chunk
            return bool(chunk)

    def _last_line(self) -> str:
        if not self._buffer or self._skipping:
            raise StopAsyncIteration
        line = self._buffer.decode("utf-8", "replace")
        self._buffer.clear()
        self._searched = 0
        return line


def _check(line: str) -> str | None:
    """The answer to a line that is no message; None where it is one, or blank."""
    if not line.strip():
        return None
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _explain(line)
    return None


def _explain(line: str) -> str:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _refuse(None, _PARSE_ERROR, "a line is not JSON")
    number = message.get("id") if isinstance(message, dict) else None
    number = number if isinstance(number, (str, int)) and _is_unicode(str(number)) else None
    if _is_unicode(json.dumps(message, ensure_ascii=False)):
        return _refuse(number, _INVALID_REQUEST, "not a JSON-RPC 2.0 message")
    words = "the message holds a lone surrogate; it is not valid Unicode"
    if number is not None and message.get("method") == "tools/call":  # the model can mend it, so it must see it
        result = {"content": [{"type": "text", "text": words}], "isError": True}
        return json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    return _refuse(number, _INVALID_REQUEST, words)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _refuse(number: str | int | None, code: int, words: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}})


class _Writer:
    """Whole messages to a descriptor. A pipe or socket is waited for in the loop; a file or terminal takes a thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_pipe = _is_pipe(descriptor)
        self._lock = asyncio.Lock()  # a message may take several writes
        if self._is_pipe:
            os.set_blocking(descriptor, False)

    async def write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        async with self._lock:
            if self._is_pipe:
                await write_all(self._descriptor, data)
            else:
                await asyncio.to_thread(_write_blocking, self._descriptor, data)

    async def flush(self) -> None:
        """Nothing is kept back."""


def _write_blocking(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _move_away(descriptor: int, replacement: int) -> int:
    private = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(replacement, descriptor)
    return private


@asynccontextmanager
async def open_stdio(max_message_bytes: int) -> AsyncIterator[tuple[Any, Any]]:
    """The session's streams over descriptors 0 and 1. epoll refuses files and /dev/null: the SDK reads those."""
    if not _is_pipe(0) and not os.isatty(0):
        async with stdio_server() as streams:
            yield streams
        return
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    writer = _Writer(_move_away(1, 2))
    reader = _LineReader(_move_away(0, null), max_message_bytes, writer)
    os.close(null)
    async with stdio_server(cast("AsyncFile[str]", reader), cast("AsyncFile[str]", writer)) as streams:
        yield streams
