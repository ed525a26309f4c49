from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http import TOKEN, HttpServer

from clients.install import install


@pytest.fixture(scope="session")
def clients() -> None:
    """All of them are there."""
    install()


@pytest.fixture(scope="session")
def http(root_identity: object) -> Iterator[HttpServer]:
    with HttpServer({"MCP_EXEC_AUTH_TOKEN": TOKEN, "MCP_EXEC_PREIMPORT": ""}) as found:
        yield found
        assert found.stop() == 0


@pytest.fixture(scope="session")
def sse(root_identity: object) -> Iterator[HttpServer]:
    with HttpServer({"MCP_EXEC_AUTH_TOKEN": TOKEN, "MCP_EXEC_PREIMPORT": ""}, transport="sse") as found:
        yield found
        assert found.stop() == 0
