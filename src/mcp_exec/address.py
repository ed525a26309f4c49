"""[leaf] Where a server listens: MCP_EXEC_ADDR, and the names of hosts and origins."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

_LAST_PORT = 65535


class Address(NamedTuple):
    """host: a name or an address, empty for every interface. port: 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`:8080`, `127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`. Raises ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
        raise ValueError(text)
    if host.startswith("[") and host.endswith("]"):
        return Address(str(ipaddress.IPv6Address(host[1:-1])), int(port))
    if any(character in host for character in ":[]/@ "):
        raise ValueError(text)
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine is meant: `localhost`, 127.0.0.0/8, ::1, and 127.0.0.0/8 as mapped into IPv6."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def host_of(authority: str) -> str:
    """The host of a Host header, or of an origin behind its scheme, in lower case; without port and brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()
