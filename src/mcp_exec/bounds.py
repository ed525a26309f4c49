"""[server] I7 on this host: a cgroup for every run where one is to be had, else rlimits and a watchdog. Said aloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mcp_exec.cgroup.acquire import acquire
from mcp_exec.cgroup.leaf import Leaf
from mcp_exec.cgroup.locate import find_place
from mcp_exec.cgroup.memory_left import Kills, host_memory, memory_left
from mcp_exec.cgroup.subtree import Absence, Subtree
from mcp_exec.config import Config
from mcp_exec.errors import CannotJail
from mcp_exec.jail_handle import Jail
from mcp_exec.limits import LimitFacts, Limits, fit
from mcp_exec.watchdog import Watchdog, resident

#: Less than this left by the cgroups around us, or by the host, is scarce; of a small host a sixteenth
_SCARCE_AROUND_BYTES = 32 << 20
_SCARCE_ON_HOST_BYTES = 256 << 20
_RELIEF_BYTES = 32 << 20


class Bounds:
    """What bounds the runs of one server. Make it before the launcher starts, `fit` once it has imported."""

    def __init__(self, config: Config) -> None:
        """Takes a subtree if there is one. Raises ConfigError for a MCP_EXEC_CGROUP that cannot be used."""
        self._config = config
        self._found = acquire(config.cgroup)
        self._limits: Limits | None = None
        self._watchdog: Watchdog | None = None
        self._seen = False
        self._pressed = False

    @property
    def subtree(self) -> Subtree | None:
        """Where runs get their cgroups; None in the fallback."""
        return self._found if isinstance(self._found, Subtree) else None

    @property
    def absence(self) -> Absence | None:
        """Why there are no cgroups; None where there are."""
        return self._found if isinstance(self._found, Absence) else None

    @property
    def limits(self) -> Limits:
        """Those in force, from the first call on."""
        if self._limits is None:
            left = memory_left(find_place())
            self._limits = fit(self._config, left)
            if self.subtree is not None:
                self.subtree.limit_all(self._limits.together_bytes)
        return self._limits

    @property
    def works(self) -> bool:
        """Whether the processes of some run could be counted; after the first run."""
        return self._seen

    @property
    def mechanism(self) -> str:
        """What is in force here, for the operator."""
        lowered = ""
        if self.limits.memory_bytes < self._config.memory_bytes:
            lowered = (
                f"; memory lowered from {self._config.memory_bytes >> 20} to {self.limits.memory_bytes >> 20} MiB,"
                " which is what the cgroups around the server leave"
            )
        if isinstance(self._found, Absence):
            return (
                "rlimits per process, watchdog on resident memory, processor affinity; no cgroup:"
                f" {self._found.reason}{lowered}"
            )
        files = ", ".join(f"{name}.max" for name in sorted(self._found.controllers))
        return f"cgroup v2 below {self._found.base} ({self._found.how}): {files}{lowered}"

    def make_leaf(self) -> Leaf | None:
        """The cgroup of the next run; None in the fallback. Raises CannotJail where the kernel refuses it."""
        if self.subtree is None:
            return None
        try:
            return self.subtree.make_leaf(self.limits)
        except OSError as error:
            raise CannotJail(
                f"no cgroup could be made for the run below {self.subtree.base}: {error.strerror};"
                " was the subtree removed, or is cgroup.max.descendants reached? Restart the server"
            ) from error

    def is_pressed(self) -> bool:
        """Whether memory is scarce, on the host or in the cgroups around us; once it was, it must get better."""
        self._pressed = self._room() < (_RELIEF_BYTES if self._pressed else 0)
        return self._pressed

    def has_room_for(self, pid: int) -> bool:
        """Whether memory has room for a second process like this one, beside what may run."""
        return self._room() > resident(pid)

    def _room(self) -> int:
        """Bytes until memory is scarce."""
        available, total = host_memory()
        on_host = available - min(total // 16, _SCARCE_ON_HOST_BYTES)
        left = memory_left(find_place())
        return on_host if left is None else min(on_host, left - _SCARCE_AROUND_BYTES)

    @contextmanager
    def watching(self, jail: Jail) -> Iterator[Callable[[bool], LimitFacts]]:
        """Hold the limits while a run lasts; gives what to ask for the facts at its end: did a SIGKILL end it?"""
        if (leaf := jail.leaf) is not None:
            yield lambda _killed: leaf.facts()
            self._seen = self._seen or bool(leaf.facts().cpu_time_ms)
            return
        if self._watchdog is None:
            self._watchdog = Watchdog(self.limits, Kills(find_place()))
        dog = self._watchdog
        with dog.watching(jail.pid, jail.launcher.pid, jail.kill) as watched:
            if not self._seen:  # a run may be over before the dog's first look
                watched.look(self.limits.memory_bytes)
            yield lambda killed: dog.facts(watched, killed=killed)
        self._seen = self._seen or watched.seen

    def close(self) -> None:
        """Give the subtree back. After the last run."""
        if self.subtree is not None:
            self.subtree.close()
