"""Jails that are kept ready, and launchers that are replaced: nobody notices but by the speed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.client import COLD, StdioClient, own_identity, to_answer
from support.http import HttpServer
from support.processes import alive, children_of, launcher_of
from support.waiting import wait_until

LEAN = {"MCP_EXEC_PREIMPORT": "json", "MCP_EXEC_CONCURRENCY": "2", "MCP_EXEC_WARM": "2"}
#: what a program can learn of the interpreter that it is a copy of
TELL = "import json\nprint(json.dumps([hash('x'), id(object), id(json)]))"
LONG = "import time\nprint('begun', flush=True)\ntime.sleep(3)\nprint('ended')"


@pytest.fixture
def client(root_identity: object) -> Iterator[StdioClient]:
    with StdioClient(own_identity(), LEAN) as found:
        wait_until(lambda: len(jails(found)) == 2)
        yield found


def launchers(client: StdioClient) -> set[int]:
    return children_of(client.process.pid)


def jails(client: StdioClient) -> set[int]:
    """The inits, of all launchers."""
    return {init for launcher in launchers(client) for init in children_of(launcher)}


def fresh(client: StdioClient, before: set[int]) -> bool:
    """Whether two others stand where those were."""
    now = jails(client)
    return len(now) == 2 and not now & before


def test_a_jail_is_used_once_and_another_one_takes_its_place(client: StdioClient) -> None:
    for _ in range(3):
        before = jails(client)
        answer = client.run("open('/workspace/mine', 'x'); open('/tmp/mine', 'x'); print('first')")
        assert answer.stdout == "first\n", answer
        wait_until(lambda: len(jails(client)) == 2 and len(jails(client) & before) == 1)  # noqa: B023


def test_more_calls_than_ready_jails_are_all_at_work_at_once() -> None:
    environ = {**LEAN, "MCP_EXEC_CONCURRENCY": "6", "MCP_EXEC_WARM": "1"}
    with StdioClient(own_identity(), environ) as client:
        client.run("print(1)")
        started = time.monotonic()
        calls = [client.start_call("import time; time.sleep(2); print('ran')") for _ in range(6)]
        assert [to_answer(client.finish(*call)).stdout for call in calls] == ["ran\n"] * 6
        assert time.monotonic() - started < 6  # one after another they would take 12


def test_a_ready_jail_that_died_is_not_used_and_is_replaced(client: StdioClient) -> None:
    for wait in (False, True):
        before = jails(client)
        for init in before:
            os.kill(init, signal.SIGKILL)
        wait_until(lambda: not alive(before))  # noqa: B023
        if wait:  # without a call to notice it
            wait_until(lambda: fresh(client, before))  # noqa: B023
        assert client.run("print('next')").stdout == "next\n"
        wait_until(lambda: len(jails(client)) == 2)


def test_a_launcher_that_died_idle_is_replaced_with_its_jails(client: StdioClient) -> None:
    for wait in (False, True):
        (launcher,) = launchers(client)
        before = jails(client)
        os.kill(launcher, signal.SIGKILL)
        wait_until(lambda: not alive({launcher, *before}))  # noqa: B023
        if wait:
            wait_until(lambda: fresh(client, before))  # noqa: B023
        assert client.run("print('next')").stdout == "next\n"
        wait_until(lambda: fresh(client, before))  # noqa: B023
        assert launchers(client) != {launcher}


def test_without_warm_none_is_kept() -> None:
    with StdioClient(own_identity(), {**LEAN, **COLD}) as client:
        client.run("print(1)")
        wait_until(lambda: not jails(client))
        time.sleep(1.5)
        assert not jails(client)


def test_the_gauge_tells_how_many_are_ready(root_identity: object) -> None:
    with HttpServer({**LEAN, "MCP_EXEC_WARM": "3", "MCP_EXEC_STATELESS": "true"}) as server:
        wait_until(lambda: b"\nmcp_exec_warm 3.0\n" in server.ask("GET", "/metrics")[2])
        assert len(children_of(launcher_of(server.process.pid))) == 3
        assert server.run("print(1)").stdout == "1\n"
        wait_until(lambda: b"\nmcp_exec_warm 3.0\n" in server.ask("GET", "/metrics")[2])


def test_the_launcher_is_replaced_after_so_many_runs_while_others_run() -> None:
    with StdioClient(own_identity(), {**LEAN, "MCP_EXEC_LAUNCHER_RUNS": "4"}) as client:
        (first,) = launchers(client)
        running = client.start_call(LONG)
        tells = [client.probe(TELL)]
        assert client.probe(TELL) == tells[0]  # the control: of one launcher all programs are copies
        client.run("print(1)")
        wait_until(lambda: launchers(client) > {first})
        wait_until(lambda: any(len(children_of(one)) == 2 for one in launchers(client) - {first}))
        tells.append(client.probe(TELL))
        assert all(ours != theirs for ours, theirs in zip(*tells, strict=True)), tells
        assert first in launchers(client)
        answer = to_answer(client.finish(*running))
        assert (answer.stdout, answer.stderr, answer.exit_code) == ("begun\nended\n", "", 0)
        wait_until(lambda: first not in launchers(client))
        assert len(launchers(client)) == 1


def test_the_launcher_is_replaced_when_it_is_old_and_was_used() -> None:
    with StdioClient(own_identity(), {**LEAN, "MCP_EXEC_LAUNCHER_AGE_S": "2"}) as client:
        seen = set(launchers(client))  # the server has looked around in a jail of it
        wait_until(lambda: len(launchers(client)) == 1 and launchers(client) != seen, 10)
        unused = launchers(client)
        time.sleep(4)
        assert launchers(client) == unused
        client.run("print(1)")
        wait_until(lambda: not launchers(client) & unused, 10)
        assert client.run("print('next')").stdout == "next\n"


def test_calls_are_answered_without_a_pause_while_launchers_come_and_go() -> None:
    with StdioClient(own_identity(), {**LEAN, "MCP_EXEC_LAUNCHER_RUNS": "5"}) as client:
        seen = set[int]()
        for number in range(150):
            answer = client.run(f"print({number})")
            assert (answer.stdout, answer.stderr) == (f"{number}\n", "")
            seen |= launchers(client)
        assert len(seen) >= 3
        wait_until(lambda: len(launchers(client)) == 1)


def test_without_warm_jails_it_is_replaced_as_well() -> None:
    with StdioClient(own_identity(), {**LEAN, **COLD, "MCP_EXEC_LAUNCHER_RUNS": "3"}) as client:
        before = client.probe(TELL)
        wait_until(lambda: client.probe(TELL) != before, 20)


def test_without_descriptors_the_words_say_so_and_the_next_call_works() -> None:
    environ = {**LEAN, "MCP_EXEC_CONCURRENCY": "10", "MCP_EXEC_WARM": "4"}
    narrow = replace(own_identity(), prefix=("prlimit", "--nofile=60:60"))
    with StdioClient(narrow, environ) as client:
        for _ in range(3):
            calls = [client.start_call("import time; time.sleep(0.5); print('ran')") for _ in range(10)]
            results = [client.finish(*call) for call in calls]
            failed = [result["content"][0]["text"] for result in results if result.get("isError")]
            assert failed
            assert all("file descriptor" in words or "launcher" in words for words in failed), failed
        assert client.run("print('next')").stdout == "next\n"


def test_strict_each_program_has_an_interpreter_of_its_own() -> None:
    with StdioClient(own_identity(), {**COLD, "MCP_EXEC_PREIMPORT": ""}) as client:
        first, second = client.probe(TELL), client.probe(TELL)
        assert all(ours != theirs for ours, theirs in zip(first, second, strict=True)), (first, second)
        told = client.probe(
            "import json, os, sys\n"
            "print(json.dumps([sys.argv, __name__, __file__, sys.path[0], os.getcwd(), os.listdir(), sys.prefix,"
            " 'pandas' in sys.modules, sorted(map(int, os.listdir('/proc/self/fd')))[:3], os.getpid()]))"
        )
        assert told[:6] == [["main.py"], "__main__", "/workspace/main.py", "/workspace", "/workspace", ["main.py"]]
        assert told[7:] == [False, [0, 1, 2], 2]
        assert json.loads(json.dumps(told[6])) == own_prefix()
        failed = client.run("def f():\n    1 / 0\nf()", stdin="x")
        assert failed.exit_code == 1
        assert failed.stderr.splitlines()[:2] == [
            "Traceback (most recent call last):",
            '  File "/workspace/main.py", line 3, in <module>',
        ]
        assert client.run("print(input())", stdin="given\n").stdout == "given\n"
        partial = client.run("print('before')\nwhile True: pass", timeout_s=1)
        assert (partial.stdout, partial.timed_out) == ("before\n", True)


def own_prefix() -> str:
    import sys

    return sys.prefix
