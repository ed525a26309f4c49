"""[server] Joining what is known from outside (clock, kernel counters) with what init reported: one ExecResult.

The deadline wins. Memory and pids are blamed on the kernel's counters only, or on our own watchdog: a SIGKILL alone
never means "out of memory".
"""

from __future__ import annotations

import os
import signal

from mcp_exec.errors import LauncherDied
from mcp_exec.jail_handle import Record
from mcp_exec.limits import LimitFacts, Limits
from mcp_exec.model import ExecRequest, ExecResult, Usage
from mcp_exec.output import Output


def join(
    request: ExecRequest,
    output: Output,
    record: Record | None,
    facts: LimitFacts,
    limits: Limits,
    *,
    duration_ms: int,
    timed_out: bool,
) -> ExecResult:
    """record: init's report, None where it gave none. Raises LauncherDied where nothing explains that."""
    if record is None and facts.memory_limit_bytes is None and not timed_out:
        raise LauncherDied("the jail ended without a report (init or the launcher was killed); call again")
    exit_code = -1 if timed_out else _exit_code(record)
    ended_by, words = _blame(request, facts, limits, exit_code=exit_code, timed_out=timed_out)
    return ExecResult(
        stdout=output.text(0),
        stderr=_with_last_line(output.text(1), words),
        exit_code=exit_code,
        duration_ms=duration_ms,
        truncated=output.truncated,
        timed_out=timed_out,
        usage=_usage(record, facts, ended_by),
    )


def _exit_code(record: Record | None) -> int:
    if record is None:
        return 128 + signal.SIGKILL
    ended = os.waitstatus_to_exitcode(record.value)
    return ended if ended >= 0 else 128 - ended


def _blame(
    request: ExecRequest, facts: LimitFacts, limits: Limits, *, exit_code: int, timed_out: bool
) -> tuple[str, str]:
    """The limit, and words for it; empty where none is to blame."""
    if timed_out:
        return "time", f"the time limit of {request.timeout_s} s ended the run"
    if facts.memory_limit_bytes is not None:
        return "memory", f"the memory limit of {facts.memory_limit_bytes >> 20} MiB ended the run"
    if facts.out_of_pids and exit_code != 0:
        return "pids", f"the limit of {limits.pids} processes and threads was reached"
    return "", ""


def _with_last_line(stderr: str, words: str) -> str:
    if not words:
        return stderr
    return f"{stderr}{'' if not stderr or stderr.endswith(chr(10)) else chr(10)}mcp-exec: {words}\n"


def _usage(record: Record | None, facts: LimitFacts, ended_by: str) -> Usage:
    """The cgroup's counters where there are any; else what init measured of its children."""
    peak, cpu = facts.peak_memory_bytes, facts.cpu_time_ms
    if record is not None:
        peak = max(record.peak_kib * 1024, facts.held_bytes) if peak is None else peak
        cpu = record.cpu_ms if cpu is None else cpu
    return Usage(jail="namespaces", ended_by=ended_by, peak_memory_bytes=peak, cpu_time_ms=cpu)
