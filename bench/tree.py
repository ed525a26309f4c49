"""A process and all below it, as /proc shows them: proc(5)."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: what reading of a process raises that has just ended
_GONE = (FileNotFoundError, ProcessLookupError)


def processes(root: int) -> list[int]:
    """The pids of a process and of its descendants, itself first."""
    children: dict[int, list[int]] = {}
    for pid, fields in _all_stats():
        children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    return found


def cpu_s(root: int) -> float:
    """User and system time of a tree, and of those whom it has reaped, in seconds."""
    members = set(processes(root))
    ticks = sum(sum(map(int, fields[11:15])) for pid, fields in _all_stats() if pid in members)
    return ticks / _TICKS_PER_S


def adopt_orphans() -> None:
    """From now on, descendants whose parent ends before them are this process's children: prctl(2).

    bubblewrap and podman leave the process that did the work behind; its time is known to who reaps it only.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def reaped_cpu_s() -> float:
    """User and system time of all ended children, orphans included, in seconds. Call it while no run is at work."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pss_bytes(pid: int) -> int:
    """Proportional set size: own pages, and of shared ones its part. Raises PermissionError; 0 if it is gone."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except _GONE:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def descriptors(pid: int) -> int:
    """How many are open. Raises PermissionError; 0 if the process is gone."""
    try:
        return len(os.listdir(_PROC / str(pid) / "fd"))
    except _GONE:
        return 0


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    """Every process with the fields of its stat from the third, the state, on; the name before may hold anything."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
            except _GONE:
                continue
