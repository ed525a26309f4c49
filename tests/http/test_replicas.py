"""Two stateless instances behind nginx and HAProxy, with the configurations in deploy/proxy: no affinity is needed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from support.client import Answer, to_answer
from support.http import TOKEN, Endpoint, HttpServer, modern, modern_headers, open_call
from support.processes import children_of, launcher_of
from support.proxies import proxy
from support.waiting import wait_until

HOST = "mcp.example.org"
SLEEP = "import time; time.sleep(120)"


@dataclass
class Replicas:
    front: Endpoint
    instances: list[HttpServer]

    def runs(self) -> int:
        return sum(len(children_of(launcher_of(one.process.pid))) for one in self.instances)

    def answered(self) -> list[int]:
        """How many calls each instance has answered with a result of a program that ended well."""
        found = []
        for one in self.instances:
            _, _, metrics = one.ask("GET", "/metrics")
            (count,) = re.findall(rb'^mcp_exec_calls_total\{outcome="ok"\} (\S+)$', metrics, re.MULTILINE)
            found.append(int(float(count)))
        return found


class Front(Endpoint):
    """The proxy, asked by its public name."""

    def headers(self, **more: str) -> dict[str, str]:
        return super().headers(**{"Host": HOST, **more})


@pytest.fixture(scope="module", params=["nginx", "haproxy"])
def replicas(
    request: pytest.FixtureRequest, root_identity: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    with ExitStack() as stack:
        found = [stack.enter_context(replica()) for _ in range(2)]
        folder = tmp_path_factory.mktemp(request.param)
        port = stack.enter_context(proxy(request.param, folder, [one.port for one in found], TOKEN))
        yield Replicas(Front(port, TOKEN), found)


def replica() -> HttpServer:
    return HttpServer(
        {
            "MCP_EXEC_AUTH_TOKEN": TOKEN,
            "MCP_EXEC_STATELESS": "true",
            "MCP_EXEC_ALLOWED_HOSTS": HOST,
            "MCP_EXEC_PREIMPORT": "",
            "MCP_EXEC_DRAIN_S": "20",
        }
    )


def run_modern(front: Endpoint, code: str) -> Answer:
    params = modern({"name": "exec", "arguments": {"code": code}})
    status, _, messages = front.post(
        {"id": 1, "method": "tools/call", "params": params}, **modern_headers("tools/call", "exec")
    )
    assert status == 200, messages
    return to_answer(messages[-1]["result"])


async def run_with_sdk(url: str, codes: list[str]) -> list[str]:
    """A client of a session's habits: handshake, list, calls, each request to whichever instance."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with (
        create_mcp_http_client(headers={"X-MCP-AUTH": TOKEN, "Host": HOST}) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["exec"]
        return [
            (await session.call_tool("exec", {"code": code})).structured_content["stdout"]  # type: ignore[index]
            for code in codes
        ]


def test_a_mixed_load_is_served_by_both(replicas: Replicas) -> None:
    before = replicas.answered()
    front, url = replicas.front, f"{replicas.front.url}/mcp"
    with ThreadPoolExecutor(12) as pool:
        raw = [pool.submit(front.run, f"print({number})") for number in range(20)]
        new = [pool.submit(run_modern, front, f"print({number})") for number in range(20)]
        sdk = [
            pool.submit(asyncio.run, run_with_sdk(url, [f"print({n * 10 + k})" for k in range(5)])) for n in range(4)
        ]
        assert [one.result().stdout for one in raw] == [f"{number}\n" for number in range(20)]
        assert [one.result().stdout for one in new] == [f"{number}\n" for number in range(20)]
        assert [one.result() for one in sdk] == [[f"{n * 10 + k}\n" for k in range(5)] for n in range(4)]
    served = [after - earlier for earlier, after in zip(before, replicas.answered(), strict=True)]
    assert sum(served) == 60
    assert min(served) >= 10


def test_the_largest_messages_pass(replicas: Replicas) -> None:
    answer = replicas.front.run("import sys; print(len(sys.stdin.read()))", stdin="\x01" * (1 << 20))
    assert answer.stdout == f"{1 << 20}\n"
    answer = replicas.front.run("print('x' * 900_000)")
    assert (len(answer.stdout), answer.truncated) == (900_001, False)


def test_output_is_known_when_the_call_ends_and_not_later(replicas: Replicas) -> None:
    assert replicas.front.run("import time; print(1, flush=True); time.sleep(2)").duration_ms >= 2000


def test_a_client_that_leaves_takes_its_run_along(replicas: Replicas) -> None:
    wait_until(lambda: replicas.runs() == 0)
    with open_call(replicas.front, SLEEP):
        wait_until(lambda: replicas.runs() == 1)
        time.sleep(0.2)
        assert replicas.runs() == 1  # the control: it stays while the client does
    wait_until(lambda: replicas.runs() == 0, 2.0)


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"X-MCP-AUTH": "wrong"}, 401)])
def test_a_refusal_passes(replicas: Replicas, headers: dict[str, str], status: int) -> None:
    told, _, body = replicas.front.ask("POST", "/mcp", b"{}", {"Host": HOST, **headers})
    assert (told, b"X-MCP-AUTH" in body) == (status, True)


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz", "/mcp/../metrics"])
def test_what_is_the_operators_is_not_reached(replicas: Replicas, path: str) -> None:
    assert replicas.front.ask("GET", path)[0] in (400, 404)
    assert replicas.instances[1].ask("GET", "/metrics")[0] == 200  # the control


def test_another_name_is_refused(replicas: Replicas) -> None:
    headers = {**replicas.front.headers(), "Host": "evil.example.org"}
    assert replicas.front.ask("POST", "/mcp", b"{}", headers)[0] in (403, 421)


def test_an_instance_that_ends_loses_no_call(replicas: Replicas) -> None:
    """The last test of the module: the first instance is gone afterwards."""
    ending, staying = replicas.instances
    with ThreadPoolExecutor(6) as pool:
        slow = [pool.submit(replicas.front.run, "import time; time.sleep(2); print('slow')") for _ in range(4)]
        wait_until(lambda: replicas.runs() == 4)
        assert len(children_of(launcher_of(ending.process.pid))) == 2
        ending.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 4
        quick = [pool.submit(call_until_served, replicas.front, until) for _ in range(2)]
        assert [one.result().stdout for one in slow] == ["slow\n"] * 4
        assert all(one.result() > 5 for one in quick)
    assert ending.process.wait(timeout=10) == 0
    assert not os.path.exists(f"/proc/{ending.process.pid}")
    assert [replicas.front.run("print(1)").stdout for _ in range(6)] == ["1\n"] * 6
    assert staying.process.poll() is None


def call_until_served(front: Endpoint, until: float) -> int:
    """Calls answered; one that an ending instance refuses is made again, as its words ask for."""
    served = 0
    message = {"id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": {"code": "print(1)"}}}
    while time.monotonic() < until:
        status, _, messages = front.post(message)
        if status in (502, 503):  # the connection that the proxy kept was closed by then, or the last words of an end
            continue
        assert status == 200, messages
        result = messages[-1]["result"]
        if not result.get("isError"):
            served += 1
            continue
        assert "shutting down" in result["content"][0]["text"]
        time.sleep(0.1)
    return served
