"""[server] The MCP session: one tool, its errors, progress and cancellation; start and orderly end of the process."""

from __future__ import annotations

import asyncio
import signal
import time
import traceback
from typing import Any

import anyio

from mcp_exec import __version__
from mcp_exec.config import Config, Transport
from mcp_exec.doctor import Report, examine, require
from mcp_exec.errors import ConfigError, InvalidInput, McpExecError
from mcp_exec.jail import syscalls
from mcp_exec.logs import configure_logs, get_logger
from mcp_exec.model import ExecRequest, ExecResult
from mcp_exec.output import Output
from mcp_exec.runner import Runner

_INSTRUCTIONS = "Write Python and call exec to run it in a fresh sandbox; print what you want to see."
_PROGRESS_S = 1.0
#: JSON may need six bytes for one of a caller's (\u0000), and the envelope some more
_JSON_EXPANSION, _ENVELOPE_BYTES = 6, 65536


def serve(config: Config) -> int:
    """Serve until EOF, SIGTERM or SIGINT; 0 then. Raises ConfigError or CannotJail before the first byte is served."""
    if config.transport is not Transport.STDIO:
        raise ConfigError(
            f"MCP_EXEC_TRANSPORT={config.transport.value!r} cannot be used:"
            " accepted is stdio; http and sse are not built yet"
        )
    configure_logs(config.log_level)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # callers' code and output are in this process
    asyncio.run(_serve(config))
    return 0


async def _serve(config: Config) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel if task is not None else loop.stop)
    try:
        async with Runner(config) as runner:
            report = await examine(config, runner)
            require(report)
            _log_start(config, runner, report)
            await _serve_stdio(config, runner, report)
    except asyncio.CancelledError:
        get_logger().info("stopped by a signal")


def _log_start(config: Config, runner: Runner, report: Report) -> None:
    log = get_logger()
    for name in config.unknown:
        log.warning("a variable that means nothing here: is it misspelt?", name=name)
    asked, given = config.memory_bytes >> 20, runner.bounds.limits.memory_bytes >> 20
    if given < asked:
        log.warning("memory limit lowered: the cgroups around the server leave no more", asked_mib=asked, mib=given)
    for wall in report.walls:
        log.info("wall", id=wall.id, holds=wall.holds, mechanism=wall.mechanism)
    log.info("ready", version=__version__, transport=config.transport.value, python=report.facts.python_version)


async def _serve_stdio(config: Config, runner: Runner, report: Report) -> None:
    from mcp_exec.tool import MAX_CODE_BYTES
    from mcp_exec.transports import open_stdio

    server = build_server(config, runner, report)
    limit = _JSON_EXPANSION * (MAX_CODE_BYTES + config.max_stdin_bytes) + _ENVELOPE_BYTES
    async with open_stdio(limit) as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def build_server(config: Config, runner: Runner, report: Report) -> Any:
    """The SDK's low-level server with our one tool; the same on every transport."""
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    from mcp_exec.tool import input_schema, make_tool, parse_arguments, to_call_result, tool_error

    tool = make_tool(config, report.facts)
    schema = input_schema(config)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name != tool.name:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        try:
            request = parse_arguments(params.arguments or {}, config)
            result = await _run_with_progress(config, runner, request, context)
        except McpExecError as error:
            get_logger().warning("call refused", kind=type(error).__name__, reason=_loggable(error))
            return tool_error(str(error))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            get_logger().error("internal error", kind=type(error).__name__, file=where.name, line=where.lineno)
            return tool_error(f"internal error of mcp-exec: {type(error).__name__} in {where.name}; please report it")
        return to_call_result(result)

    return Server(
        "mcp-exec",
        version=__version__,
        title="mcp-exec",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=lambda name: schema if name == tool.name else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


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
        await anyio.sleep(_PROGRESS_S)
