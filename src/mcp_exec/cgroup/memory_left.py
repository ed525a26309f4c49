"""[server] How much memory the cgroups above us leave to runs, on v2 and v1 alike."""

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


def _unified(place: Place) -> Iterator[int]:
    folder = place.own
    while True:
        files = UnifiedNode(folder).controller
        with suppress(OSError):  # the root has no such file, nor has a cgroup without the controller
            limit = files.memory_max
            if limit is not None:
                stat = files.memory_stat
                yield limit - sum(stat.get(name, 0) for name in _HELD)
        if folder == place.mount:
            return
        folder = folder.parent


def _v1() -> Iterator[int]:
    membership = Path("/proc/self/cgroup").read_text().splitlines()
    inside = next((line.split(":", 2)[2] for line in membership if line.split(":", 2)[1] == "memory"), None)
    if inside is None:
        return
    own = _V1_MOUNT / inside.lstrip("/")
    for folder in (own, _V1_MOUNT):  # in a container the mount shows our own cgroup as its root
        with suppress(OSError, ValueError, KeyError):
            words = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            stat = {name: int(number) for name, number in words}
            if stat["hierarchical_memory_limit"] < _UNLIMITED:
                yield stat["hierarchical_memory_limit"] - stat["total_rss"] - stat.get("total_shmem", 0)
            return
