"""[server] The tool's schemas -> ExecRequest. The schemas are written out: they are the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types

from mcp_exec.config import Config
from mcp_exec.errors import InvalidInput
from mcp_exec.model import ExecRequest, SandboxFacts

MAX_CODE_BYTES = 8 << 20
_MAX_LIBRARIES_CHARS = 500
_WELL_KNOWN = frozenset({"numpy", "pandas", "matplotlib", "pillow", "pyyaml", "jinja2", "scipy", "sympy", "requests"})
#: Cline adds this key to every call
_IGNORED = "task_progress"
#: JSON may need six bytes for one of a caller's (\u0000), and the envelope some more
_JSON_EXPANSION, _ENVELOPE_BYTES = 6, 65536


def max_request_bytes(config: Config) -> int:
    """How long a message may be that holds the longest code and the longest stdin."""
    return _JSON_EXPANSION * (MAX_CODE_BYTES + config.max_stdin_bytes) + _ENVELOPE_BYTES


def input_schema(config: Config) -> dict[str, Any]:
    """JSON Schema of the arguments."""
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string", "minLength": 1, "description": "Python source, run as main.py."},
            "timeout_s": {
                "type": ["integer", "null"],
                "description": f"Wall-clock limit in seconds (default {config.default_timeout_s},"
                f" at most {config.max_timeout_s}).",
            },
            "stdin": {
                "type": ["string", "null"],
                "description": f"Text for the program's standard input (at most {config.max_stdin_bytes} bytes).",
            },
        },
        "required": ["code"],
        "additionalProperties": False,
    }


OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "exit_code": {"type": "integer"},
        "duration_ms": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "timed_out": {"type": "boolean"},
    },
    "required": ["stdout", "stderr", "exit_code", "duration_ms", "truncated", "timed_out"],
    "additionalProperties": False,
}


def describe(config: Config, facts: SandboxFacts) -> str:
    """The description that the model reads; hosts cut it at about 1,500 characters."""
    return (
        f"Run Python {facts.python_version} in a fresh sandbox; returns stdout, stderr and the exit code. "
        "Print what you want to see. Each call starts from nothing: no variables or files are kept. "
        "There is no network. Files can be written in the working directory, /tmp and /dev/shm "
        f"({facts.workspace_bytes >> 20} MiB together). Limits: {config.default_timeout_s} s unless timeout_s says "
        f"otherwise (at most {config.max_timeout_s}), {config.pids} processes, {config.max_output_bytes} bytes of "
        f"output (the rest is dropped, truncated=true), {facts.limits}. "
        f"Walls: {facts.walls}. "
        f"Libraries besides the standard library: {_list_libraries(facts.libraries)}."
    )


def _list_libraries(libraries: tuple[tuple[str, str], ...]) -> str:
    """The well-known ones first, as many as fit."""
    ordered = sorted(libraries, key=lambda pair: (pair[0].lower() not in _WELL_KNOWN, pair[0].lower()))
    words: list[str] = []
    for position, (name, version) in enumerate(ordered):
        word = f"{name} {version}".strip()
        if sum(map(len, words)) + 2 * len(words) + len(word) > _MAX_LIBRARIES_CHARS:
            return ", ".join(words) + f" and {len(ordered) - position} more"
        words.append(word)
    return ", ".join(words) or "none"


def make_tool(config: Config, facts: SandboxFacts) -> types.Tool:
    """The one tool."""
    return types.Tool(
        name="exec",
        title="Run Python",
        description=describe(config, facts),
        input_schema=input_schema(config),
        output_schema=OUTPUT_SCHEMA,
        annotations=types.ToolAnnotations(
            title="Run Python",
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=False,
        ),
    )


def parse_arguments(arguments: Mapping[str, Any], config: Config) -> ExecRequest:
    """Strict: raises InvalidInput for wrong types, unknown fields, blank code, too much stdin. null means absent."""
    given = {key: value for key, value in arguments.items() if value is not None and key != _IGNORED}
    unknown = sorted(set(given) - {"code", "timeout_s", "stdin"})
    if unknown:
        raise InvalidInput(f"unknown argument {unknown[0]!r}: accepted are code, timeout_s and stdin")
    code = _text(given, "code")
    if not code.strip():
        raise InvalidInput("code is required and must not be blank")
    stdin = _text(given, "stdin")
    _bound("code", code, MAX_CODE_BYTES)
    _bound("stdin", stdin, config.max_stdin_bytes)
    return ExecRequest(code=code, stdin=stdin, timeout_s=_timeout(given.get("timeout_s", 0), config))


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string, not {type(value).__name__}")
    return value


def _bound(name: str, text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{name} holds a lone surrogate at character {error.start}; it is not valid Unicode"
        ) from None
    if size > limit:
        raise InvalidInput(f"{name} is {size} bytes long; at most {limit} are accepted")


def _timeout(value: object, config: Config) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"timeout_s must be an integer, not {type(value).__name__}")
    return min(max(1, value), config.max_timeout_s) if value else config.default_timeout_s


def tool_error(message: str) -> types.CallToolResult:
    """A refusal that the model can read; a protocol error would hide it."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)
