"""What a server has around it while nothing runs: to compare before and after."""

from __future__ import annotations

import os
import time
from typing import Any

from support.processes import children_of, launcher_of


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Rss"))


def snapshot(server: int) -> dict[str, Any]:
    launcher = launcher_of(server)
    with open("/proc/self/mountinfo") as mounts:
        mount_count = sum(1 for _ in mounts)
    return {
        "descriptors": len(os.listdir(f"/proc/{server}/fd")),
        "launcher": launcher,
        "launcher's descriptors": len(os.listdir(f"/proc/{launcher}/fd")),
        "jails": len(children_of(launcher)),
        "mounts": mount_count,
        "tmp": sorted(name for name in os.listdir("/tmp") if "pytest" not in name),
        "shm": sorted(os.listdir("/dev/shm")),
    }


def settled(server: int, expected: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 5
    while (found := snapshot(server)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def at_rest(server: int, ready: int = 0) -> dict[str, Any]:
    """A snapshot after which nothing is still being built or taken apart; ready: jails that are kept."""
    deadline = time.monotonic() + 10
    found = snapshot(server)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        before, found = found, snapshot(server)
        if before == found and found["jails"] == ready:
            return found
    raise AssertionError(f"no rest: {found}")
