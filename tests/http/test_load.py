"""32 clients that call, cancel and disconnect at random: only what the contract names, and nothing is left.

MCP_EXEC_LOAD_S: how long, in seconds; `make test-load` takes 60.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

from support.client import Identity, to_answer
from support.http import HttpServer, modern, modern_headers, open_call, session_header
from support.leftovers import at_rest, rss_kib, settled
from support.processes import launcher_of

LOAD_S = float(os.environ.get("MCP_EXEC_LOAD_S", "20"))
CLIENTS = 32
ENVIRON = {"MCP_EXEC_CONCURRENCY": "4", "MCP_EXEC_QUEUE": "16"}
SLEEP = "import time; time.sleep(120)"


class Visitor:
    """One client with a session of its own; every act counts what came of it."""

    def __init__(self, server: HttpServer, number: int, until: float) -> None:
        self.server = server
        self.until = until
        self.random = random.Random(number)
        self.seen: collections.Counter[str] = collections.Counter()
        self.session = server.session()

    def visit(self) -> collections.Counter[str]:
        acts = [self.call] * 6 + [self.fail, self.time_out, self.cancel, self.disconnect, self.leave_the_session]
        while time.monotonic() < self.until:
            self.random.choice(acts)()
        self.delete()
        return self.seen

    def ask(self, code: str, expected: tuple[int, str], name: str, **arguments: object) -> None:
        arguments = {"code": code, **arguments}
        message = {"id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": arguments}}
        status, _, messages = self.server.post(message, **session_header(self.session))
        assert status == 200, (status, messages)
        result = messages[-1]["result"]
        if result.get("isError"):
            assert "queue of 16" in result["content"][0]["text"], result
            self.seen["busy"] += 1
            time.sleep(0.2)
            return
        answer = to_answer(result)
        assert (answer.exit_code, answer.stdout) == expected, answer
        self.seen[name] += 1

    def call(self) -> None:
        number = self.random.randrange(10**9)
        self.ask(f"open('x', 'x').write('y'); print({number})", (0, f"{number}\n"), "called")

    def fail(self) -> None:
        self.ask("1 / 0", (1, ""), "failed")

    def time_out(self) -> None:
        self.ask("print('a')\nwhile True: pass", (-1, "a\n"), "timed out", timeout_s=1)

    def cancel(self) -> None:
        with open_call(self.server, SLEEP, self.session):
            time.sleep(self.random.random() / 4)
            note = {"method": "notifications/cancelled", "params": {"requestId": 7}}
            assert self.server.post(note, **session_header(self.session))[0] == 202
        self.seen["cancelled"] += 1

    def disconnect(self) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        headers = self.server.headers(**modern_headers("tools/call", "exec"))
        params = modern({"name": "exec", "arguments": {"code": SLEEP}})
        with contextlib.closing(self.server.connect()) as connection:
            connection.request("POST", "/mcp", json.dumps({**message, "params": params}).encode(), headers)
            time.sleep(self.random.random() / 4)
        self.seen["disconnected"] += 1

    def leave_the_session(self) -> None:
        with open_call(self.server, SLEEP, self.session):
            time.sleep(self.random.random() / 4)
            self.delete()
        self.session = self.server.session()
        self.seen["left"] += 1

    def delete(self) -> None:
        headers = self.server.headers(**session_header(self.session))
        assert self.server.ask("DELETE", "/mcp", headers=headers)[0] == 200


def load(server: HttpServer, seconds: float) -> collections.Counter[str]:
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(CLIENTS) as pool:
        visits = [
            pool.submit(lambda number: Visitor(server, number, until).visit(), number) for number in range(CLIENTS)
        ]
        return sum((visit.result() for visit in visits), collections.Counter())


def test_a_crowd_leaves_nothing_behind(root_identity: Identity) -> None:
    with HttpServer(ENVIRON) as server:
        pids = (server.process.pid, launcher_of(server.process.pid))
        load(server, LOAD_S / 4)
        before, memory = at_rest(pids[0]), [rss_kib(pid) for pid in pids]
        seen = load(server, LOAD_S)
        assert settled(pids[0], before) == before
        assert all(rss_kib(pid) < 1.2 * earlier for pid, earlier in zip(pids, memory, strict=True)), memory
        assert all(seen[name] > LOAD_S / 10 for name in ("failed", "timed out", "cancelled", "disconnected", "left"))
        assert seen["called"] > LOAD_S, seen
        outcomes = server.ask("GET", "/metrics")[2].decode()
        assert 'mcp_exec_calls_total{outcome="internal"} 0.0' in outcomes
        assert 'mcp_exec_calls_total{outcome="no_jail"} 0.0' in outcomes
        assert not [line for line in server.log if "Traceback" in line or "level=error" in line]
        assert server.run("print(1)", server.session()).stdout == "1\n"
