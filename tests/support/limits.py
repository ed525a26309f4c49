"""Limits low enough to be reached quickly, and what the server says of how they are held."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.client import ANSWER_S, COLD, Identity, StdioClient

SMALL = {
    "MCP_EXEC_MEMORY": "128m",
    "MCP_EXEC_PIDS": "48",
    "MCP_EXEC_CPUS": "0.5",
    "MCP_EXEC_CONCURRENCY": "2",
    **COLD,
}
MEMORY_MIB, PIDS, CPUS = 128, 48, 0.5


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What holds the limits for this identity on this host."""

    cgroup: bool
    words: str


def doctor(identity: Identity, environ: dict[str, str]) -> dict[str, object]:
    command = [*identity.prefix, *identity.command, "doctor", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=ANSWER_S * 4, env={"PATH": os.environ["PATH"], **environ}
    )
    report = json.loads(done.stdout)
    return next(wall for wall in report["walls"] if wall["id"] == "I7")


def may_join(base: Path) -> bool:
    """Whether processes of the tests can be moved below base: only root moves them into another's: cgroups(7)."""
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    mount = next(path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if path.exists())
    return os.geteuid() == 0 or base in (mount / own.lstrip("/")).parents


OUTSIDE = "the tests run outside of what was delegated to the server; the other beds of make test-vm show it"


def base_of(client: StdioClient) -> Path:
    """What its log says: under systemd each server may have been given a scope of its own."""
    found = re.search(r"cgroup v2 below (\S+) ", b"".join(client.log).decode())
    assert found
    return Path(found[1])
