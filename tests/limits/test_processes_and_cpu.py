"""A31, A33, C2, C3: processes and processors."""

from __future__ import annotations

import json
import os
import time

import pytest
from support.client import Bare, Identity, StdioClient
from support.limits import CPUS, PIDS, Mechanism
from support.processes import descendants_of

BLAMED = f"mcp-exec: the limit of {PIDS} processes and threads was reached\n"
FORKS = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except BlockingIOError as error:
    print('EAGAIN')
print(made, flush=True)
os._exit(3)
"""
THREADS = """
import os, threading, time
made = 0
try:
    while made < 500:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except RuntimeError as error:
    print('EAGAIN')
print(made, flush=True)
os._exit(3)
"""
SPAWNS = """
import os, time
made = 0
try:
    while made < 500:
        os.posix_spawn('/bin/sleep', ['sleep', '60'], {})
        made += 1
except BlockingIOError as error:
    print('EAGAIN')
print(made, flush=True)
os._exit(3)
"""
CONTROL_LIMIT = 500


def settles(client: StdioClient) -> bool:
    """Whether only the launcher remains."""
    deadline = time.monotonic() + 10
    while len(descendants_of(client.process.pid)) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(descendants_of(client.process.pid)) == 1


@pytest.mark.parametrize("program", [FORKS, THREADS, SPAWNS], ids=["fork", "thread", "posix_spawn"])
def test_a31_bombs_end_at_the_limit(small: StdioClient, mechanism: Mechanism, program: str) -> None:
    answer = small.run(program, timeout_s=50)
    refused, made = answer.stdout.split()
    assert refused == "EAGAIN"
    assert PIDS - 4 <= int(made) < PIDS
    assert (answer.exit_code, answer.stderr) == (3, BLAMED if mechanism.cgroup else "")
    assert settles(small)


@pytest.mark.parametrize("program", [FORKS, THREADS], ids=["fork", "thread"])
def test_a31_control_elsewhere_the_same_program_makes_more(bare: Bare, program: str) -> None:
    done = bare.run(f"{program.replace('60', '3')}")
    assert int(done.stdout.split()[-1]) == CONTROL_LIMIT, done


def test_a31_a_bomb_without_end_dies_at_the_deadline(small: StdioClient) -> None:
    answer = small.run("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", timeout_s=3)
    assert (answer.timed_out, answer.exit_code) == (True, -1)
    assert answer.stderr.endswith("mcp-exec: the time limit of 3 s ended the run\n")
    assert settles(small)


BUSY = """
import os, time
end = time.monotonic() + 3
for _ in range(8):
    if os.fork() == 0:
        while time.monotonic() < end: pass
        os._exit(0)
for _ in range(8): os.wait()
total = os.times()
print((total.children_user + total.children_system) / 3)
"""


def test_a33_eight_busy_processes_are_throttled(small: StdioClient, mechanism: Mechanism) -> None:
    answer = small.run(BUSY, timeout_s=50)
    used = answer.meta["mcp-exec/cpu_time_ms"] / answer.duration_ms
    assert used < (CPUS * 1.3 if mechanism.cgroup else 1.1), answer  # affinity knows whole processors only
    assert 0 <= float(answer.stdout) < 1.3


def test_a33_control_elsewhere_they_take_every_processor(bare: Bare) -> None:
    count = min(8, len(os.sched_getaffinity(0)))
    assert float(bare.run(BUSY).stdout) > min(count * 0.6, CPUS * 1.3)


def test_a33_the_deadline_is_exact_under_load(small: StdioClient) -> None:
    busy = "import os\nfor _ in range(7):\n    if os.fork() == 0: break\nwhile True: pass"
    answer = small.run(busy, timeout_s=2)
    assert answer.timed_out
    assert 2000 <= answer.duration_ms < (2200 if "MCP_EXEC_BED" not in os.environ else 20000)  # beds are emulated


def test_a33_the_processors_of_a_run_cannot_be_widened(small: StdioClient, mechanism: Mechanism) -> None:
    code = """
import errno, os, json
before = len(os.sched_getaffinity(0))
try:
    os.sched_setaffinity(0, range(1024))
except OSError as error:
    print(json.dumps([before, len(os.sched_getaffinity(0)), errno.errorcode[error.errno]]))
else:
    print(json.dumps([before, len(os.sched_getaffinity(0)), None]))
"""
    before, after, error = small.probe(code)
    assert before == after
    assert mechanism.cgroup or (before, error) == (1, "EPERM")


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_c2_numpy_uses_as_many_threads_as_there_are_processors(identity: Identity, cpus: str) -> None:
    code = """
import json, os, numpy
product = numpy.ones((500, 500)) @ numpy.ones((500, 500))
print(json.dumps([len(os.listdir('/proc/self/task')), float(product[0, 0]), os.environ['OPENBLAS_NUM_THREADS'],
                  os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], os.environ['NUMEXPR_NUM_THREADS'],
                  os.environ['PYTHON_CPU_COUNT']]))
"""
    with StdioClient(identity, {"MCP_EXEC_CPUS": cpus, "MCP_EXEC_PIDS": "128"}) as client:
        threads, value, *told = client.probe(code)
    assert (value, told) == (500.0, [cpus] * 5)
    assert threads == min(int(cpus), os.cpu_count() or 1)


def test_c3_the_process_limit_is_of_the_run_and_not_of_the_user(identity: Identity) -> None:
    code = (
        "import subprocess, time; held = [subprocess.Popen(['sleep', '2']) for _ in range(9)]; time.sleep(1); print(1)"
    )
    with StdioClient(identity, {"MCP_EXEC_CONCURRENCY": "10", "MCP_EXEC_PIDS": "16"}) as client:
        calls = [client.start_call(code, timeout_s=50) for _ in range(10)]
        answers = [client.finish(*call)["structuredContent"] for call in calls]
    assert [answer["stdout"] for answer in answers] == ["1\n"] * 10, json.dumps(answers)
