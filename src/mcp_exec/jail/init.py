"""[init] pid 1 of one run: builds the walls, forks the payload, reaps, and reports the payload's wait status.

Non-dumpable, no secrets, no environment, never execs. It is the only source of the exit code: the payload has
neither the status pipe nor any way to signal or trace this process. When it exits, the kernel kills the rest.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass

from mcp_exec.jail import descriptors, ending, enter, privileges, syscalls
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail.stage import Kind, Stage, Step, record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPipes:
    """Descriptors of one run, as they came from the server."""

    code: int
    stdin: int
    stdout: int
    stderr: int
    status: int
    cgroup: int | None


def run_init(
    spec: JailSpec,
    pipes: RunPipes,
    *,
    slot: int,
    outer_ids: tuple[int, int],
    lifeline: int,
    prepare: Callable[[JailSpec], None],
    payload: Callable[[JailSpec, int], None],
) -> None:
    """The whole life of init; never returns but in the payload, which then reads and runs the program."""
    step = Step()
    try:
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a handler, pid 1 cannot be signalled from inside
        os.setsid()
        enter.build(spec, step, slot=slot, outer_ids=outer_ids, cgroup=pipes.cgroup)
        step.stage = Stage.LIFELINE
        _die_with_launcher(lifeline)
        step.stage = Stage.PAYLOAD_FORK
        confined, confining = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become_payload(spec, pipes, step, confining, prepare)
    except BaseException as error:
        _report_failure(pipes.status, step, error)
    if pid == 0:
        _run_payload(spec, pipes.code, payload)
    _keep_watch(pid, pipes.status, confined)


def _die_with_launcher(lifeline: int) -> None:
    # A change of ids clears PDEATHSIG (prctl(2)), so it comes after them; the poll closes the window before it.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    poller = select.poll()
    poller.register(lifeline, 0)
    if poller.poll(0):
        os._exit(1)


def _become_payload(
    spec: JailSpec, pipes: RunPipes, step: Step, confining: int, prepare: Callable[[JailSpec], None]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = (pipes.code, pipes.status, confining)
    enter.confine(spec, step, stdin=pipes.stdin, stdout=pipes.stdout, stderr=pipes.stderr, kept=kept)
    step.stage = Stage.PREPARE
    prepare(spec)
    os.write(pipes.status, record(Kind.READY, Stage.PREPARE, 0))
    os.close(pipes.status)
    os.close(confining)


def _run_payload(spec: JailSpec, code: int, payload: Callable[[JailSpec, int], None]) -> None:
    """It ends itself; what it raises is none of the program's, as a workspace that is too small for the code."""
    try:
        payload(spec, code)
    except BaseException as error:
        os.write(2, f"mcp-exec: the program could not be run: {error}\n".encode("utf-8", "replace"))
    os._exit(70)


def _report_failure(status: int, step: Step, error: BaseException) -> None:
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    os.write(status, record(Kind.FAILED, step.stage, number))
    os._exit(1)


def _keep_watch(payload: int, status: int, confined: int) -> None:
    """confined: at its end of file when the payload is, or is dead."""
    descriptors.keep_only(status, confined)
    privileges.drop_all()
    os.read(confined, 1)
    ending.follow(payload)
    end = ending.wait_for_end(payload)
    os.write(status, record(Kind.EXITED, Stage.SECCOMP, end.wait_status, end.cpu_ms, end.peak_kib))
    os._exit(0)
