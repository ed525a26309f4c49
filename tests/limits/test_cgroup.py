"""Under cgroup v2: what the kernel counted, that nothing of a run stays, and servers that share a subtree.

`make test-uml` shows these on any machine; there MCP_EXEC_EXPECT=cgroup makes an absent mechanism a failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import Answer, Identity, StdioClient, to_answer
from support.limits import MEMORY_MIB, OUTSIDE, PIDS, SMALL, Mechanism, base_of, doctor, may_join
from support.waiting import wait_until

from mcp_exec.cgroup.leaf import Leaf
from mcp_exec.limits import LimitFacts, Limits

MIB = 1 << 20
LIMITS = Limits(
    memory_bytes=32 * MIB, together_bytes=None, pids=10, cpus=0.5, workspace_bytes=MIB, warm=0, fetch_ahead=False
)
ALL = frozenset({"memory", "pids", "cpu"})
EATS = "import time; held = b'x' * (200 << 20); time.sleep(60)"


@pytest.fixture(scope="module")
def base(mechanism: Mechanism, small: StdioClient) -> Path:
    if not mechanism.cgroup:
        pytest.skip("runs have no cgroups on this host; make test-uml shows them")
    return base_of(small)


def directories_of_runs(base: Path) -> set[Path]:
    return set(base.glob("mcp-exec-runs-*"))


@pytest.fixture
def folder(base: Path, small: StdioClient) -> Iterator[Path]:
    """A cgroup of the tests' own, below the base whose controllers a running server has enabled."""
    assert small.process.poll() is None
    if not may_join(base):
        pytest.skip(OUTSIDE)
    made = Path(tempfile.mkdtemp(prefix="test-", dir=base))
    yield made
    for child in (*made.glob("*"), made):
        if child.is_dir():
            child.rmdir()


def in_leaf(leaf: Leaf, *commands: list[str]) -> list[int]:
    """The exit statuses of processes that joined the leaf as init does."""

    def join() -> None:
        os.write(leaf.procs, b"0")

    children = [subprocess.Popen(command, preexec_fn=join, stderr=subprocess.DEVNULL) for command in commands]
    return [child.wait(timeout=120) for child in children]


def finish(leaf: Leaf, folder: Path) -> LimitFacts:
    facts = leaf.facts()
    assert asyncio.run(leaf.remove())
    assert not folder.exists()
    return facts


def counters(path: Path) -> dict[str, int]:
    return {name: int(count) for name, count in map(str.split, path.read_text().splitlines())}


def test_the_limits_of_a_leaf(folder: Path) -> None:
    folder = folder / "run"
    (folder.parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    leaf = Leaf(folder, LIMITS, ALL)
    expected = {"memory.max": str(32 * MIB), "memory.oom.group": "1", "pids.max": "10", "cpu.max": "50000 100000"}
    if (folder / "memory.swap.max").exists():
        expected["memory.swap.max"] = "0"
    assert {name: (folder / name).read_text().strip() for name in expected} == expected
    assert finish(leaf, folder) == LimitFacts(cpu_time_ms=0, peak_memory_bytes=(0 if has_peak(folder) else None))


def has_peak(_folder: Path) -> bool:
    """memory.peak came with Linux 5.19."""
    return tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 19)


@pytest.mark.parametrize("count", [1, 3])
def test_memory_events_of_a_leaf_that_ran_out(folder: Path, identity: Identity, count: int) -> None:
    folder = folder / "run"
    (folder.parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    leaf = Leaf(folder, LIMITS, ALL)
    sleeper = [identity.python, "-S", "-c", "import time; time.sleep(60)"]
    ended = in_leaf(leaf, *[sleeper] * (count - 1), [identity.python, "-S", "-c", EATS])
    events = counters(folder / "memory.events")
    assert ended == [-signal.SIGKILL] * count
    assert events.pop("max") > 0
    assert events.pop("oom_kill") == count + 1  # the first victim counts once more as a member of its group
    assert events == {"low": 0, "high": 0, "oom": 1, "oom_group_kill": 1}
    assert finish(leaf, folder).memory_limit_bytes == 32 * MIB


def test_pids_events_of_a_leaf_that_ran_out(folder: Path, identity: Identity) -> None:
    folder = folder / "run"
    (folder.parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    leaf = Leaf(folder, LIMITS, ALL)
    forks = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(60)"
    assert in_leaf(leaf, [identity.python, "-S", "-c", forks]) == [1]
    assert counters(folder / "pids.events")["max"] == 1
    facts = finish(leaf, folder)  # with nine sleepers still in it
    assert facts.out_of_pids
    assert facts.memory_limit_bytes is None


def runs(base: Path) -> list[Path]:
    return sorted(base.glob("mcp-exec-runs-*/run-*"))


def test_every_process_of_a_run_is_in_its_leaf(base: Path, small: StdioClient) -> None:
    wait_until(lambda: runs(base) == [], 30)
    code = "import os, time\nfor _ in range(3):\n    if os.fork() == 0: os.setsid(); break\ntime.sleep(4)"
    call = small.start_call(code)
    wait_until(lambda: [len((run / "cgroup.procs").read_text().split()) for run in runs(base)] == [5], 30)
    (run,) = runs(base)
    assert (run / "memory.max").read_text() == f"{MEMORY_MIB * MIB}\n"
    assert (run / "pids.max").read_text() == f"{PIDS}\n"
    assert (run / "cpu.max").read_text() == "50000 100000\n"
    assert to_answer(small.finish(*call)).exit_code == 0
    wait_until(lambda: not run.exists(), 30)


def test_a_run_sees_nothing_of_the_hierarchy(base: Path, small: StdioClient) -> None:
    code = "import json, os\nprint(json.dumps([open('/proc/self/cgroup').read(), os.path.exists('/sys/fs/cgroup')]))"
    assert small.probe(code) == ["0::/\n", False]


def test_out_of_memory_leaves_the_neighbour_alone(base: Path, small: StdioClient) -> None:
    neighbour = small.start_call("import time\nheld = b'x' * (60 << 20)\ntime.sleep(5)\nprint(len(held))", timeout_s=60)
    assert "memory limit" in small.run(EATS, timeout_s=60).stderr
    answer = to_answer(small.finish(*neighbour))
    assert (answer.stdout, answer.stderr, answer.exit_code) == (f"{60 << 20}\n", "", 0)


def test_200_runs_leave_no_leaf(base: Path, small: StdioClient) -> None:
    count = 200 if "MCP_EXEC_BED" not in os.environ else 40  # beds are emulated
    calls = [small.start_call("print(1)", timeout_s=60) for _ in range(count // 4)]
    for number in range(count):
        assert to_answer(small.finish(*calls.pop(0))).stdout == "1\n"
        if number < count - count // 4:
            calls.append(small.start_call("print(1)", timeout_s=60))
    wait_until(lambda: runs(base) == [], 30)


def test_a_server_that_ends_takes_its_directory_along(base: Path, identity: Identity, small: StdioClient) -> None:
    others = directories_of_runs(base)
    with StdioClient(identity, SMALL) as client:
        client.run("print(1)")
        (own,) = directories_of_runs(base_of(client)) - others
    assert not own.exists()
    assert small.run("print(2)").stdout == "2\n"


def test_a_killed_servers_leaves_are_swept_and_a_living_ones_are_not(
    base: Path, identity: Identity, small: StdioClient
) -> None:
    others = directories_of_runs(base)
    victim = StdioClient(identity, SMALL)
    victim.start_call("import time; time.sleep(600)", timeout_s=60)
    (left,) = directories_of_runs(base_of(victim)) - others
    wait_until(lambda: len(list(left.glob("run-*"))) == 1, 30)
    (leaf,) = left.glob("run-*")
    victim.process.kill()
    assert victim.close() == -signal.SIGKILL
    if base_of(victim) == base:
        wait_until(lambda: (leaf / "cgroup.procs").read_text() == "", 30)
    else:  # systemd removes the whole scope
        wait_until(lambda: not left.exists(), 30)
    with StdioClient(identity, SMALL) as client:
        assert not left.exists()
        assert client.run("print(1)").stdout == "1\n"
        assert small.run("print(2)").stdout == "2\n"
    assert directories_of_runs(base) == others


def test_a_named_cgroup_is_used(folder: Path, identity: Identity) -> None:
    environ = {**SMALL, "MCP_EXEC_CGROUP": str(folder)}
    assert f"cgroup v2 below {folder} (named by MCP_EXEC_CGROUP)" in str(doctor(identity, environ)["mechanism"])
    with StdioClient(identity, environ) as client:
        answer: Answer = client.run(EATS)
        assert f"the memory limit of {MEMORY_MIB} MiB" in answer.stderr
        assert len(list(folder.glob("mcp-exec-runs-*"))) == 1
    assert list(folder.glob("mcp-exec-*")) == []
