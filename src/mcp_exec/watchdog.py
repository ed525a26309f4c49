"""[server] Memory limits where no cgroup is to be had: look at the processes 40 times a second, kill at the limit.

Resident memory is counted, shared pages once. Memory that is not mapped is not seen: memfds and System V segments are
denied in this case (policies/seccomp/without-cgroup.json), the workspace has its own size.
Everything read here is the kernel's word on hostile processes: any of them may be gone at any moment.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcp_exec.limits import LimitFacts, Limits

_PERIOD_S = 0.025
_RECOUNT_S = 0.25
_CLAIM_S = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watched:
    """One run: what it holds now, whether that ended it, and whether more than its init could be seen."""

    def __init__(self, init: int, launcher: int, kill: Callable[[], None], kills_before: int) -> None:
        self.kills_before = kills_before
        self.held = self.most = 0
        self.seen = False
        self.killed_at: int | None = None
        self._init = init
        self._launcher = launcher
        self._kill = kill
        self._shared = 0  # counted more than once in the plain sum, when last counted exactly
        self._counted = 0.0

    def look(self, limit: int) -> None:
        """Count. The plain sum is cheap and too high; the exact one is made when that matters."""
        pids = list(_tree(self._init))
        plain = sum(map(resident, pids))
        self.seen = self.seen or any(map(resident, pids[1:]))
        now = time.monotonic()
        if plain > limit and (plain - self._shared > limit or now - self._counted > _RECOUNT_S):
            inherited = _anonymous(self._launcher)
            self._shared = max(0, plain - sum(_proportional(pid, inherited) for pid in pids))
            self._counted = now
        self.held = max(0, plain - self._shared)
        self.most = max(self.most, self.held)

    def end(self, limit: int) -> None:
        """Kill, because of `limit`."""
        self.killed_at = limit
        self._kill()


class Watchdog:
    """Holds the memory limits of all runs that are being watched."""

    def __init__(self, limits: Limits, kills: Callable[[], int]) -> None:
        """kills: counts those that the kernel ended for memory in the cgroup around us."""
        self._limits = limits
        self._kills = kills
        self._kills_seen = kills()
        self._unclaimed: list[float] = []  # when they were seen
        self._runs: set[Watched] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, init: int, launcher: int, kill: Callable[[], None]) -> Iterator[Watched]:
        """Watch the run of this init, which has its first pages from the launcher; `kill` must end all of it."""
        self._count_kills()
        run = Watched(init, launcher, kill, self._kills_seen)
        self._runs.add(run)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield run
        finally:
            self._runs.discard(run)

    def facts(self, run: Watched, *, killed: bool) -> LimitFacts:
        """What is known of a run's limits, at its end; killed: by a SIGKILL, whoever sent it."""
        if killed and run.killed_at is None:
            self._count_kills()
            if self._kills_seen > run.kills_before:
                del self._unclaimed[:1]
                run.killed_at = self._around
        return LimitFacts(memory_limit_bytes=run.killed_at, held_bytes=run.most)

    async def _watch(self) -> None:
        try:
            while self._runs:
                await asyncio.sleep(_PERIOD_S)
                self._look_once()
        except BaseException:
            for run in self._runs:  # unwatched, it would have no limit
                run.end(self._limits.memory_bytes)
            raise

    def _look_once(self) -> None:
        self._end_whole_runs()
        for run in self._alive():
            run.look(self._limits.memory_bytes)
            if run.held > self._limits.memory_bytes:
                run.end(self._limits.memory_bytes)
        together = self._limits.together_bytes
        if together is not None and sum(run.held for run in self._alive()) > together:
            self._end_largest()

    @property
    def _around(self) -> int:
        return self._limits.together_bytes or self._limits.memory_bytes

    def _alive(self) -> list[Watched]:
        return [run for run in self._runs if run.killed_at is None]

    def _end_largest(self) -> None:
        if alive := self._alive():
            max(alive, key=lambda run: run.held).end(self._around)

    def _count_kills(self) -> None:
        kills = self._kills()
        self._unclaimed += [time.monotonic()] * (kills - self._kills_seen)
        self._kills_seen = kills

    def _end_whole_runs(self) -> None:
        """The kernel was faster than we, and ended one process for the limit around us: others might wait for it.

        Either its run ended with it, and claims the kill (`facts`); or we end the largest, as the kernel took that.
        """
        self._count_kills()
        due = [seen for seen in self._unclaimed if time.monotonic() - seen > _CLAIM_S]
        for seen in due:
            self._unclaimed.remove(seen)
            self._end_largest()


def _tree(pid: int) -> Iterator[int]:
    """pid and its descendants; an orphan's parent is init: pid_namespaces(7), proc_pid_task_children(5)."""
    yield pid
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield from _tree(int(child))


def resident(pid: int) -> int:
    """Bytes, pages shared with others included: proc_pid_statm(5)."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(pid: int, inherited: int) -> int:
    """Bytes, each shared page divided by its users: proc_pid_smaps(5). Where closed to us: private ones, estimated."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return max(0, _anonymous(pid) - inherited)


def _anonymous(pid: int) -> int:
    """Bytes that no file backs: proc_pid_status(5)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
