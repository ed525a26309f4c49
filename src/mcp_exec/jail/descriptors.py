"""[init, payload] Which descriptors a process keeps; everything else is closed."""

from __future__ import annotations

import os


def keep_only(*kept: int) -> None:
    """Close every descriptor but these, in a few range calls."""
    low = 0
    for descriptor in sorted(kept):
        if low < descriptor:  # os.closerange(0, 0) becomes close_range(0, UINT_MAX) and closes everything
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, max(low, os.sysconf("SC_OPEN_MAX")))


def move_above(descriptor: int, floor: int) -> int:
    """The same open file at `floor` or above, close-on-exec, so that dup2 to 0..2 cannot clobber it: fcntl(2)."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)


def place_standard(stdin: int, stdout: int, stderr: int) -> None:
    """The run's pipes become 0, 1 and 2, inheritable."""
    for target, source in enumerate((stdin, stdout, stderr)):
        os.dup2(source, target, inheritable=True)
