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
from mcp_exec.errors import Busy, LauncherDied
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail_handle import Jail, deliver
from mcp_exec.launcher.client import LauncherClient
from mcp_exec.model import ExecRequest, ExecResult
from mcp_exec.outcome import join
from mcp_exec.output import Output
from mcp_exec.policy import make_spec

_SHUTTING_DOWN = "the server is shutting down; call again, another instance or its successor will answer"


class Runner:
    """Runs at most `concurrency` programs at once, lets `queue` more wait, refuses the rest."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._launcher: LauncherClient | None = None
        self._spec: JailSpec | None = None
        self._bounds: Bounds | None = None
        self._slots = list(range(config.concurrency))
        self._free = asyncio.Semaphore(config.concurrency)
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    async def __aenter__(self) -> Self:
        """Start the launcher. Raises ConfigError where the interpreter, a policy or a cgroup cannot be used."""
        self._bounds = Bounds(self._config, lambda: self.launcher_pid)
        try:
            await self._ensure_launcher()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill every run, then the launcher; returns when nothing of ours is left."""
        await self._stop_runs()
        if self._launcher is not None:
            self._launcher.close()
        self.bounds.close()

    @property
    def bounds(self) -> Bounds:
        """What limits runs here."""
        if self._bounds is None:
            raise LauncherDied("the server has not started")
        return self._bounds

    @property
    def spec(self) -> JailSpec:
        """What the jails are made of now."""
        if self._spec is None:
            raise LauncherDied("the launcher has not started")
        return self._spec

    @property
    def launcher_pid(self) -> int:
        """The pid of the launcher at work."""
        if self._launcher is None:
            raise LauncherDied("the launcher has not started")
        return self._launcher.pid

    @property
    def draining(self) -> bool:
        """Whether new runs are refused because the server is about to end."""
        return self._draining

    @property
    def running(self) -> int:
        """Runs at work, and those whose jail is being taken apart."""
        return self._config.concurrency - len(self._slots)

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
        if len(self._tasks) >= self._config.concurrency + self._config.queue:
            raise Busy(
                f"{self._config.concurrency} runs and a queue of {self._config.queue} are taken; try again later"
            )
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[ExecResult] = loop.create_future()
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
        """The reply is given when the result is known; the slot is free only when everybody in the jail is dead."""
        async with self._free:
            slot = self._slots.pop()
            try:
                await self._run_in_slot(slot, request, output, reply)
            finally:
                self._slots.append(slot)

    async def _run_in_slot(
        self, slot: int, request: ExecRequest, output: Output, reply: asyncio.Future[ExecResult]
    ) -> None:
        launcher = await self._ensure_launcher()
        jail = Jail(self.bounds.make_leaf())
        try:
            await run_whole(jail.start(launcher, slot))
            await jail.wait_ready()
            result = await self._execute(jail, request, output)
            if not reply.done():
                reply.set_result(result)
        finally:
            await run_whole(jail.close())

    async def _ensure_launcher(self) -> LauncherClient:
        async with self._starting:
            if self._launcher is None or not self._launcher.alive:
                if self._launcher is not None:
                    self._launcher.close()
                self._launcher = LauncherClient.spawn(self._config)
                self._spec = make_spec(
                    self._config,
                    await self._launcher.greet(),
                    self.bounds.limits,
                    cgroup=self.bounds.subtree is not None,
                )
                self._launcher.configure(self._spec)
            return self._launcher

    async def _execute(self, jail: Jail, request: ExecRequest, output: Output) -> ExecResult:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        pumps = ((0, jail.stdout), (1, jail.stderr))
        for stream, descriptor in pumps:
            loop.add_reader(descriptor, self._pump, output, stream, descriptor)
        writers = [
            loop.create_task(deliver(jail, jail.code, request.code.encode())),
            loop.create_task(deliver(jail, jail.stdin, request.stdin.encode())),
        ]
        record, timed_out = None, False
        watching = self.bounds.watching(jail.pid, jail.kill, jail.leaf)
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
