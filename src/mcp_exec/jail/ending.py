"""[init] The end of the payload, known before its memory is taken apart.

wait(2) tells of a process's end only when its memory is given back, which takes a big one milliseconds. So init traces
the payload for a single event, PTRACE_EVENT_EXIT, which the kernel reports before that, with the status that wait(2)
will give: ptrace(2). Where it cannot be had (Yama, no /proc), or does not decide, wait(2) stands.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import NamedTuple

from mcp_exec.jail import syscalls

_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
#: What the payload shows of itself is hostile: where it makes no sense, wait(2) tells the end
_UNDECIDED = (OSError, ValueError, IndexError)
_TICKS = os.sysconf("SC_CLK_TCK")


class End(NamedTuple):
    """How the payload ended, as wait(2) says it, and what it took."""

    wait_status: int
    cpu_ms: int
    peak_kib: int


def follow(payload: int) -> None:
    """Trace it from here on; only once it is dumpable, with its own ids and without capabilities."""
    with contextlib.suppress(*_UNDECIDED):
        syscalls.ptrace(syscalls.PTRACE_SEIZE, payload, syscalls.PTRACE_O_TRACEEXIT | syscalls.PTRACE_O_EXITKILL)
        _look(payload)  # once before it counts, so that this process has the pages that it takes


def wait_for_end(payload: int) -> End:
    """Reap whatever ends, as pid 1 must, until it is the payload that does."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if os.WIFSTOPPED(status):
            if pid == payload and status >> 16 == syscalls.PTRACE_EVENT_EXIT:
                with contextlib.suppress(*_UNDECIDED):
                    threads, cpu_ms, peak_kib = _look(pid)
                    if threads == 1:
                        return End(syscalls.ptrace_message(pid), cpu_ms, peak_kib)
            _go_on(pid, status >> 16, os.WSTOPSIG(status))
        elif pid == payload:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return End(status, round((usage.ru_utime + usage.ru_stime) * 1000), usage.ru_maxrss)


def _go_on(pid: int, event: int, number: int) -> None:
    """Let a traced process (CLONE_PTRACE makes more of them) do as it would: be stopped, or get its signal."""
    try:
        if event == syscalls.PTRACE_EVENT_STOP and number in _STOPS:
            syscalls.ptrace(syscalls.PTRACE_LISTEN, pid)
        else:
            syscalls.ptrace(syscalls.PTRACE_CONT, pid, 0 if event else number)
    except OSError:
        pass  # it was killed meanwhile


def _look(pid: int) -> tuple[int, int, int]:
    """Threads; cpu time in ms, with that of children it waited for; peak resident KiB: proc_pid_status(5)."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
        words = stat.read().rpartition(b")")[2].split()
    with open(f"/proc/{pid}/status", "rb", buffering=0) as status:
        lines = status.read().split(b"\n")  # the kernel escapes only this in a process's name
    peak = next((int(line.split()[1]) for line in lines if line.startswith(b"VmHWM:")), 0)  # a zombie has none
    children_ms = (int(words[13]) + int(words[14])) * 1000 // _TICKS
    return int(words[17]), round(time.clock_gettime(syscalls.cpu_clock(pid)) * 1000) + children_ms, peak
