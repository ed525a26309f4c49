"""[server] Listening sockets, and connections that cannot be held open for nothing: slow, half-open or too many."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_exec.address import Address
from mcp_exec.errors import ConfigError

#: For a whole request to arrive, and between two on one connection. Longer than nginx keeps an idle one (60 s), so
#: that the proxy and not we close it: else a request could cross our close.
REQUEST_S = 75
#: A peer that neither answers nor takes what we send is gone after about this long
_DEAD_PEER_S = 30
_MAX_CONNECTIONS = 2000


class Connection(H11Protocol):
    """uvicorn's h11 connection with a deadline for each request to arrive, and a bound on their number."""

    _arrival: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """More connections than the bound are cut at once."""
        super().connection_made(transport)
        if len(self.connections) > max_connections():
            transport.abort()
        self._watch_arrival()

    def handle_events(self) -> None:
        """Whatever was read, a request is still awaited, or one has arrived."""
        super().handle_events()
        self._watch_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, from either side."""
        super().connection_lost(exc)
        self._forget_deadline()

    def _watch_arrival(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forget_deadline()
        elif self._arrival is None and not self.transport.is_closing():
            self._arrival = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None


def max_connections() -> int:
    """Half of the descriptors at most: the other half is for runs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_CONNECTIONS, soft // 2)


def listen(address: Address) -> list[socket.socket]:
    """Sockets bound to what the address stands for. Raises ConfigError naming it where it cannot be had."""
    bound: list[socket.socket] = []
    try:
        if not address.host:
            bound.append(_listen_everywhere(address.port))
        for family, *_, place in _resolve(address):
            bound.append(_tune(socket.create_server(place, family=family)))
    except OSError as error:
        for one in bound:
            one.close()
        raise ConfigError(
            f"MCP_EXEC_ADDR={str(address)!r} cannot be used: {error.strerror or error};"
            " name a free port and an address of this host"
        ) from None
    return bound


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return _tune(socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True))
    return _tune(socket.create_server(("", port)))


def _resolve(address: Address) -> list[tuple[Any, ...]]:
    if not address.host:
        return []
    return list(dict.fromkeys(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)))


def _tune(listener: socket.socket) -> socket.socket:
    """tcp(7): accepted sockets inherit these. The timeout also bounds a peer whose window stays shut."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_PEER_S // 2)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _DEAD_PEER_S // 6)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_S * 1000)
    return listener
