"""A server in a cgroup that leaves less than was asked for: runs are lowered, the server survives. v2 and v1 alike."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.client import COLD, Identity, StdioClient, to_answer
from support.limits import OUTSIDE, Mechanism, base_of, may_join
from support.processes import children_of, launcher_of
from support.waiting import wait_until

AROUND_MIB = 320
_V1 = Path("/sys/fs/cgroup/memory")
EATS = "held = []\nwhile True: held.append(b'x' * (1 << 20))"


@pytest.fixture
def around(mechanism: Mechanism, small: StdioClient) -> Iterator[Path]:
    """A cgroup with a memory limit: one of v2 below the base of another server, or of v1."""
    if mechanism.cgroup:
        parent, limit = base_of(small), "memory.max"
        if not may_join(parent):
            pytest.skip(OUTSIDE)
        (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    elif os.access(_V1 / "cgroup.procs", os.W_OK):
        parent, limit = _V1, "memory.limit_in_bytes"
    else:
        pytest.skip("no cgroup can be made here, of v2 or v1; make test-uml shows it")
    folder = Path(tempfile.mkdtemp(prefix="test-tight-", dir=parent))
    folder.chmod(0o755)
    (folder / limit).write_text(str(AROUND_MIB << 20))
    yield folder
    for child in (*folder.glob("mcp-exec-*"), folder):
        child.rmdir()


def joining(folder: Path, command: tuple[str, ...]) -> tuple[str, ...]:
    return ("sh", "-c", f'echo 0 >{folder}/cgroup.procs && exec "$@"', "join", *command)


@pytest.fixture
def tight(identity: Identity, around: Path) -> Identity:
    """The same identity, in that cgroup."""
    return replace(identity, prefix=joining(around, identity.prefix))


def test_the_limit_is_lowered_said_and_held(tight: Identity) -> None:
    with StdioClient(tight, {"MCP_EXEC_MEMORY": "512m", "MCP_EXEC_CONCURRENCY": "3", **COLD}) as client:
        described = client.request("tools/list")["tools"][0]["description"]
        given_mib = int(re.search(r"(\d+) MiB of memory", described)[1])
        assert 32 <= given_mib < AROUND_MIB
        answer = client.run(EATS, timeout_s=60)
        assert answer.stderr.endswith(f"mcp-exec: the memory limit of {given_mib} MiB ended the run\n"), answer
        assert answer.exit_code == 137
        calls = [client.start_call(EATS, timeout_s=60) for _ in range(3)]
        for call in calls:
            assert "mcp-exec: the memory limit of" in to_answer(client.finish(*call)).stderr
        assert client.run("print(1)").stdout == "1\n"
        assert client.process.poll() is None
    log = b"".join(client.log).decode()
    assert "memory limit lowered" in log
    assert f"mib={given_mib}" in log or f'"mib": {given_mib}' in log


def test_ready_jails_make_room_and_come_back(tight: Identity, around: Path) -> None:
    with StdioClient(tight, {"MCP_EXEC_MEMORY": "512m", "MCP_EXEC_CONCURRENCY": "1", "MCP_EXEC_WARM": "2"}) as client:
        launcher = launcher_of(client.process.pid)
        wait_until(lambda: len(children_of(launcher)) == 2, 30)
        described = client.request("tools/list")["tools"][0]["description"]
        left_mib = int(re.search(r"(\d+) MiB of memory", described)[1])
        of_server = around / "mcp-exec-server"
        eats = f"import time; held = b'x' * ({left_mib} << 20); print('held', flush=True); time.sleep(600)"
        command = joining(of_server if of_server.exists() else around, (tight.python, "-S", "-c", eats))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as neighbour:
            assert neighbour.stdout.readline() == b"held\n"
            wait_until(lambda: not children_of(launcher), 30)
            assert client.run("print(1)").stdout == "1\n"
            neighbour.kill()
        wait_until(lambda: len(children_of(launcher)) == 2, 30)
        assert client.run("print(2)").stdout == "2\n"


def test_its_workspace_is_smaller_than_its_memory(tight: Identity) -> None:
    code = (
        "import errno\ntry:\n    with open('full', 'wb', buffering=0) as f:\n        while True: f.write(bytes(1 << 20))\n"
        "except OSError as error: print(errno.errorcode[error.errno])"
    )
    with StdioClient(tight, {"MCP_EXEC_MEMORY": "512m", "MCP_EXEC_WORKSPACE": "1g"}) as client:
        answer = client.run(code, timeout_s=60)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout in ("ENOSPC\n", "EFBIG\n")
