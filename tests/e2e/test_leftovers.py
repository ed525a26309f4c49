"""200 runs in a row and 16 at once: the host is as it was."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from support.client import StdioClient
from support.leftovers import at_rest, rss_kib, settled

MIXED = [
    "print(1)",
    "import pandas; pandas.DataFrame({'a': [1]}).to_csv('x.csv')",
    "import os\nif os.fork() == 0:\n  os.setsid(); import time; time.sleep(60)",
    "open('/tmp/left', 'w').write('x' * 10000); open('/dev/shm/left', 'w')",
    "1 / 0",
    "import os; os.kill(os.getpid(), 9)",
    "print('x' * 100000)",
]


@pytest.mark.parametrize("warm", [0, 4])
def test_the_host_is_as_before(root_identity: Any, warm: int) -> None:
    with StdioClient(root_identity, {"MCP_EXEC_CONCURRENCY": "16", "MCP_EXEC_WARM": str(warm)}) as client:
        for code in MIXED * 2:
            client.run(code)
        before = at_rest(client.process.pid, warm)
        memory = {
            name: rss_kib(pid) for name, pid in (("server", client.process.pid), ("launcher", before["launcher"]))
        }
        for number in range(200):
            client.run(MIXED[number % len(MIXED)])
        for call in [client.start_call(MIXED[number % len(MIXED)]) for number in range(16)]:
            client.finish(*call)
        gc.collect()
        assert settled(client.process.pid, before) == before
        after = {name: rss_kib(pid) for name, pid in (("server", client.process.pid), ("launcher", before["launcher"]))}
    assert all(after[name] < memory[name] * 1.05 for name in memory), (memory, after)
