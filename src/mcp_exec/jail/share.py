"""[init] A run's share of the host where no cgroup says it: which processors it may use, and that it dies first."""

from __future__ import annotations

import os

from mcp_exec.jail import syscalls

_FIRST_TO_DIE = b"1000"


def offer_to_oom_killer() -> None:
    """When the host, or the container around us, runs out of memory, runs die before the server: proc(5).

    The file is our own only while dumpable.
    """
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, _FIRST_TO_DIE)
    finally:
        os.close(descriptor)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def stay_on(processors: tuple[int, ...]) -> None:
    """Confine this process and all it forks to these processors: sched_setaffinity(2)."""
    os.sched_setaffinity(0, processors)
