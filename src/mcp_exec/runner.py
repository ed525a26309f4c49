"""[server] One run, from code to reaped: deadline, caps, cancel = kill.

The end of a run is init's report or our clock, never the end of a pipe: a descendant may hold one open for ever.
Everything read here comes from the jail and is hostile bytes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack, suppress
from typing import Self

from mcp_exec.aio import run_whole, wait_readable, write_all
from mcp_exec.config import Config
from mcp_exec.errors import Busy, CannotJail, LauncherDied
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail.stage import RECORD, Kind, Stage
from mcp_exec.launcher.client import LauncherClient
from mcp_exec.model import ExecRequest, ExecResult, Usage
from mcp_exec.policy import make_spec

_BUILD_S = 20
_CHUNK = 65536
_CAUSES = {
    Stage.FORK: "user namespaces may be forbidden (user.max_user_namespaces, kernel.unprivileged_userns_clone)",
    Stage.OUTER_USER_NAMESPACE: "an AppArmor restriction on user namespaces, as on Ubuntu 24.04, is likely",
    Stage.ROOT: "pivot_root or mount is filtered here, as under Docker's default seccomp profile",
    Stage.BINDS: "Linux 5.12 is needed (mount_setattr)",
    Stage.SECCOMP: "the kernel lacks CONFIG_SECCOMP_FILTER",
}


class Output:
    """Both streams under one cap, read as they come, so that partial output survives a kill."""

    def __init__(self, cap: int) -> None:
        self._left = cap
        self.streams = (bytearray(), bytearray())
        self.truncated = False

    @property
    def size(self) -> int:
        """Bytes kept so far."""
        return len(self.streams[0]) + len(self.streams[1])

    def read(self, stream: int, descriptor: int) -> bool:
        """One read without blocking; False at EOF or when nothing is there."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        kept = chunk[: self._left]
        self.streams[stream].extend(kept)
        self._left -= len(kept)
        self.truncated = self.truncated or len(kept) < len(chunk)
        return bool(chunk)

    def text(self, stream: int) -> str:
        """UTF-8 with replacement; a character that the cap split is left out."""
        data = bytes(self.streams[stream])
        return (_whole_characters(data) if self.truncated else data).decode("utf-8", "replace")


def _whole_characters(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if width > back else data
    return data


class Jail:
    """One jail, single use: its pipes, its init's pidfd. `close` kills and reaps, always."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.code, self.stdin, self.stdout, self.stderr, self.status = -1, -1, -1, -1, -1
        self.init = -1

    async def start(self, launcher: LauncherClient, slot: int) -> None:
        """Make pipes, ask for init. The far ends are closed here in any case. Not to be cut short."""
        with ExitStack() as far:
            code, self.code = self._pipe(far, far_is_read=True)
            stdin, self.stdin = self._pipe(far, far_is_read=True)
            stdout, self.stdout = self._pipe(far, far_is_read=False)
            stderr, self.stderr = self._pipe(far, far_is_read=False)
            status, self.status = self._pipe(far, far_is_read=False)
            self.init = await launcher.start_jail(slot, (code, stdin, stdout, stderr, status))
            self._open.add(self.init)

    def _pipe(self, far: ExitStack, *, far_is_read: bool) -> tuple[int, int]:
        read, write = os.pipe()
        theirs, ours = (read, write) if far_is_read else (write, read)
        far.callback(os.close, theirs)
        self._open.add(ours)
        os.set_blocking(ours, False)
        return theirs, ours

    def close_descriptor(self, descriptor: int) -> None:
        """Close one of ours, at most once: a number closed twice may be another run's by then."""
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def kill(self) -> None:
        """SIGKILL to init: the kernel takes the rest of the pid namespace with it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init, signal.SIGKILL)

    async def next_record(self) -> tuple[Kind, int, int, int, int] | None:
        """The next report of init; None when init is gone without one."""
        await wait_readable(self.status)
        data = os.read(self.status, RECORD.size)
        if len(data) != RECORD.size:
            return None
        kind, stage, value, cpu_ms, peak_kib = RECORD.unpack(data)
        return Kind(kind), stage, value, cpu_ms, peak_kib

    async def wait_ready(self) -> None:
        """Until the payload is confined and blocks on its code. Raises CannotJail with stage and cause."""
        try:
            async with asyncio.timeout(_BUILD_S):
                record = await self.next_record()
        except TimeoutError:
            raise CannotJail(
                f"the jail was not ready after {_BUILD_S} s; the host is overloaded, or a mount hangs"
            ) from None
        if record is None:
            raise LauncherDied("the jail ended while it was built (init or the launcher was killed); call again")
        if record[0] is not Kind.READY:
            raise cannot_jail(record[1], record[2])

    async def close(self) -> None:
        """Kill, wait for init's death and with it everybody's, close everything. Not to be cut short."""
        try:
            if self.init >= 0:
                self.kill()
                await wait_readable(self.init)
        finally:
            for descriptor in tuple(self._open):
                self.close_descriptor(descriptor)


def cannot_jail(stage: int, errno: int) -> CannotJail:
    """The words for a stage and an errno that a child reported."""
    known = Stage(stage) if stage in Stage._value2member_map_ else None
    name = known.name.lower().replace("_", " ") if known else str(stage)
    reason = os.strerror(errno) if errno else "an internal error"
    cause = _CAUSES.get(known) if known else None
    return CannotJail(f"the jail could not be built at stage {name!r}: {reason}" + (f"; {cause}" if cause else ""))


async def _deliver(jail: Jail, descriptor: int, data: bytes) -> None:
    """Write all, then close for EOF; a reader that is gone is no error of ours."""
    try:
        await write_all(descriptor, data)
    except BrokenPipeError:
        pass
    finally:
        jail.close_descriptor(descriptor)


class Runner:
    """Runs at most `concurrency` programs at once, lets `queue` more wait, refuses the rest."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._launcher: LauncherClient | None = None
        self._spec: JailSpec | None = None
        self._slots = list(range(config.concurrency))
        self._free = asyncio.Semaphore(config.concurrency)
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start the launcher. Raises ConfigError where the interpreter or a policy cannot be used."""
        try:
            await self._ensure_launcher()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill every run, then the launcher; returns when nothing of ours is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._launcher is not None:
            self._launcher.close()

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

    async def run(self, request: ExecRequest, output: Output | None = None) -> ExecResult:
        """Run one program; `output` may be watched meanwhile. Raises Busy, CannotJail or LauncherDied.

        Cancelling it kills the run. The run has a task of its own, so that its reaping is not cut short by a caller
        that is cancelled again and again, as anyio's scopes do.
        """
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
            reply.set_exception(error or Busy("the server is shutting down"))

    async def _run(self, request: ExecRequest, output: Output, reply: asyncio.Future[ExecResult]) -> None:
        """The reply is given when the result is known; the slot is free only when everybody in the jail is dead."""
        async with self._free:
            slot = self._slots.pop()
            jail = Jail()
            try:
                await run_whole(jail.start(await self._ensure_launcher(), slot))
                await jail.wait_ready()
                result = await self._execute(jail, request, output)
                if not reply.done():
                    reply.set_result(result)
            finally:
                await run_whole(jail.close())
                self._slots.append(slot)

    async def _ensure_launcher(self) -> LauncherClient:
        async with self._starting:
            if self._launcher is None or not self._launcher.alive:
                if self._launcher is not None:
                    self._launcher.close()
                self._launcher = LauncherClient.spawn(self._config)
                self._spec = make_spec(self._config, await self._launcher.greet())
                self._launcher.configure(self._spec)
            return self._launcher

    async def _execute(self, jail: Jail, request: ExecRequest, output: Output) -> ExecResult:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        pumps = ((0, jail.stdout), (1, jail.stderr))
        for stream, descriptor in pumps:
            loop.add_reader(descriptor, self._pump, output, stream, descriptor)
        writers = [
            loop.create_task(_deliver(jail, jail.code, request.code.encode())),
            loop.create_task(_deliver(jail, jail.stdin, request.stdin.encode())),
        ]
        try:
            async with asyncio.timeout(request.timeout_s):
                record = await jail.next_record()
            timed_out = False
        except TimeoutError:
            record, timed_out = None, True
        finally:
            jail.kill()
            for stream, descriptor in pumps:
                loop.remove_reader(descriptor)
                _drain(output, stream, descriptor)
            for writer in writers:
                writer.cancel()
            await run_whole(asyncio.wait(writers))
        if record is None and not timed_out:
            raise LauncherDied("the jail ended without a report (init or the launcher was killed); call again")
        return _result(output, record, request, started, timed_out=timed_out)

    @staticmethod
    def _pump(output: Output, stream: int, descriptor: int) -> None:
        if not output.read(stream, descriptor):
            asyncio.get_running_loop().remove_reader(descriptor)


def _drain(output: Output, stream: int, descriptor: int) -> None:
    """What is in the pipe now, at most its capacity: whoever writes on is being killed."""
    for _ in range(1 + (1 << 20) // _CHUNK):
        if not output.read(stream, descriptor):
            return


def _result(
    output: Output,
    record: tuple[Kind, int, int, int, int] | None,
    request: ExecRequest,
    started: float,
    *,
    timed_out: bool,
) -> ExecResult:
    stderr = output.text(1)
    exit_code, usage = -1, Usage(jail="namespaces")
    if record is not None:
        ended = os.waitstatus_to_exitcode(record[2])
        exit_code = ended if ended >= 0 else 128 - ended
        usage = Usage(jail="namespaces", peak_memory_bytes=record[4] * 1024, cpu_time_ms=record[3])
    if timed_out:
        stderr += ("\n" if stderr and not stderr.endswith("\n") else "") + (
            f"mcp-exec: the time limit of {request.timeout_s} s ended the run\n"
        )
    return ExecResult(
        stdout=output.text(0),
        stderr=stderr,
        exit_code=exit_code,
        duration_ms=round((time.monotonic() - started) * 1000),
        truncated=output.truncated,
        timed_out=timed_out,
        usage=usage,
    )


async def run_once(config: Config, request: ExecRequest) -> ExecResult:
    """One run on a runner of its own, for the command line."""
    async with Runner(config) as runner:
        return await runner.run(request)
