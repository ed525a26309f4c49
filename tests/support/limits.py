"""Limits low enough to be reached quickly, and what the server says of how they are held."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.client import ANSWER_S, Identity, StdioClient

SMALL = {"MCP_EXEC_MEMORY": "128m", "MCP_EXEC_PIDS": "48", "MCP_EXEC_CPUS": "0.5", "MCP_EXEC_CONCURRENCY": "2"}
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


def base_of(client: StdioClient) -> Path:
    """What its log says: under systemd each server may have been given a scope of its own."""
    found = re.search(r"cgroup v2 below (\S+) ", b"".join(client.log).decode())
    assert found
    return Path(found[1])
