"""[server, launcher, init, payload] The steps of a jail, as numbers that the child reports and the server words.

Only numbers cross the border: the child must not format text, and the server trusts nothing longer.
"""

from __future__ import annotations

import enum
import struct

#: kind, stage, value, cpu time in ms, peak resident memory in KiB
RECORD = struct.Struct("=BBiqq")


class Kind(enum.IntEnum):
    """What a record on the status pipe says."""

    FAILED = 1
    READY = 2
    EXITED = 3


class Stage(enum.IntEnum):
    """The step at work. The order is the order of `enter.py`."""

    FORK = 1
    CGROUP = 2
    SHARE = 3
    OUTER_USER_NAMESPACE = 4
    CGROUP_NAMESPACE = 5
    HOSTNAME = 6
    LOOPBACK = 7
    ROOT = 8
    WORKSPACE = 9
    BINDS = 10
    SYNTHETIC_FILES = 11
    DEVICES = 12
    PROC = 13
    SEAL_ROOT = 14
    HOST_IDS = 15
    INNER_USER_NAMESPACE = 16
    LIFELINE = 17
    PAYLOAD_FORK = 18
    SESSION = 19
    DESCRIPTORS = 20
    PRIVILEGES = 21
    RLIMITS = 22
    LANDLOCK = 23
    SECCOMP = 24
    PREPARE = 25


class Step:
    """The stage now at work in this process; set by `enter.py`, read by whoever reports a failure."""

    __slots__ = ("stage",)

    def __init__(self) -> None:
        self.stage = Stage.FORK


def record(kind: Kind, stage: Stage, value: int, cpu_ms: int = 0, peak_kib: int = 0) -> bytes:
    """One status record; shorter than PIPE_BUF, so its write is atomic (pipe(7))."""
    return RECORD.pack(kind, stage, value, cpu_ms, peak_kib)
