"""[server] argv and environment -> Config; exit codes. Imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from mcp_exec import __version__
from mcp_exec.config import Transport, load_config
from mcp_exec.errors import ConfigError, InvalidInput, McpExecError
from mcp_exec.kernel import kernel_release

_USAGE_STATUS = 2
_TIMEOUT_STATUS = 124
_OLDEST_KERNEL = (5, 4)  # pidfd_open(2) came with 5.3


@click.group(invoke_without_command=True)
@click.version_option(__version__, prog_name="mcp-exec")
@click.pass_context
def cli(context: click.Context) -> None:
    """Serve the tool `exec`, or run one of the commands below. Configuration: the MCP_EXEC_* variables."""
    if context.invoked_subcommand is None:
        from mcp_exec.server import serve

        # At once: taking the SDK's modules apart would take 0.2 s of the 0.3 that an orderly end may last.
        os._exit(serve(load_config(os.environ)))


@cli.command()
@click.argument("file", required=False)
@click.option("-c", "code", help="The program itself.")
@click.option("--stdin", "stdin_file", type=click.File("rb"), help="A file for the program's standard input.")
@click.option("--timeout", type=int, default=0, help="Wall clock in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the six fields.")
def run(file: str | None, code: str | None, stdin_file: Any, timeout: int, as_json: bool) -> None:
    """Run FILE (or - for standard input, or -c CODE) in a jail; the exit status is the program's, 124 on timeout."""
    import asyncio

    from mcp_exec.runner import run_once
    from mcp_exec.tool import parse_arguments

    config = load_config(os.environ)
    if (file is None) == (code is None):
        raise InvalidInput("one program is needed: FILE, -, or -c CODE")
    source = code if code is not None else _read_program(file or "-")
    text = stdin_file.read().decode("utf-8", "replace") if stdin_file is not None else ""
    result = asyncio.run(
        run_once(config, parse_arguments({"code": source, "stdin": text, "timeout_s": timeout}, config))
    )
    if as_json:
        click.echo(json.dumps(result.structured()))
    else:
        sys.stdout.buffer.write(result.stdout.encode())
        sys.stdout.flush()
        sys.stderr.buffer.write(result.stderr.encode())
    raise SystemExit(_TIMEOUT_STATUS if result.timed_out else result.exit_code)


def _read_program(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else open(name, "rb").read()  # noqa: SIM115 - ends with us
    except OSError as error:
        raise InvalidInput(f"{name}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: the program is not UTF-8") from error


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def doctor(as_json: bool) -> None:
    """Build a jail, probe it, and print which mechanism holds each invariant on this host."""
    from mcp_exec.doctor import run_doctor

    raise SystemExit(run_doctor(load_config(os.environ), as_json=as_json))


@cli.command()
@click.option("--live", is_flag=True, help="Ask whether the process answers at all, draining or not.")
def healthcheck(live: bool) -> None:
    """Ask the server that this same environment configures whether it is ready; exit status 0 or 1."""
    from mcp_exec.http.healthcheck import ask

    config = load_config(os.environ)
    if config.transport is Transport.STDIO:
        raise ConfigError(
            "MCP_EXEC_TRANSPORT='stdio' has no health check: its client owns the process; use http or sse"
        )
    ask(config, "/healthz" if live else "/readyz")
    click.echo("ok")


@cli.group()
def policy() -> None:
    """Show or check a seccomp policy."""


@policy.command()
@click.argument("name", default="default")
def show(name: str) -> None:
    """Print the policy, with the reason of every entry."""
    from mcp_exec.policy_files import load_policy

    click.echo(json.dumps(load_policy(name), indent=2))


@policy.command()
@click.argument("name", default="default")
def check(name: str) -> None:
    """Compile the policy and hold it against the floor."""
    from mcp_exec.bpf import compile_policy
    from mcp_exec.floor import check_floor
    from mcp_exec.policy_files import load_policy

    loaded = load_policy(name)
    check_floor(loaded)
    click.echo(f"{name}: {len(compile_policy(loaded)) // 8} instructions, nothing open that the floor denies")


def _require_linux() -> None:
    """Raises ConfigError for another system, or a kernel that no jail can be built on."""
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"{sys.platform} is not Linux; the jail is made of Linux namespaces and seccomp")
    release = os.uname().release
    if kernel_release() < _OLDEST_KERNEL:
        raise ConfigError(
            f"Linux {release} is too old: {'.'.join(map(str, _OLDEST_KERNEL))} or later is needed (pidfds)"
        )


def main() -> None:
    """The entry point: our errors become one line, 2 for what the caller or operator can mend, 1 for the host."""
    try:
        _require_linux()
        cli(prog_name="mcp-exec")
    except McpExecError as error:
        print(f"mcp-exec: {error}", file=sys.stderr)
        sys.exit(_USAGE_STATUS if isinstance(error, (ConfigError, InvalidInput)) else 1)
