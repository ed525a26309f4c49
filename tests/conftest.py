from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.beds import skip_or_fail
from support.client import ROOT, Bare, Identity, StdioClient, own_identity

ORDINARY_ID = 61234
DEBIAN_PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "-w", "-o", str(target), str(ROOT)], check=True, capture_output=True)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Iterator[Path]:
    """The built wheel in an empty virtualenv of the system's Python, at a place that every user can read."""
    place = Path(tempfile.mkdtemp(prefix="mcp_exec_test_", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        subprocess.run([sys.executable, "-m", "virtualenv", "-q", "-p", DEBIAN_PYTHON, str(place / "venv")], check=True)
        python = place / "venv/bin/python"
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", f"{wheel}[sandbox]"], check=True, capture_output=True
        )
        subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
        yield place / "venv"
    finally:
        shutil.rmtree(place)


@pytest.fixture(scope="session")
def root_identity() -> Identity:
    if os.environ.get("MCP_EXEC_IDENTITIES") == "user":
        pytest.skip("this bed is the ordinary user's; the one beside it is root's")
    if os.geteuid() != 0:
        skip_or_fail("not root: the privileged path cannot be shown")
    return own_identity()


@pytest.fixture(scope="session")
def user_identity(request: pytest.FixtureRequest) -> Identity:
    if os.geteuid() != 0:
        return own_identity()
    venv = request.getfixturevalue("installed")
    prefix = ("setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups")
    return Identity(name="user", command=(str(venv / "bin/mcp-exec"),), python=str(venv / "bin/python"), prefix=prefix)


@pytest.fixture(scope="session", params=os.environ.get("MCP_EXEC_IDENTITIES", "root user").split())
def identity(request: pytest.FixtureRequest) -> Identity:
    found: Identity = request.getfixturevalue(f"{request.param}_identity")
    return found


@pytest.fixture(scope="session")
def sandbox(identity: Identity) -> Iterator[StdioClient]:
    """One server for the whole session; whatever a test did to it, the next call must work."""
    client = StdioClient(identity, {"MCP_EXEC_AUTH_TOKEN": "token-of-the-tests", "MCP_EXEC_CONCURRENCY": "4"})
    yield client
    assert client.close() == 0


@pytest.fixture(autouse=True)
def still_answers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Safe always also means: the next call works."""
    yield
    if "sandbox" in request.fixturenames:
        client = request.getfixturevalue("sandbox")
        assert client.run("print('next')").stdout == "next\n"


@pytest.fixture(scope="session")
def bare(identity: Identity) -> Bare:
    return Bare(identity=identity)
