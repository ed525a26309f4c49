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
