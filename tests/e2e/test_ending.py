"""The answer comes before the payload's memory is taken apart; it must be that of wait(2) all the same."""

from __future__ import annotations

import pytest
from support.client import Identity, StdioClient

PEAK = "mcp-exec/peak_memory_bytes"
EXECED = "import os\nos.execv('/bin/sh', ['sh', '-c', '{}'])"
#: program, exit status, stdout
ENDS = {
    "falls off its end": ("print('out')", 0, "out\n"),
    "exits with a number": ("import sys; sys.exit(7)", 7, ""),
    "exits at once": ("import os; os.write(1, b'out'); os._exit(9)", 9, "out"),
    "exits in a thread": ("import os, threading, time\nthreading.Thread(target=os._exit, args=(5,)).start()\ntime.sleep(9)", 5, ""),
    "exits beside a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint('out')", 0, "out\n"),
    "its first thread ends before the others": (
        "import ctypes, os, threading, time\n"
        "def work():\n    time.sleep(1)\n    os.write(1, b'late')\n    os._exit(6)\n"
        "threading.Thread(target=work).start()\nctypes.CDLL(None).syscall(60, 3)", 6, "late"),
    "killed": ("import os; os.kill(os.getpid(), 9)", 137, ""),
    "aborted": ("import os; os.abort()", 134, ""),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", 139, ""),
    "terminated by its child": ("import os, time\nif not os.fork(): os.kill(os.getppid(), 15)\ntime.sleep(9)", 143, ""),
    "another program": (EXECED.format("echo out; exit 11"), 11, "out\n"),
    "another program that is killed": (EXECED.format("kill -9 $$"), 137, ""),
    "a program of a thread": (
        "import os, threading, time\nthreading.Thread(target=os.execv, args=('/bin/sh', ['sh', '-c', 'echo out; exit 12'])).start()\n"
        "time.sleep(9)", 12, "out\n"),
    "its children are left": ("import os, time\nif not os.fork(): time.sleep(60)\nprint('out')", 0, "out\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_status_is_that_of_wait(sandbox: StdioClient, name: str) -> None:
    code, status, stdout = ENDS[name]
    answer = sandbox.run(code, timeout_s=20)
    assert (answer.exit_code, answer.stdout, answer.timed_out) == (status, stdout, False), answer


NAMES = [
    b"\rVmHWM: x",
    b"\rVmHWM:",
    b"\rVmHWM:99999999",
    b"\rVmHWM: 7777777",
    b"\nVmHWM: -9 kB",
    b") R 1 1 1",
    b"\xff(\x00",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_programs_name_is_not_believed(sandbox: StdioClient, name: bytes) -> None:
    answer = sandbox.run(f"import ctypes; ctypes.CDLL(None).prctl(15, {name!r}); print('ok'); raise SystemExit(3)")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (3, "ok\n", "")
    assert 1 << 20 < answer.meta[PEAK] < 1 << 30


def test_a_child_that_asked_to_be_traced_is_not_left_stopped(sandbox: StdioClient) -> None:
    code = (
        "import ctypes, os, signal\nlibc = ctypes.CDLL(None)\n"
        "child = libc.syscall(56, 0x2000 | signal.SIGCHLD, 0, 0, 0, 0)  # CLONE_PTRACE\n"
        "if child == 0:\n    os.kill(os.getpid(), signal.SIGCONT); os._exit(4)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    answer = sandbox.run(code, timeout_s=10)
    assert (answer.stdout, answer.exit_code) == ("4\n", 0), answer


def test_code_that_does_not_fit_gets_one_line(root_identity: Identity) -> None:
    with StdioClient(root_identity, {"MCP_EXEC_WORKSPACE": "1m", "MCP_EXEC_PREIMPORT": ""}) as client:
        answer = client.run("# " + "x" * 1_500_000)
    assert answer.exit_code == 70
    assert answer.stderr.startswith("mcp-exec: the program could not be run: [Errno ")
    assert answer.stderr.count("\n") == 1


SIGNALS = {
    "handled": "signal.signal(signal.SIGUSR1, note); os.kill(os.getpid(), signal.SIGUSR1)\nassert seen == [10], seen",
    "ignored": "signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGUSR1)",
    "waited for": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert signal.sigwait([signal.SIGUSR1]) == 10"
    ),
    "of a timer": (
        "signal.signal(signal.SIGALRM, note); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "while len(seen) < 200: pass\nsignal.setitimer(signal.ITIMER_REAL, 0)"
    ),
    "interrupting a call": (
        "signal.signal(signal.SIGALRM, note); signal.alarm(1)\nr, w = os.pipe()\n"
        "try:\n    signal.siginterrupt(signal.SIGALRM, True)\n    time.sleep(1.5)\nfinally: assert seen == [14], seen"
    ),
    "of ending children": (
        "signal.signal(signal.SIGCHLD, note)\nfor _ in range(50):\n    if not os.fork(): os._exit(0)\n"
        "for _ in range(50): os.wait()\nassert seen"
    ),
    "stopped and continued": (
        "me = os.getpid()\nif not os.fork():\n    while open(f'/proc/{me}/stat').read().split()[2] not in 'Tt': pass\n"
        "    time.sleep(0.3)\n    os.kill(me, signal.SIGCONT); os._exit(0)\n"
        "before = time.monotonic(); os.kill(me, signal.SIGSTOP); assert time.monotonic() - before > 0.2; os.wait()"
    ),
    "a child stopped and continued": (
        "child = os.fork()\nif not child:\n    os.kill(os.getpid(), signal.SIGSTOP); os._exit(4)\n"
        "assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])\nos.kill(child, signal.SIGCONT)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4"
    ),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_are_the_programs_own(sandbox: StdioClient, name: str) -> None:
    begin = "import os, signal, time\nseen = []\nnote = lambda number, frame: seen.append(number)\n"
    answer = sandbox.run(begin + SIGNALS[name] + "\nprint('ok')", timeout_s=20)
    assert (answer.stdout, answer.stderr, answer.exit_code) == ("ok\n", "", 0), answer


def test_what_the_run_took_is_counted(sandbox: StdioClient) -> None:
    own = "import time\nwhile time.process_time() < 1: pass\n"
    children = "import os\nif not os.fork():\n    while os.times().user < 0.5: pass\n    os._exit(0)\nos.wait()\n"
    few = sandbox.run("pass").meta
    for code, least_ms in ((own, 950), (own + children, 1400)):
        took = sandbox.run(code + "held = b'x' * (50 << 20)", timeout_s=20).meta
        assert least_ms <= took["mcp-exec/cpu_time_ms"] < least_ms * 3, took
        assert took[PEAK] - few[PEAK] > 30 << 20, (few, took)
