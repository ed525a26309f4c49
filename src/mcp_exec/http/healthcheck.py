"""[server] `mcp-exec healthcheck`: asks the server that the same environment configures. For probes."""

from __future__ import annotations

import http.client
import ipaddress

from mcp_exec.address import Address
from mcp_exec.config import Config
from mcp_exec.errors import Unhealthy

_ANSWER_S = 5


def ask(config: Config, path: str) -> None:
    """GET the path. Raises Unhealthy with the reason where the answer is not 200."""
    address = _reachable(config.addr)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_ANSWER_S)
    headers = {"X-MCP-AUTH": config.auth_token} if config.auth_token else {}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        words = answer.read(200).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(f"no answer from {address}: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise Unhealthy(f"{address}{path} answered {answer.status}: {words}")


def _reachable(address: Address) -> Address:
    """Every interface includes loopback."""
    try:
        everywhere = ipaddress.ip_address(address.host or "0.0.0.0").is_unspecified  # noqa: S104 - compared, not bound
    except ValueError:
        return address
    return address._replace(host="::1" if ":" in address.host else "127.0.0.1") if everywhere else address
