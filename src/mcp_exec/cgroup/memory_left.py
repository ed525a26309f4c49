"""[server] How much memory the cgroups around us leave to runs, and whom they ended for it: on v2 and v1 alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mcp_exec.cgroup.files import UnifiedNode
from mcp_exec.cgroup.locate import Place

_MAX_BYTES = 4096
_V1_MOUNT = Path("/sys/fs/cgroup/memory")
_UNLIMITED = 1 << 60  # v1 says "no limit" with a number near 2**63
#: What the kernel cannot take back, of memory.stat; page cache it can
_HELD = ("anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable")


def memory_left(place: Place | None) -> int | None:
    """Bytes until the tightest limit above us; None where there is none."""
    found = [*(_unified(place) if place is not None else ()), *_v1()]
    return min(found, default=None)


def host_memory() -> tuple[int, int]:
    """(available, total) bytes: MemAvailable and MemTotal of proc_meminfo(5)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return kib["MemAvailable"] * 1024, kib["MemTotal"] * 1024


class Kills:
    """How many processes of the server's own cgroup the kernel ended for memory so far; 0 where none can be seen."""

    def __init__(self, place: Place | None) -> None:
        """Keeps the file open, since each run asks twice."""
        files = [] if place is None else [place.own / "memory.events"]
        files += [folder / "memory.oom_control" for folder in _v1_folders()]
        self._file = next(filter(None, map(_open, files)), 0)

    def __call__(self) -> int:
        if not self._file:
            return 0
        with suppress(OSError, ValueError, KeyError):  # it is gone, or the root's, which has no number
            return _parse(os.pread(self._file, _MAX_BYTES, 0).decode())["oom_kill"]
        return 0


def _open(path: Path) -> int:
    with suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return 0


def _unified(place: Place) -> Iterator[int]:
    for folder in place.chain():
        files = UnifiedNode(folder).controller
        with suppress(OSError):  # the root has no such file, nor has a cgroup without the controller
            limit = files.memory_max
            if limit is not None:
                stat = files.memory_stat
                yield limit - sum(stat.get(name, 0) for name in _HELD)


def _v1() -> Iterator[int]:
    for folder in _v1_folders():
        with suppress(OSError, ValueError, KeyError):
            stat = _numbers(folder / "memory.stat")
            if stat["hierarchical_memory_limit"] < _UNLIMITED:
                yield stat["hierarchical_memory_limit"] - stat["total_rss"] - stat.get("total_shmem", 0)
            return


def _v1_folders() -> tuple[Path, ...]:
    """Our own cgroup of v1; in a container the mount shows it as its root."""
    membership = Path("/proc/self/cgroup").read_text().splitlines()
    inside = next((line.split(":", 2)[2] for line in membership if line.split(":", 2)[1] == "memory"), None)
    return () if inside is None else (_V1_MOUNT / inside.lstrip("/"), _V1_MOUNT)


def _numbers(path: Path) -> dict[str, int]:
    return _parse(path.read_text())


def _parse(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in text.splitlines())}
