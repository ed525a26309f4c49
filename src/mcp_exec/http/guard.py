"""[server] Who may ask: the token, the Host and the Origin of every request, before its body is read.

A web page that the operator's browser shows can reach a server on loopback, under the page's own host name (DNS
rebinding): hence the Host check. Specification: MCP 2025-11-25, Transports, Security Warning.
"""

from __future__ import annotations

import hmac
import os

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_exec.address import host_of, is_loopback
from mcp_exec.config import Config

_MAX_QUOTED = 100


class Guard:
    """ASGI middleware outside of everything that looks at a request."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app = app
        self._token = os.fsencode(config.auth_token)
        self._hosts = config.allowed_hosts
        self._origins = config.allowed_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """401 for a token that is missing or wrong, 403 for a foreign Host or Origin; else the application."""
        if scope["type"] != "http":
            return
        refusal = self._refuse(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        if not self._knows_token(scope):
            words = "401 Unauthorized: the header X-MCP-AUTH is missing or wrong"
            return _refusal(401, words, {"WWW-Authenticate": "X-MCP-AUTH"})  # RFC 9110, 11.6.1
        words = self._refuse_host(scope) or self._refuse_origin(scope)
        return _refusal(403, f"403 Forbidden: {words}") if words else None

    def _knows_token(self, scope: Scope) -> bool:
        if not self._token:
            return True
        given = _values(scope, b"x-mcp-auth")
        return hmac.compare_digest(b"\n".join(given), self._token)  # two of them are no token: it has no line end

    def _refuse_host(self, scope: Scope) -> str:
        hosts = [value.decode("latin-1").lower() for value in _values(scope, b"host")]
        host = hosts[0] if len(hosts) == 1 else ""
        if host and self._hosts & {host, host_of(host)}:
            return ""
        allowed = is_loopback(host_of(host)) if _is_local(scope) else bool(host) and not self._hosts
        return "" if allowed else f"the Host {host[:_MAX_QUOTED]!r} is not one of MCP_EXEC_ALLOWED_HOSTS"

    def _refuse_origin(self, scope: Scope) -> str:
        for value in _values(scope, b"origin"):
            origin = value.decode("latin-1").lower()
            local = _is_local(scope) and is_loopback(host_of(origin.partition("://")[2]))
            if origin not in self._origins and not local:
                return f"the Origin {origin[:_MAX_QUOTED]!r} is not one of MCP_EXEC_ALLOWED_ORIGINS"
        return ""


def _refusal(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """A JSON-RPC error: of any other body, the official Python client tells neither the words nor the status."""
    error = {"code": INVALID_REQUEST, "message": f"mcp-exec: {words}"}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(client[0])
