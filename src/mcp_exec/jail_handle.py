"""[server] The server's hold on one jail: its pipes, its init, its end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from contextlib import ExitStack, suppress
from typing import NamedTuple

from mcp_exec.aio import wait_readable, write_all
from mcp_exec.causes import cannot_jail
from mcp_exec.cgroup.leaf import Leaf
from mcp_exec.errors import CannotJail, LauncherDied
from mcp_exec.jail.stage import RECORD, Kind
from mcp_exec.launcher.client import OUT_OF_DESCRIPTORS, LauncherClient

_BUILD_S = 20


class Record(NamedTuple):
    """A report of init (`jail.stage.RECORD`): value is an errno or the payload's wait status, by kind."""

    kind: Kind
    stage: int
    value: int
    cpu_ms: int
    peak_kib: int


class Jail:
    """One jail, single use: its pipes, its init's pidfd, its cgroup. `close` kills and reaps, always."""

    def __init__(self, launcher: LauncherClient, leaf: Leaf | None, slot: int) -> None:
        """leaf: the cgroup that init shall join; None where there is none. slot: unique among living jails."""
        self.launcher = launcher
        self.leaf = leaf
        self.slot = slot
        launcher.hold()
        self.pid = 0
        self._open: set[int] = set()
        self.code, self.stdin, self.stdout, self.stderr, self.status = -1, -1, -1, -1, -1
        self.init = -1

    async def start(self, *, ahead: bool) -> None:
        """Make pipes, ask for init. The far ends are closed here in any case. Not to be cut short.

        ahead: of its program, so that there is time to prepare for it.
        """
        with ExitStack() as far:
            try:
                code, self.code = self._pipe(far, far_is_read=True)
                stdin, self.stdin = self._pipe(far, far_is_read=True)
                stdout, self.stdout = self._pipe(far, far_is_read=False)
                stderr, self.stderr = self._pipe(far, far_is_read=False)
                status, self.status = self._pipe(far, far_is_read=False)
            except OSError as error:
                raise CannotJail(OUT_OF_DESCRIPTORS) from error
            theirs: tuple[int, ...] = (code, stdin, stdout, stderr, status)
            if self.leaf is not None:
                theirs = (*theirs, self.leaf.procs)
            self.pid, self.init = await self.launcher.start_jail(self.slot, theirs, ahead=ahead)
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
        if self.leaf is not None:
            self.leaf.kill()

    @property
    def has_spoken(self) -> bool:
        """Whether a report waits, or init is gone. Of a ready jail: it can no longer be used."""
        poller = select.poll()
        poller.register(self.status, select.POLLIN)
        return bool(poller.poll(0))

    async def next_record(self) -> Record | None:
        """The next report of init; None when init is gone without one."""
        await wait_readable(self.status)
        data = os.read(self.status, RECORD.size)
        if len(data) != RECORD.size:
            return None
        kind, *numbers = RECORD.unpack(data)
        return Record(Kind(kind), *numbers)

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
        if record.kind is not Kind.READY:
            raise cannot_jail(record.stage, record.value)

    async def close(self) -> None:
        """Kill, wait for init's death and with it everybody's, close everything. Not to be cut short."""
        try:
            if self.init >= 0:
                self.kill()
                await wait_readable(self.init)
        finally:
            for descriptor in tuple(self._open):
                self.close_descriptor(descriptor)
            if self.leaf is not None:
                await self.leaf.remove()
            self.launcher.release()


def send_at_once(jail: Jail, descriptor: int, data: bytes) -> memoryview:
    """Write what the pipe takes now, and give the rest for `deliver`; without a rest, close for EOF."""
    rest = memoryview(data)
    with suppress(BlockingIOError, BrokenPipeError):
        rest = rest[os.write(descriptor, rest) :]
    if not rest:
        jail.close_descriptor(descriptor)
    return rest


async def deliver(jail: Jail, descriptor: int, data: memoryview) -> None:
    """Write all, then close for EOF; a reader that is gone is no error of ours."""
    try:
        await write_all(descriptor, data)
    except BrokenPipeError:
        pass
    finally:
        jail.close_descriptor(descriptor)
