from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http import TOKEN, HttpServer


@pytest.fixture(scope="module")
def server(root_identity: object) -> Iterator[HttpServer]:
    """Stateful HTTP with a token, for tests that leave it as it was."""
    with HttpServer({"MCP_EXEC_AUTH_TOKEN": TOKEN, "MCP_EXEC_PREIMPORT": ""}) as found:
        yield found
        assert found.stop() == 0


@pytest.fixture(scope="module")
def stateless(root_identity: object) -> Iterator[HttpServer]:
    with HttpServer({"MCP_EXEC_STATELESS": "true", "MCP_EXEC_PREIMPORT": ""}) as found:
        yield found
        assert found.stop() == 0


@pytest.fixture(scope="module")
def sse(root_identity: object) -> Iterator[HttpServer]:
    with HttpServer({"MCP_EXEC_AUTH_TOKEN": TOKEN, "MCP_EXEC_PREIMPORT": ""}, transport="sse") as found:
        yield found
        assert found.stop() == 0
