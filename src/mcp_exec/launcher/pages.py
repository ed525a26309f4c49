"""[launcher] Memory laid out so that forking it, and ending the fork, is cheap: fewer and larger pages."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_exec.jail import syscalls

_HUGE = 2 << 20


def collapse() -> None:
    """Huge pages for what the imports left; where the kernel has none to give, nothing is lost but speed."""
    for start, end in list(_anonymous()):
        try:
            syscalls.collapse(start, end - start)
        except OSError:
            continue


def _anonymous() -> Iterator[tuple[int, int]]:
    """The parts of private writable memory without a file that huge pages can cover: proc_pid_maps(5)."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            area, modes, _offset, _device, inode, *name = line.split()
            if modes == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
                start, end = (int(number, 16) for number in area.split("-"))
                first, last = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
                if first < last:
                    yield first, last
