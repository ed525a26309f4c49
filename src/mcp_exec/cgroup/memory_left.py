"""[server] How much memory the cgroups around us leave to runs, and whom they ended for it: on v2 and v1 alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mcp_exec.cgroup.files import UnifiedNode
from mcp_exec.cgroup.locate import Place

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


def kills_around(place: Place | None) -> int:
    """How many processes of the server's own cgroup the kernel ended for memory so far; 0 where none can be seen."""
    if place is not None:
        with suppress(OSError, KeyError):
            return int(UnifiedNode(place.own).controller.memory_events["oom_kill"])
    for folder in _v1_folders():
        with suppress(OSError, ValueError, KeyError):  # the root has no number
            return _numbers(folder / "memory.oom_control")["oom_kill"]
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
    return {name: int(number) for name, number in (line.split() for line in path.read_text().splitlines())}
