"""MCP over stdio: the SDK's client, raw lines, errors, progress, cancellation and the end of the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client import COLD, ROOT, Bare, ProtocolError, StdioClient, ToolError, own_identity
from support.processes import alive, children_of, descendants_of
from support.waiting import wait_until


@pytest.fixture
def client() -> Iterator[StdioClient]:
    with StdioClient(own_identity(), COLD) as found:
        wait_until(lambda: len(descendants_of(found.process.pid)) == 1)  # the jail of the look around is gone
        yield found


def test_the_sdks_client_lists_calls_and_is_refused() -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def scenario() -> None:
        parameters = StdioServerParameters(command=own_identity().command[0], env={"PATH": os.environ["PATH"]})
        async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
            await session.initialize()
            (tool,) = (await session.list_tools()).tools
            assert tool.name == "exec"
            sales = (ROOT / "examples/sales.csv").read_text()
            report = (ROOT / "examples/csv_report.py").read_text()
            result = await session.call_tool("exec", {"code": report, "stdin": sales})
            assert result.structured_content is not None
            assert "North" in result.structured_content["stdout"]
            assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
            refused = await session.call_tool("exec", {"code": " "})
            assert refused.is_error
            slow = asyncio.create_task(session.call_tool("exec", {"code": "import time; time.sleep(30)"}))
            await asyncio.sleep(0.5)
            slow.cancel()
            again = await session.call_tool("exec", {"code": "print('next')"})
            assert again.structured_content["stdout"] == "next\n"  # type: ignore[index]

    asyncio.run(scenario())


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_revision_is_spoken(revision: str) -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_PREIMPORT": ""}, initialize=False) as client:
        told = client.request(
            "initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        )
        assert told["protocolVersion"] == revision
        assert told["serverInfo"]["name"] == "mcp-exec"
        assert told["instructions"]
        client.notify("notifications/initialized")
        assert client.run("print(1)").stdout == "1\n"


def test_the_tool_tells_the_truth_about_the_sandbox(client: StdioClient, root_identity: object) -> None:
    (tool,) = client.request("tools/list")["tools"]
    description = tool["description"]
    assert len(description) < 1500
    version, numpy = client.probe(
        "import json, numpy, platform; print(json.dumps([platform.python_version(), numpy.__version__]))"
    )
    assert f"Python {version}" in description
    assert f"numpy {numpy}" in description
    assert "no network" in description
    assert "namespaces" in description
    assert "30 s" in description
    assert set(tool["outputSchema"]["required"]) == {
        "stdout",
        "stderr",
        "exit_code",
        "duration_ms",
        "truncated",
        "timed_out",
    }
    assert tool["inputSchema"]["required"] == ["code"]
    assert tool["annotations"]["openWorldHint"] is False


def test_a_sandbox_without_libraries_says_so(tmp_path: Path, root_identity: object) -> None:
    subprocess.run(
        [own_identity().python, "-m", "virtualenv", "-q", "--without-pip", str(tmp_path / "venv")], check=True
    )
    with StdioClient(own_identity(), {"MCP_EXEC_PYTHON": str(tmp_path / "venv/bin/python")}) as client:
        assert "standard library: none." in client.request("tools/list")["tools"][0]["description"]
        assert "ModuleNotFoundError" in client.run("import numpy").stderr


def test_structured_content_is_the_six_fields_and_meta_the_rest(client: StdioClient) -> None:
    result = client.call("x = bytearray(50 << 20)\nfor _ in range(10**6): pass")
    assert list(result["structuredContent"]) == [
        "stdout",
        "stderr",
        "exit_code",
        "duration_ms",
        "truncated",
        "timed_out",
    ]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert result["_meta"]["mcp-exec/jail"] == "namespaces"
    assert result["_meta"]["mcp-exec/peak_memory_bytes"] > 50 << 20
    assert result["_meta"]["mcp-exec/cpu_time_ms"] > 0


REFUSED = [
    ({}, "code is required"),
    ({"code": ""}, "blank"),
    ({"code": 5}, "code must be a string, not int"),
    ({"code": ["x"]}, "code must be a string"),
    ({"code": "1", "timeout_s": "5"}, "timeout_s must be an integer, not str"),
    ({"code": "1", "timeout_s": True}, "timeout_s must be an integer, not bool"),
    ({"code": "1", "timeout_s": 1.5}, "timeout_s must be an integer"),
    ({"code": "1", "stdin": 1}, "stdin must be a string"),
    ({"code": "1", "stdin": "x" * ((1 << 20) + 1)}, "stdin is 1048577 bytes"),
    ({"code": "1", "stdin": "é" * (1 << 19) + "x"}, "stdin is 1048577 bytes"),
    ({"code": "1", "language": "python"}, "unknown argument 'language'"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_bad_arguments_are_tool_errors(sandbox: StdioClient, arguments: dict[str, Any], words: str) -> None:
    result = sandbox.request("tools/call", {"name": "exec", "arguments": arguments})
    assert result["isError"]
    assert words in result["content"][0]["text"]


ACCEPTED = [
    {"timeout_s": None, "stdin": None},
    {"timeout_s": 0},
    {"timeout_s": -5},
    {"timeout_s": 10**9},
    {"task_progress": "[ ]"},
]


@pytest.mark.parametrize("arguments", ACCEPTED)
def test_absent_clamped_and_ignored_arguments(sandbox: StdioClient, arguments: dict[str, Any]) -> None:
    assert sandbox.run("print(1)", **arguments).stdout == "1\n"


def test_an_unknown_tool_is_a_protocol_error(client: StdioClient) -> None:
    with pytest.raises(ProtocolError) as refused:
        client.request("tools/call", {"name": "bash", "arguments": {}})
    assert refused.value.args[0] == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{nonsense", -32700),
        (b"[]", -32600),
        (b'{"id": 5}', -32600),
        (b'"text"', -32600),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc": "2.0", "id": 77, "method": 5}', -32600),
        (b"[" * 100_000, -32700),
    ],
)
def test_a_line_that_is_no_message_is_answered(client: StdioClient, line: bytes, code: int) -> None:
    client.send_bytes(line + b"\n")
    answer = client.notifications.get(timeout=10)
    assert answer["error"]["code"] == code
    assert client.run("print(1)").stdout == "1\n"


def test_a_line_that_is_too_long_is_answered(client: StdioClient) -> None:
    for _ in range(70):
        client.send_bytes(b"x" * (1 << 20))
    client.send_bytes(b"\n")
    assert "longer than" in client.notifications.get(timeout=30)["error"]["message"]
    assert client.run("print(1)").stdout == "1\n"


def test_a_mebibyte_of_code_input_and_output(client: StdioClient) -> None:
    code = "import sys\nsys.stdout.write(sys.stdin.read())\n#" + "x" * (1 << 20)
    answer = client.run(code, stdin="\x01" * (1 << 20))
    assert answer.stdout == "\x01" * (1 << 20)


def test_progress_is_reported_while_a_run_lasts(client: StdioClient) -> None:
    call = {
        "name": "exec",
        "arguments": {"code": "print('x' * 9, flush=True); import time; time.sleep(2.3)"},
        "_meta": {"progressToken": "t"},
    }
    client.finish(*client.start("tools/call", call))
    seen = [client.notifications.get(timeout=5)["params"] for _ in range(3)]
    assert [round(step["progress"]) for step in seen] == [0, 1, 2]
    assert all(step["progressToken"] == "t" and step["total"] == 30 for step in seen)
    assert "10 bytes" in seen[-1]["message"]


def test_a_cancelled_run_is_dead_and_the_next_one_undisturbed(client: StdioClient) -> None:
    for _ in range(10):
        number, _waiting = client.start_call("import os, time\nos.fork()\ntime.sleep(60)")
        wait_until(lambda: len(descendants_of(client.process.pid)) >= 4)
        client.notify("notifications/cancelled", {"requestId": number})
        assert client.run("print('mine')").stdout == "mine\n"
        wait_until(lambda: len(descendants_of(client.process.pid)) == 1, 1.0)


def test_a_run_cancelled_at_any_moment_leaves_nothing(client: StdioClient) -> None:
    client.run("print(1)")
    for step in range(40):
        number, _waiting = client.start_call("print(1)")
        time.sleep(step / 1000)
        client.notify("notifications/cancelled", {"requestId": number})
    wait_until(lambda: len(descendants_of(client.process.pid)) == 1)
    assert client.run("print('next')").stdout == "next\n"


def test_calls_beyond_the_queue_are_refused_with_a_reason() -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_CONCURRENCY": "1", "MCP_EXEC_QUEUE": "1"}) as client:
        calls = [client.start_call("import time; time.sleep(1); print('ran')") for _ in range(5)]
        results = [client.finish(*call) for call in calls]
        refused = [result for result in results if result.get("isError")]
        assert len(refused) == 3
        assert "queue of 1" in refused[0]["content"][0]["text"]


def test_runs_are_concurrent() -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_CONCURRENCY": "4"}) as client:
        client.run("print(1)")
        started = time.monotonic()
        for call in [client.start_call("import time; time.sleep(1)") for _ in range(4)]:
            client.finish(*call)
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, None], ids=["SIGTERM", "SIGINT", "EOF"])
@pytest.mark.parametrize("busy", [False, True])
def test_the_server_ends_at_once_with_no_child_left(end: int | None, busy: bool) -> None:
    with StdioClient(own_identity(), COLD) as client:
        if busy:
            client.start_call("import os, time\nos.fork()\ntime.sleep(60)")
            wait_until(lambda: len(descendants_of(client.process.pid)) >= 4)
        below = descendants_of(client.process.pid)
        assert below
        started = time.monotonic()
        if end is None:
            assert client.process.stdin is not None
            client.process.stdin.close()
        else:
            client.process.send_signal(end)
        assert client.process.wait(timeout=10) == 0
        assert time.monotonic() - started < 2  # 0.3 s when nothing else runs on this machine
        wait_until(lambda: not alive(below), 1.0)


def test_a_killed_server_takes_every_jail_with_it() -> None:
    with StdioClient(own_identity(), COLD) as client:
        client.start_call("import os, time\nos.setsid if False else None\nos.fork()\ntime.sleep(600)")
        wait_until(lambda: len(descendants_of(client.process.pid)) >= 4)
        below = descendants_of(client.process.pid)
        client.process.kill()
        client.process.wait()
        wait_until(lambda: not alive(below))


def test_the_launcher_dies_during_a_call(client: StdioClient) -> None:
    (launcher,) = children_of(client.process.pid)
    waiting = client.start_call("import os, time\nos.fork()\ntime.sleep(60)")
    wait_until(lambda: len(descendants_of(client.process.pid)) >= 4)
    below = descendants_of(client.process.pid)
    os.kill(launcher, signal.SIGKILL)
    result = client.finish(*waiting)
    assert result["isError"]
    assert "launcher" in result["content"][0]["text"]
    wait_until(lambda: not alive(below))
    assert client.run("print('next')").stdout == "next\n"
    assert children_of(client.process.pid) != {launcher}


def test_init_dies_during_a_call(client: StdioClient) -> None:
    (launcher,) = children_of(client.process.pid)
    waiting = client.start_call("import os, time\nos.fork()\ntime.sleep(60)")
    wait_until(lambda: len(descendants_of(client.process.pid)) >= 4)
    (init,) = children_of(launcher)
    os.kill(init, signal.SIGKILL)
    assert "without a report" in client.finish(*waiting)["content"][0]["text"]
    assert client.run("print('next')").stdout == "next\n"
    assert children_of(client.process.pid) == {launcher}


def test_logs_hold_metadata_only() -> None:
    client = StdioClient(own_identity(), {"MCP_EXEC_LOG_LEVEL": "debug", "MCP_EXEC_AUTH_TOKEN": "marked-token"})
    client.run(
        "print('marked-output' + input()); import sys; sys.exit('marked-error')  # marked-code", stdin="marked-input"
    )
    with pytest.raises(ToolError):
        client.run("1", stdin=5, extra="marked-field")
    with pytest.raises(ToolError):
        client.run("1", **{"marked-name": 1})
    client.send_bytes(b'{"marked-line": \n')
    client.request("ping")
    assert client.close() == 0
    log = b"".join(client.log).decode()
    assert "marked" not in log
    assert "exit_code=1" in log
    assert "event=ready" in log
    assert {f"id=I{n}" for n in range(1, 10)} <= set(log.split())


def test_a_client_that_never_reads_the_logs_is_served() -> None:
    identity = own_identity()
    process = subprocess.Popen(
        identity.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "MCP_EXEC_PREIMPORT": ""},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "exec", "arguments": {"code": ""}}}
    init = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    process.stdin.write(json.dumps(init).encode() + b"\n")
    for number in range(1, 1500):
        process.stdin.write(json.dumps({**call, "id": number}).encode() + b"\n")
        if number % 100 == 0:
            process.stdin.flush()
            for _ in range(100):
                assert process.stdout.readline()
    process.stdin.close()
    process.stdout.read()
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    process.stderr.close()


def test_printing_in_the_server_cannot_reach_the_wire(client: StdioClient) -> None:
    assert os.readlink(f"/proc/{client.process.pid}/fd/0") == "/dev/null"
    assert os.readlink(f"/proc/{client.process.pid}/fd/1") == os.readlink(f"/proc/{client.process.pid}/fd/2")


@pytest.mark.parametrize("source", ["/dev/null", "file"])
def test_standard_input_that_cannot_be_polled(source: str, tmp_path: Path) -> None:
    path = Path(source)
    if source == "file":
        path = tmp_path / "lines"
        init = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        path.write_text(json.dumps(init) + "\n")
    with path.open("rb") as stdin:
        done = subprocess.run(
            own_identity().command, stdin=stdin, capture_output=True, timeout=30, env={"PATH": os.environ["PATH"]}
        )
    assert done.returncode == 0, done.stderr


def test_the_environment_and_memory_of_the_server_are_closed_to_others(user_identity: Any, bare: Bare) -> None:
    with StdioClient(user_identity, {"MCP_EXEC_AUTH_TOKEN": "secret"}) as client:
        code = f"import json, os\ndef read(p):\n  try: return len(open(p, 'rb').read(10))\n  except OSError as e: return -e.errno\nprint(json.dumps([read('/proc/{client.process.pid}/environ'), read('/proc/{client.process.pid}/maps')]))"
        same_user = Bare(identity=user_identity)
        if user_identity.prefix:  # root may read all
            assert same_user.probe(code) == [-13, -13]
        assert same_user.probe("import json, os; print(json.dumps(len(open('/proc/self/environ', 'rb').read()) > 0))")
