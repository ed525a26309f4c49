"""[server] The MCP server object: one tool, its errors, its progress. The same on every transport."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_exec import __version__
from mcp_exec.answer import to_call_result
from mcp_exec.config import Config
from mcp_exec.errors import Busy, InvalidInput, McpExecError
from mcp_exec.logs import get_logger
from mcp_exec.model import ExecRequest, ExecResult, SandboxFacts
from mcp_exec.output import Output
from mcp_exec.runner import Runner
from mcp_exec.tool import input_schema, make_tool, parse_arguments, tool_error

_INSTRUCTIONS = "Write Python and call exec to run it in a fresh sandbox; print what you want to see."
_PROGRESS_S = 1.0

#: outcome, seconds, limit: one finished call; the outcomes are those of `metrics.OUTCOMES`
Observer = Callable[[str, float, str], None]


def build_server(
    config: Config,
    runner: Runner,
    facts: SandboxFacts,
    *,
    max_message_bytes: int | None = None,
    observe: Observer = lambda *_: None,
) -> Server[Any]:
    """The SDK's low-level server with our one tool.

    max_message_bytes: of one answer. observe: told of every call when it has ended.
    """
    tool = make_tool(config, facts)
    schema = input_schema(config)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name != tool.name:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        started = time.monotonic()
        outcome, ended_by = "cancelled", ""
        try:
            request = parse_arguments(params.arguments or {}, config)
            result = await _run_with_progress(config, runner, request, context)
            outcome, ended_by = ("ok" if result.exit_code == 0 else "failed"), result.usage.ended_by
            return to_call_result(result, max_message_bytes)
        except McpExecError as error:
            outcome = _outcome(error)
            get_logger().warning("call refused", kind=type(error).__name__, reason=_loggable(error))
            return tool_error(str(error))
        except Exception as error:
            outcome = "internal"
            where = traceback.extract_tb(error.__traceback__)[-1]
            get_logger().error("internal error", kind=type(error).__name__, file=where.name, line=where.lineno)
            return tool_error(f"internal error of mcp-exec: {type(error).__name__} in {where.name}; please report it")
        finally:
            observe(outcome, time.monotonic() - started, ended_by)

    return Server(
        "mcp-exec",
        version=__version__,
        title="mcp-exec",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=lambda name: schema if name == tool.name else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _outcome(error: McpExecError) -> str:
    if isinstance(error, InvalidInput):
        return "invalid"
    return "busy" if isinstance(error, Busy) else "no_jail"


def _loggable(error: McpExecError) -> str:
    """The text of an InvalidInput may quote the caller."""
    return "" if isinstance(error, InvalidInput) else str(error)


async def _run_with_progress(config: Config, runner: Runner, request: ExecRequest, context: Any) -> ExecResult:
    output = Output(config.max_output_bytes)
    async with anyio.create_task_group() as group:
        group.start_soon(_report_progress, request, output, context)
        try:
            result: ExecResult | McpExecError = await runner.run(request, output)
        except McpExecError as error:
            result = error  # a group would wrap it
        group.cancel_scope.cancel()
    if isinstance(result, McpExecError):
        raise result
    get_logger().info(
        "run",
        code_bytes=len(request.code),
        stdin_bytes=len(request.stdin),
        output_bytes=output.size,
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
        timed_out=result.timed_out,
        truncated=result.truncated,
    )
    return result


async def _report_progress(request: ExecRequest, output: Output, context: Any) -> None:
    """Clients reset their own timeout on it. Nothing is sent where the client gave no token."""
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        words = f"{elapsed:.0f} s of at most {request.timeout_s} s, {output.size} bytes of output"
        await context.session.report_progress(elapsed, float(request.timeout_s), words)
        await asyncio.sleep(_PROGRESS_S)
