"""[server] ExecResult -> what the client gets: the six fields, their JSON as text, the rest in `_meta`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from mcp_exec.model import ExecResult

_MAX_TEXT_CHARS = 100_000
_ENVELOPE_BYTES = 2048  # of JSON-RPC and SSE, and `_meta`
_LAST_LINE = "mcp-exec: "
_MAX_LAST_LINE_CHARS = 200

_Fields = dict[str, str | int | bool]


def to_call_result(result: ExecResult, max_message_bytes: int | None = None) -> types.CallToolResult:
    """Structured content is the six fields; the text block is their JSON, shortened where it is long.

    max_message_bytes: what a client takes at once; output beyond is dropped, and said to be. None: no bound.
    """
    fields = result.structured()
    text = _to_text(fields)
    while max_message_bytes is not None:
        excess = _json_size(fields) + _json_size(text) + _ENVELOPE_BYTES - max_message_bytes
        if excess <= 0:
            break
        fields = _cut(fields, _json_size(fields) - excess)
        text = _to_text(fields)
    meta = {
        "mcp-exec/jail": result.usage.jail,
        "mcp-exec/peak_memory_bytes": result.usage.peak_memory_bytes,
        "mcp-exec/cpu_time_ms": result.usage.cpu_time_ms,
    }
    structured: dict[str, Any] = dict(fields)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, _meta=meta
    )


def _to_text(fields: _Fields) -> str:
    text = json.dumps(fields)
    if len(text) <= _MAX_TEXT_CHARS:
        return text
    return json.dumps({key: _shorten(value) if isinstance(value, str) else value for key, value in fields.items()})


def _shorten(text: str) -> str:
    keep = _MAX_TEXT_CHARS // 8
    if len(text) <= 2 * keep:
        return text
    gap = f"\n[... {len(text) - 2 * keep} characters left out; whole in structuredContent ...]\n"
    return text[:keep] + gap + text[-keep:]


def _json_size(value: Mapping[str, Any] | str) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _cut(fields: _Fields, budget: int) -> _Fields:
    """At most `budget` bytes of JSON, or next to it: the streams cut at their ends, each to half if both are longer."""
    stdout, stderr = str(fields["stdout"]), str(fields["stderr"])
    stderr, last = _split_last_line(stderr)
    bare = {**fields, "stdout": "", "stderr": last, "truncated": True}
    left = max(0, budget - _json_size(bare))
    half = left // 2
    sizes = [_json_size(stdout), _json_size(stderr)]
    stderr = _prefix(stderr, max(half, left - sizes[0]))
    if last and not stderr.endswith("\n"):
        stderr += "\n"
    return {**bare, "stdout": _prefix(stdout, max(half, left - sizes[1])), "stderr": stderr + last}


def _split_last_line(stderr: str) -> tuple[str, str]:
    """What names the limit that ended the run must stay."""
    start = stderr.rfind("\n", 0, -1) + 1
    last = stderr[start:]
    return (stderr[:start], last) if last.startswith(_LAST_LINE) and len(last) < _MAX_LAST_LINE_CHARS else (stderr, "")


def _prefix(text: str, budget: int) -> str:
    """The longest beginning whose JSON takes at most `budget` bytes, quotes included."""
    low, high = 0, min(len(text), budget)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _json_size(text[:middle]) <= budget else (low, middle - 1)
    return text[:low]
