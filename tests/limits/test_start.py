"""What a server says of its limits, and where it refuses to start."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from support.client import ANSWER_S, Identity, StdioClient
from support.limits import SMALL, Mechanism, doctor

ABSURD = [
    ("MEMORY", "0"), ("MEMORY", "1k"), ("MEMORY", "-1"), ("MEMORY", "lots"), ("MEMORY", "9999999g"),
    ("PIDS", "0"), ("PIDS", "-5"), ("PIDS", "1.5"), ("PIDS", "99999999"),
    ("CPUS", "0"), ("CPUS", "nan"), ("CPUS", "inf"), ("CPUS", "-1"), ("CPUS", "1e9"),
    ("WORKSPACE", "0"), ("WORKSPACE", "9999999g"),
    ("CGROUP", "relative/path"), ("CGROUP", "/nowhere"), ("CGROUP", "/etc"),
]  # fmt: skip


def start(identity: Identity, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*identity.prefix, *identity.command],
        env={"PATH": os.environ["PATH"], **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ANSWER_S * 4,
    )


@pytest.mark.parametrize(("name", "value"), ABSURD)
def test_absurd_values_are_refused_by_name(identity: Identity, name: str, value: str) -> None:
    done = start(identity, {f"MCP_EXEC_{name}": value})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"MCP_EXEC_{name}={value!r}" in done.stderr


def test_the_least_of_everything_works(identity: Identity) -> None:
    least = {"MEMORY": "64m", "PIDS": "8", "CPUS": "0.05", "WORKSPACE": "1m", "CONCURRENCY": "1"}
    with StdioClient(identity, {f"MCP_EXEC_{name}": value for name, value in least.items()}) as client:
        answer = client.run("print(6 * 7)", timeout_s=60)
    assert (answer.stdout, answer.exit_code, answer.stderr) == ("42\n", 0, "")


def test_the_mechanism_is_said_in_the_log_and_to_the_model(identity: Identity, mechanism: Mechanism) -> None:
    with StdioClient(identity, SMALL) as client:
        described = client.request("tools/list")["tools"][0]["description"]
    log = b"".join(client.log).decode()
    assert mechanism.cgroup or mechanism.words in log  # a cgroup's words hold the server's own number
    assert "128 MiB" in described
    if mechanism.cgroup:
        assert "held by cgroup v2" in described
        assert "memory.max" in log
    else:
        assert "no cgroup" in described
        assert "watchdog" in log


def test_switched_off_it_is_the_fallback_and_says_so(identity: Identity) -> None:
    wall = doctor(identity, {"MCP_EXEC_CGROUP": "off"})
    assert (wall["holds"], wall["required"]) == (False, False)
    assert "MCP_EXEC_CGROUP=off" in str(wall["mechanism"])


def test_a_required_cgroup_that_is_missing_stops_the_server(identity: Identity) -> None:
    done = start(identity, {"MCP_EXEC_CGROUP": "off", "MCP_EXEC_REQUIRE": "cgroup"})
    assert done.returncode == 1
    assert re.search(r"I7.*MCP_EXEC_CGROUP=off.*unset MCP_EXEC_CGROUP", done.stderr), done.stderr


def test_a_required_cgroup_that_is_there_lets_it_start(identity: Identity, mechanism: Mechanism) -> None:
    done = start(identity, {"MCP_EXEC_REQUIRE": "cgroup"})
    assert done.returncode == (0 if mechanism.cgroup else 1), done.stderr
