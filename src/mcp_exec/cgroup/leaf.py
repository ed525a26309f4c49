"""[server] The leaf cgroup of one run: limits set before anybody is in it, facts read after, then gone."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from mcp_exec.cgroup.files import UnifiedNode
from mcp_exec.limits import LimitFacts, Limits

_PERIOD_US = 100_000
_REMOVE_TRIES = 10


class Leaf:
    """One run's cgroup. `procs` is a descriptor of its cgroup.procs, for init to write itself into."""

    def __init__(self, folder: Path, limits: Limits, controllers: frozenset[str]) -> None:
        """Makes the directory and sets the limits. Raises OSError, leaving nothing."""
        self._node = UnifiedNode(folder)
        self._controllers = controllers
        folder.mkdir()
        try:
            self._limit(limits)
            self.procs = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            folder.rmdir()
            raise

    def _limit(self, limits: Limits) -> None:
        files = self._node.controller
        files.memory_max = limits.memory_bytes
        files.memory_oom_group = True  # a worker killed alone would leave its parent waiting for ever
        with suppress(FileNotFoundError):  # a kernel without swap accounting
            files.memory_swap_max = 0
        files.pids_max = limits.pids
        if "cpu" in self._controllers:
            files.cpu_max = f"{max(1000, round(limits.cpus * _PERIOD_US))} {_PERIOD_US}"

    def facts(self) -> LimitFacts:
        """Read once the run is over; its processes need not be gone."""
        files = self._node.controller
        peak = cpu_us = None
        with suppress(OSError):
            peak = files.memory_peak
        with suppress(OSError):
            cpu_us = files.cpu_stat["usage_usec"]
        return LimitFacts(
            memory_limit_bytes=files.memory_max if files.memory_events["oom_kill"] > 0 else None,
            out_of_pids=files.pids_events["max"] > 0,
            peak_memory_bytes=peak,
            cpu_time_ms=None if cpu_us is None else cpu_us // 1000,
        )

    def kill(self) -> None:
        """SIGKILL to all in it, as one: cgroup.kill, Linux 5.14. Older: the pid namespace's end does it."""
        with suppress(OSError):
            self._node.controller.kill = True

    async def remove(self) -> bool:
        """Kill, and remove the directory once it is empty. False after about a second of EBUSY. Once only."""
        os.close(self.procs)
        self.kill()
        for attempt in range(_REMOVE_TRIES):
            if remove_folder(self._node.folder):
                return True
            await asyncio.sleep(0.001 * 2**attempt)
        return False


def remove_folder(folder: Path) -> bool:
    """Whether the cgroup is gone; EBUSY while a process or a child is in it."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
