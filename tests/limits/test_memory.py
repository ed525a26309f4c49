"""A32, C9: memory. Ended at the limit, blamed on memory only when it was that, never a hang, the server untouched."""

from __future__ import annotations

import pytest
from support.client import Answer, Bare, StdioClient
from support.limits import MEMORY_MIB, Mechanism

BLAMED = f"mcp-exec: the memory limit of {MEMORY_MIB} MiB ended the run\n"
EAT = """
import mmap, os, sys, time
def eat(mib):
    held = bytearray(b'x') * (mib << 20)
    time.sleep(60)
"""
PROGRAMS = {
    "bytearray": "eat(200)",
    "a list that grows": "held = []\nwhile True: held.append('x' * 100000)",
    "mmap and touch": "area = mmap.mmap(-1, 200 << 20)\nfor at in range(0, 200 << 20, 4096): area[at] = 1",
    "mmap, private": (
        "area = mmap.mmap(-1, 200 << 20, mmap.MAP_PRIVATE)\nfor at in range(0, 200 << 20, 4096): area[at] = 1"
    ),
    "ten children": "for _ in range(10):\n    if os.fork() == 0: eat(20)\nos.wait()",
    "a daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: eat(200)\n    os._exit(0)\ntime.sleep(60)",
    "a worker of a pool": "import multiprocessing\nwith multiprocessing.Pool(2) as pool: pool.map(eat, [1, 200])",
    "a subprocess": (
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'import time; x = b\"x\" * (200 << 20); time.sleep(60)'])"
    ),
    "numpy": "import numpy\narea = numpy.ones(200 << 17)\ntime.sleep(60)",
}


def run(client: StdioClient, program: str) -> Answer:
    return client.run(f"{EAT}\nprint('before', flush=True)\n{program}\nprint('after')", timeout_s=50)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a32_c9_memory_ends_the_run_and_is_blamed(small: StdioClient, mechanism: Mechanism, name: str) -> None:
    answer = run(small, PROGRAMS[name])
    assert (answer.exit_code, answer.stdout, answer.timed_out) == (137, "before\n", False), answer
    assert answer.stderr.endswith(BLAMED)


def test_a32_control_the_same_programs_get_what_they_ask_for_elsewhere(bare: Bare) -> None:
    done = bare.run("held = bytearray(b'x') * (200 << 20); print(len(held) >> 20)")
    assert done.stdout == "200\n"


def test_c9_an_absurd_allocation_fails_as_python_says_it(small: StdioClient) -> None:
    answer = small.run("bytearray(10 ** 10)")
    assert (answer.exit_code, answer.stderr.splitlines()[-1]) == (1, "MemoryError")


def test_what_stays_below_the_limit_is_left_alone(small: StdioClient) -> None:
    """Pages shared after fork count once: eight processes that show 40 MiB each hold 40 together."""
    program = """
import os, time
held = bytearray(b'x') * (40 << 20)
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        assert held[::4096].count(b'x') == 40 << 8
        time.sleep(1)
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""
    answer = small.run(program, timeout_s=50)
    assert (answer.stdout, answer.exit_code, answer.stderr) == (f"{[0] * 8}\n", 0, "")


@pytest.mark.parametrize(
    ("program", "code"), [("import os; os.kill(os.getpid(), 9)", 137), ("import sys; sys.exit(137)", 137)]
)
def test_a_kill_alone_is_not_blamed_on_memory(small: StdioClient, program: str, code: int) -> None:
    answer = small.run(program)
    assert (answer.exit_code, answer.stderr) == (code, "")


def test_a32_a_full_workspace_is_an_error_of_the_program_and_not_a_kill(small: StdioClient) -> None:
    program = """
import errno
held = bytearray(b'x') * (24 << 20)
for place in ('/workspace', '/tmp', '/dev/shm'):
    try:
        with open(f'{place}/full', 'wb', buffering=0) as file:
            while file.write(bytes(1 << 20)): pass
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    answer = small.run(program, timeout_s=50)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert set(answer.stdout.split()) <= {"ENOSPC", "EFBIG"}
    assert answer.stdout.count("\n") == 3


def test_a32_pipe_buffers_are_bounded(small: StdioClient) -> None:
    program = """
import fcntl, os
pipes, held = [], 0
try:
    while True:
        pipes.append(os.pipe())
        os.set_blocking(pipes[-1][1], False)
        held += os.write(pipes[-1][1], bytes(1 << 20))
except OSError:
    print(held >> 20)
"""
    answer = small.run(program, timeout_s=50)
    bounded = answer.exit_code == 0 and int(answer.stdout) < MEMORY_MIB
    assert bounded or answer.stderr.endswith(BLAMED), answer


def test_memory_outside_of_any_mapping_is_counted_or_refused(small: StdioClient, mechanism: Mechanism) -> None:
    program = """
import errno, os
try:
    held = os.memfd_create('m')
    while os.write(held, bytes(1 << 20)): pass
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    answer = small.run(program, timeout_s=50)
    if mechanism.cgroup:
        assert answer.exit_code == 0 or answer.stderr.endswith(BLAMED), answer
        assert answer.stdout in ("", "EFBIG\n")
    else:
        assert (answer.exit_code, answer.stdout) == (0, "ENOSYS\n")


def test_peak_memory_and_cpu_time_are_told(small: StdioClient, mechanism: Mechanism) -> None:
    answer = small.run("held = bytearray(b'x') * (50 << 20)\nfor _ in range(10 ** 6): pass")
    peak = answer.meta["mcp-exec/peak_memory_bytes"]
    assert peak >= 50 << 20
    assert peak <= MEMORY_MIB << 20 or not mechanism.cgroup  # getrusage(2) counts what was inherited as well
    assert answer.meta["mcp-exec/cpu_time_ms"] > 0
