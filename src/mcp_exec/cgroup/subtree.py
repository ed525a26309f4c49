"""[server] A part of the unified hierarchy that is ours: how it is claimed, and the leaves below it.

    base                    delegated to us: our own cgroup, its parent, or the root of the hierarchy
      mcp-exec-server       this process and the launcher, moved out of base ("no internal processes")
      mcp-exec-runs-<id>    all runs of this server; memory.max here is what the host leaves to all of them
        run-<n>             the leaf of one run

A server holds a lock on its directory of runs, which the kernel lets go when it dies: so a directory without a holder
is a leftover, in whatever pid namespace its server was.

Base must have the controllers memory and pids; cpu is used where it is there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mcp_exec.cgroup.files import UnifiedNode
from mcp_exec.cgroup.leaf import Leaf, remove_folder
from mcp_exec.limits import Limits

SERVER_LEAF = "mcp-exec-server"
_RUNS = "mcp-exec-runs-"
NEEDED = frozenset({"memory", "pids"})
_USED = NEEDED | {"cpu"}
_CLAIM_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Why there are no cgroup limits here, and what would bring them."""

    reason: str
    fix: str


class Subtree:
    """A claimed base. Make with `claim`."""

    def __init__(self, base: Path, controllers: frozenset[str], how: str) -> None:
        """Sweeps what dead servers left below base, then makes our directory of runs."""
        self.base = base
        self.controllers = controllers
        self.how = how
        self._count = 0
        _sweep(base)
        self._runs = UnifiedNode(Path(tempfile.mkdtemp(prefix=_RUNS, dir=base)))
        self._lock = _lock(self._runs.folder)
        self._runs.controller.enable(controllers)

    def limit_all(self, memory_bytes: int | None) -> None:
        """A bound for all runs together, so that they cannot take the server's own memory; None is none."""
        self._runs.controller.memory_max = memory_bytes

    def make_leaf(self, limits: Limits) -> Leaf:
        """Raises OSError where the kernel refuses, as ENOSPC beyond cgroup.max.descendants."""
        self._count += 1
        return Leaf(self._runs.folder / f"run-{self._count}", limits, self.controllers)

    def close(self) -> None:
        """Remove what is ours. A leaf that would not go is swept by the next server."""
        _remove_runs(self._runs.folder)
        os.close(self._lock)


def controllers_of(folder: Path) -> frozenset[str]:
    """The controllers that a cgroup can hand to its children."""
    return frozenset(UnifiedNode(folder).controller.controllers)


def claim(base: Path, how: str, *, move_self: bool, move_all: bool = False) -> Subtree | Absence:
    """Take `base` if its controllers and rights allow it; undo everything if not.

    move_self: we live in it and must leave for a leaf. move_all: so may all others in it, as in a container.
    """
    try:
        available = controllers_of(base)
        if not available >= NEEDED:
            lacking = " and ".join(sorted(NEEDED - available))
            return Absence(
                reason=f"{base} has no controller {lacking}", fix="Delegate=yes in the unit that it belongs to"
            )
        return _claim(base, available & _USED, how, move_self=move_self, move_all=move_all)
    except OSError as error:
        return _explain(base, error)


def _claim(base: Path, controllers: frozenset[str], how: str, *, move_self: bool, move_all: bool) -> Subtree:
    node, leaf = UnifiedNode(base), UnifiedNode(base / SERVER_LEAF)
    if move_self:
        leaf.folder.mkdir(exist_ok=True)
        leaf.controller.procs = [os.getpid()]
    try:
        _enable(node, leaf, controllers, move_all=move_all)
        return Subtree(base, controllers, how)
    except OSError:
        if move_self:
            node.controller.procs = [os.getpid()]
            remove_folder(leaf.folder)
        raise


def _enable(node: UnifiedNode, leaf: UnifiedNode, controllers: frozenset[str], *, move_all: bool) -> None:
    for _ in range(_CLAIM_TRIES):
        if move_all:
            for pid in node.controller.procs:
                with suppress(ProcessLookupError):
                    leaf.controller.procs = [pid]
        try:
            node.controller.enable(controllers)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.02)  # a process that forked just now, or one that is ending
        else:
            return
    raise OSError(errno.EBUSY, "processes of others are in it")


def _explain(base: Path, error: OSError) -> Absence:
    if error.errno == errno.EROFS:
        fix = "mount the cgroup file system writable in this container, or rely on the container's own limits"
    elif error.errno == errno.EBUSY:
        fix = "start the server as the only process of a cgroup: systemd-run --user --scope -p Delegate=yes mcp-exec"
    else:
        fix = "start the server where a subtree is delegated: systemd-run --user --scope -p Delegate=yes mcp-exec"
    return Absence(reason=f"{base}: {os.strerror(error.errno or 0)}", fix=fix)


def _lock(folder: Path) -> int:
    """A descriptor that holds the lock of a directory of runs: flock(2). BlockingIOError where another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_RUNS}*"):
        with suppress(OSError):  # its server lives, or another one sweeps
            descriptor = _lock(folder)
            _remove_runs(folder)
            os.close(descriptor)


def _remove_runs(folder: Path) -> None:
    deadline = time.monotonic() + 2
    for leaf in folder.glob("run-*"):
        with suppress(OSError):
            UnifiedNode(leaf).controller.kill = True
        while not remove_folder(leaf) and time.monotonic() < deadline:
            time.sleep(0.005)
    remove_folder(folder)
