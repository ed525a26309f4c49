"""The processes below another, as the host's /proc shows them while they come and go."""

from __future__ import annotations

import os
from pathlib import Path


def children_of(pid: int) -> set[int]:
    """Of all its threads; none when it is gone."""
    found: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found |= set(map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):  # it ended while it was read: open() or read() tells
        pass
    return found


def descendants_of(pid: int) -> set[int]:
    found, layer = set[int](), {pid}
    while layer:
        layer = {child for parent in layer for child in children_of(parent)}
        found |= layer
    return found


def launcher_of(server: int) -> int:
    (launcher,) = children_of(server)
    return launcher


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}") and "Z" not in state_of(pid)}


def state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
