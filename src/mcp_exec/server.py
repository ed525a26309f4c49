"""[server] Start and orderly end of the process that serves."""

from __future__ import annotations

import asyncio
import resource
import signal

from mcp_exec import __version__
from mcp_exec.config import Config, Transport
from mcp_exec.doctor import Report, examine, require
from mcp_exec.jail import syscalls
from mcp_exec.logs import configure_logs, get_logger
from mcp_exec.runner import Runner


def serve(config: Config) -> int:
    """Serve until EOF, SIGTERM or SIGINT; 0 then. Raises ConfigError or CannotJail before the first byte is served."""
    configure_logs(config.log_level)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # callers' code and output are in this process
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a run takes ten descriptors, a client one
    asyncio.run(_serve(config))
    return 0


async def _serve(config: Config) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel if task is not None else loop.stop)
    # In a thread, since the launcher imports the programs' libraries meanwhile, on another processor.
    loading = asyncio.create_task(asyncio.to_thread(_load, config.transport))
    try:
        async with Runner(config, loading) as runner:
            report = await examine(config, runner)
            require(report)
            runner.keep_warm()
            _log_start(config, runner, report)
            if config.transport is Transport.STDIO:
                await _serve_stdio(config, runner, report)
            else:
                await _serve_http(config, runner, report)
    except asyncio.CancelledError:
        get_logger().info("stopped by a signal")


def _load(transport: Transport) -> None:
    """Import the SDK, and what else serving takes."""
    import mcp_exec.session
    import mcp_exec.tool

    if transport is Transport.STDIO:
        import mcp_exec.transports
    else:
        import mcp_exec.http.metrics
        import mcp_exec.http.serve  # noqa: F401 - it is there when it is needed


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
    from anyio import BrokenResourceError

    from mcp_exec.session import build_server
    from mcp_exec.tool import max_request_bytes
    from mcp_exec.transports import open_stdio

    server = build_server(config, runner, report.facts)
    try:
        async with open_stdio(max_request_bytes(config)) as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())
    except* BrokenResourceError:
        pass  # a signal ended the session while a task of the SDK's was handing it a message


async def _serve_http(config: Config, runner: Runner, report: Report) -> None:
    from mcp_exec.http.metrics import Metrics
    from mcp_exec.http.serve import MAX_MESSAGE_BYTES, serve_http
    from mcp_exec.session import build_server

    metrics = Metrics(runner)
    server = build_server(config, runner, report.facts, max_message_bytes=MAX_MESSAGE_BYTES, observe=metrics.observe)
    await serve_http(config, server, runner, metrics)
