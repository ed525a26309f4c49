"""200 runs in a row and 16 at once: the host is as it was."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from support.client import StdioClient
from support.processes import children_of, launcher_of


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Rss"))


def snapshot(client: StdioClient) -> dict[str, Any]:
    pid = client.process.pid
    launcher = launcher_of(pid)
    with open("/proc/self/mountinfo") as mounts:
        mount_count = sum(1 for _ in mounts)
    return {
        "descriptors": sorted(os.listdir(f"/proc/{pid}/fd")),
        "launcher": launcher,
        "launcher's descriptors": sorted(os.listdir(f"/proc/{launcher}/fd")),
        "children": children_of(launcher),
        "mounts": mount_count,
        "tmp": sorted(name for name in os.listdir("/tmp") if "pytest" not in name),
        "shm": sorted(os.listdir("/dev/shm")),
    }


def settled(client: StdioClient, expected: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 5
    while (found := snapshot(client)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def at_rest(client: StdioClient) -> dict[str, Any]:
    """A snapshot after which nothing is still being taken apart."""
    deadline = time.monotonic() + 10
    found = snapshot(client)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        before, found = found, snapshot(client)
        if before == found and not found["children"]:
            return found
    raise AssertionError(f"no rest: {found}")


MIXED = [
    "print(1)",
    "import pandas; pandas.DataFrame({'a': [1]}).to_csv('x.csv')",
    "import os\nif os.fork() == 0:\n  os.setsid(); import time; time.sleep(60)",
    "open('/tmp/left', 'w').write('x' * 10000); open('/dev/shm/left', 'w')",
    "1 / 0",
    "import os; os.kill(os.getpid(), 9)",
    "print('x' * 100000)",
]


def test_the_host_is_as_before(root_identity: Any) -> None:
    with StdioClient(root_identity, {"MCP_EXEC_CONCURRENCY": "16"}) as client:
        for code in MIXED * 2:
            client.run(code)
        before = at_rest(client)
        memory = {
            name: rss_kib(pid) for name, pid in (("server", client.process.pid), ("launcher", before["launcher"]))
        }
        for number in range(200):
            client.run(MIXED[number % len(MIXED)])
        for call in [client.start_call(MIXED[number % len(MIXED)]) for number in range(16)]:
            client.finish(*call)
        gc.collect()
        assert settled(client, before) == before
        after = {name: rss_kib(pid) for name, pid in (("server", client.process.pid), ("launcher", before["launcher"]))}
    assert all(after[name] < memory[name] * 1.05 for name in memory), (memory, after)
