"""What meets in the pool within one turn of the loop: with a real runner in this process, so that the turn can be chosen."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.beds import skip_or_fail
from support.processes import children_of
from support.waiting import wait_until

from mcp_exec.config import load_config
from mcp_exec.jail_handle import Jail
from mcp_exec.model import ExecRequest
from mcp_exec.pool import Pool, State
from mcp_exec.runner import Runner

LEAN = {"MCP_EXEC_PREIMPORT": "", "MCP_EXEC_CONCURRENCY": "2", "MCP_EXEC_WARM": "1", "MCP_EXEC_CGROUP": "off"}
REQUEST = ExecRequest(code="print(1)", timeout_s=30)


def with_runner(scenario: Callable[[Runner], Coroutine[Any, Any, None]], **environ: str) -> None:
    if os.geteuid() != 0:
        skip_or_fail("the runner is in this process, which is root's in the other bed")

    async def main() -> None:
        async with Runner(load_config({**os.environ, **LEAN, **environ})) as runner:
            await asyncio.wait_for(scenario(runner), 60)

    asyncio.run(main())


async def is_ready(runner: Runner) -> None:
    for _ in range(500):
        if runner.ready:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no jail became ready")


@pytest.mark.parametrize("turns", range(6))
def test_a_jail_that_is_being_given_up_is_given_to_nobody(turns: int) -> None:
    async def scenario(runner: Runner) -> None:
        pool = runner._pool
        runner.keep_warm()
        for _ in range(3):
            pool._pressed = False
            pool.fill()
            await is_ready(runner)
            run = asyncio.ensure_future(runner.run(REQUEST))
            for _ in range(turns):
                await asyncio.sleep(0)
            pool._pressed = True
            pool.fill()
            assert (await run).stdout == "1\n"

    with_runner(scenario)


def test_a_launcher_without_room_for_two_is_replaced_between_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    own = children_of(os.getpid())

    async def scenario(runner: Runner) -> None:
        monkeypatch.setattr(runner.bounds, "has_room_for", lambda _pid: False)
        runner.keep_warm()
        seen, slowest = set[int](), 0.0
        for _ in range(40):
            started = time.monotonic()
            assert (await runner.run(REQUEST)).stdout == "1\n"
            slowest = max(slowest, time.monotonic() - started)
            now = children_of(os.getpid()) - own
            assert len(now) <= 1, now
            seen |= now
        assert len(seen) >= 3
        assert slowest < 15  # an answer that was waited for in vain would take 20
        two = await asyncio.gather(*(runner.run(REQUEST) for _ in range(2)))
        assert [result.stdout for result in two] == ["1\n"] * 2

    with_runner(scenario, MCP_EXEC_LAUNCHER_RUNS="3")
    wait_until(lambda: children_of(os.getpid()) == own)


def test_tending_goes_on_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [True, OSError(24, "Too many open files"), False]

    def is_pressed() -> bool:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return bool(answer)

    async def scenario(runner: Runner) -> None:
        monkeypatch.setattr(runner._pool, "_is_pressed", is_pressed)
        monkeypatch.setattr("mcp_exec.pool._LOOK_S", 0.2)
        runner.keep_warm()
        await asyncio.sleep(0.5)
        await is_ready(runner)

    with_runner(scenario)


def test_a_cancelled_run_gives_its_slot_back_at_every_moment() -> None:
    async def scenario(runner: Runner) -> None:
        runner.keep_warm()
        for turns in range(60):
            run = asyncio.ensure_future(runner.run(REQUEST))
            for _ in range(turns):
                await asyncio.sleep(0)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        assert (await runner.run(REQUEST)).stdout == "1\n"
        while runner.running:
            await asyncio.sleep(0.01)
        await is_ready(runner)
        assert len(runner._pool._slots) == 2
        assert len(set(runner._pool._slots)) == 2

    with_runner(scenario)


def test_there_is_no_way_back() -> None:
    order = list(State)
    pool = Pool(None, lambda: None, lambda: False, warm=1, at_once=1)  # type: ignore[arg-type]
    for before in order[:-1]:
        for after in order[: order.index(before) + 1]:
            jail = Jail.__new__(Jail)
            pool._states[jail] = before
            with pytest.raises(AssertionError, match="cannot go"):
                pool._move(jail, after)
