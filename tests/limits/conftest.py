"""The same expectations wherever limits are held; MCP_EXEC_EXPECT says which mechanism a test bed must show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from support.client import Identity, StdioClient
from support.limits import SMALL, Mechanism, doctor


@pytest.fixture(scope="session")
def mechanism(identity: Identity) -> Mechanism:
    wall = doctor(identity, SMALL)
    words = str(wall["mechanism"])
    found = re.match(r"cgroup v2 below (\S+) ", words)
    expected = os.environ.get("MCP_EXEC_EXPECT")
    assert expected in (None, "cgroup", "fallback")
    assert expected is None or (expected == "cgroup") == bool(wall["holds"]), wall
    assert bool(wall["holds"]) == bool(found), wall
    return Mechanism(cgroup=found is not None, words=words)


@pytest.fixture(scope="session")
def small(identity: Identity) -> Iterator[StdioClient]:
    """A server with limits low enough to reach them quickly; the same one before and after whatever tests did."""
    with StdioClient(identity, SMALL) as client:
        yield client
        assert client.process.poll() is None
        assert client.run("print('alive')").stdout == "alive\n"
