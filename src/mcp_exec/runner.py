"""[server] One run, from code to reaped: deadline, caps, cancel = kill.

The end of a run is init's report or our clock, never the end of a pipe: a descendant may hold one open for ever.
Everything read here comes from the jail and is hostile bytes.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Self

from mcp_exec.aio import run_whole
from mcp_exec.bounds import Bounds
from mcp_exec.config import Config
from mcp_exec.errors import Busy
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail_handle import Jail, deliver, send_at_once
from mcp_exec.launchers import Launchers
from mcp_exec.model import ExecRequest, ExecResult
from mcp_exec.outcome import join
from mcp_exec.output import Output
from mcp_exec.pool import Pool, State

_SHUTTING_DOWN = "the server is shutting down; call again, another instance or its successor will answer"


class Runner:
    """Runs at most `concurrency` programs at once, lets `queue` more wait, refuses the rest."""

    def __init__(self, config: Config, loading: asyncio.Task[None] | None = None) -> None:
        """To be entered. Raises ConfigError where a cgroup that was asked for cannot be used.

        loading: what must be in memory before it is divided.
        """
        self._config = config
        self.bounds = Bounds(config)
        self._launchers = Launchers(config, self.bounds, loading)
        self._pool = Pool(
            self._launchers,
            self.bounds.make_leaf,
            self.bounds.is_pressed,
            warm=config.warm,
            at_once=config.concurrency,
        )
        self._free = asyncio.Semaphore(config.concurrency)
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: set[asyncio.Future[ExecResult]] = set()
        self._draining = False

    async def __aenter__(self) -> Self:
        """Start the launcher. Raises ConfigError where the interpreter or a policy cannot be used."""
        try:
            await self._launchers.current()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill every run, then the launcher; returns when nothing of ours is left."""
        await self._stop_runs()
        await self._pool.close()
        self._launchers.close()
        self.bounds.close()

    def keep_warm(self) -> None:
        """From now on jails are kept ready."""
        self._pool.keep_warm(self.bounds.limits.warm)

    @property
    def spec(self) -> JailSpec:
        """What the jails are made of now."""
        return self._launchers.spec

    @property
    def ready(self) -> int:
        """Jails that wait for a program."""
        return self._pool.count(State.READY)

    @property
    def draining(self) -> bool:
        """Whether new runs are refused because the server is about to end."""
        return self._draining

    @property
    def running(self) -> int:
        """Runs at work, and those whose jail is being taken apart."""
        return self._running

    @property
    def waiting(self) -> int:
        """Runs in the queue."""
        return len(self._tasks) - self.running

    async def drain(self, seconds: float) -> None:
        """Refuse new runs, let those at work and in the queue end; kill what is left after so many seconds."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        await self._stop_runs()

    async def _stop_runs(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, request: ExecRequest, output: Output | None = None) -> ExecResult:
        """Run one program; `output` may be watched meanwhile. Raises Busy, CannotJail or LauncherDied.

        Cancelling it kills the run. The run has a task of its own, so that its reaping is not cut short by a caller
        that is cancelled again and again, as anyio's scopes do.
        """
        if self._draining:
            raise Busy(_SHUTTING_DOWN)
        if len(self._unanswered) >= self._config.concurrency + self._config.queue:
            raise Busy(
                f"{self._config.concurrency} runs and a queue of {self._config.queue} are taken; try again later"
            )
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[ExecResult] = loop.create_future()
        self._unanswered.add(reply)
        reply.add_done_callback(self._unanswered.discard)
        task = loop.create_task(self._run(request, output or Output(self._config.max_output_bytes), reply))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(done, reply))
        try:
            return await reply
        except asyncio.CancelledError:
            task.cancel()
            raise

    def _forget(self, task: asyncio.Task[None], reply: asyncio.Future[ExecResult]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if not reply.done():
            reply.set_exception(error or Busy(_SHUTTING_DOWN))

    async def _run(self, request: ExecRequest, output: Output, reply: asyncio.Future[ExecResult]) -> None:
        """The reply is given when the result is known; its place is free only when everybody in the jail is dead."""
        async with self._free:
            self._running += 1
            try:
                await self._run_in_jail(request, output, reply)
            finally:
                self._running -= 1

    async def _run_in_jail(self, request: ExecRequest, output: Output, reply: asyncio.Future[ExecResult]) -> None:
        jail = await self._pool.take()
        try:
            result = await self._execute(jail, request, output)
            if not reply.done():
                reply.set_result(result)
        finally:
            await run_whole(self._pool.end(jail))

    async def _execute(self, jail: Jail, request: ExecRequest, output: Output) -> ExecResult:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        writers = [
            loop.create_task(deliver(jail, descriptor, rest))
            for descriptor, text in ((jail.stdin, request.stdin), (jail.code, request.code))
            if (rest := send_at_once(jail, descriptor, text.encode()))
        ]
        pumps = ((0, jail.stdout), (1, jail.stderr))
        for stream, descriptor in pumps:
            loop.add_reader(descriptor, self._pump, output, stream, descriptor)
        record, timed_out = None, False
        watching = self.bounds.watching(jail)
        try:
            with watching as facts:
                async with asyncio.timeout(request.timeout_s):
                    record = await jail.next_record()
        except TimeoutError:
            timed_out = True
        finally:
            duration_ms = round((time.monotonic() - started) * 1000)
            jail.kill()
            for stream, descriptor in pumps:
                loop.remove_reader(descriptor)
                output.drain(stream, descriptor)
            for writer in writers:
                writer.cancel()
            if writers:
                await run_whole(asyncio.wait(writers))
        limits = facts(not timed_out and (record is None or record.value == signal.SIGKILL))
        return join(request, output, record, limits, self.bounds.limits, duration_ms=duration_ms, timed_out=timed_out)

    @staticmethod
    def _pump(output: Output, stream: int, descriptor: int) -> None:
        if not output.read(stream, descriptor):
            asyncio.get_running_loop().remove_reader(descriptor)


async def run_once(config: Config, request: ExecRequest) -> ExecResult:
    """One run on a runner of its own, for the command line."""
    async with Runner(config) as runner:
        return await runner.run(request)
