"""Who may ask: the token, the Host and the Origin, on every path and before the body is read."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from support.client import INITIALIZE
from support.http import TOKEN, HttpServer
from support.processes import launcher_of
from support.waiting import wait_until

PATHS = ["/mcp", "/healthz", "/readyz", "/metrics", "/", "/sse", "/messages/"]


def statuses(server: HttpServer, headers: list[tuple[str, str]], path: str = "/readyz", method: str = "GET") -> int:
    """With exactly these headers, in this order."""
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status


HERE = ("Host", "localhost")
AUTH = ("X-MCP-AUTH", TOKEN)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT"])
def test_no_path_and_no_method_answers_without_the_token(server: HttpServer, path: str, method: str) -> None:
    assert statuses(server, [HERE], path, method) == 401


@pytest.mark.parametrize(
    "given",
    [
        [("X-MCP-AUTH", "")],
        [("X-MCP-AUTH", TOKEN[:-1])],
        [("X-MCP-AUTH", TOKEN + "x")],
        [("X-MCP-AUTH", TOKEN.upper())],
        [("X-MCP-AUTH", "\xff\xfe")],
        [AUTH, AUTH],
        [AUTH, ("x-mcp-auth", "other")],
        [("Authorization", f"Bearer {TOKEN}")],
        [("Cookie", f"X-MCP-AUTH={TOKEN}")],
    ],
)
def test_what_is_no_token(server: HttpServer, given: list[tuple[str, str]]) -> None:
    assert statuses(server, [HERE, *given]) == 401
    assert statuses(server, [HERE, AUTH]) == 200  # the control


def test_a_refusal_is_an_error_that_clients_can_tell(server: HttpServer) -> None:
    foreign = server.headers(Origin="http://evil.example")
    for headers, expected in (({}, "401 Unauthorized: the header X-MCP-AUTH"), (foreign, "403 Forbidden: the Origin")):
        status, told, body = server.ask("POST", "/mcp", b"{}", headers)
        message = json.loads(body)
        assert (told["content-type"], message["id"]) == ("application/json", None)
        assert message["error"]["message"].startswith(f"mcp-exec: {expected}")
        assert expected.startswith(str(status))


def test_401_comes_before_the_body_is_read(server: HttpServer) -> None:
    """A gigabyte is announced; not one byte of it is sent, nor asked for."""
    for expect in (b"", b"Expect: 100-continue\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n" + expect + b"\r\n"
            )
            assert client.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_a_body_that_comes_after_401_is_dropped_and_the_answer_arrives(server: HttpServer) -> None:
    for _ in range(20):
        status, _, _ = server.ask("POST", "/mcp", b"x" * 3_000_000, {"Host": "localhost"})
        assert status == 401


def test_the_token_is_in_no_log_and_in_no_jail(server: HttpServer) -> None:
    server.ask("GET", f"/{TOKEN}")
    session = server.session()
    answer = server.run("import os; print(dict(os.environ), open('/proc/self/environ').read())", session)
    assert answer.exit_code == 0
    assert TOKEN not in answer.stdout
    assert not any(TOKEN in line for line in server.log)
    launcher = launcher_of(server.process.pid)
    assert TOKEN.encode() not in Path(f"/proc/{launcher}/environ").read_bytes()
    if os.geteuid() == 0:
        assert TOKEN.encode() not in memory_of(launcher)
        assert TOKEN.encode() in memory_of(server.process.pid)  # the control: it can be found


def memory_of(pid: int) -> bytes:
    found = bytearray()
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            place, modes, *_ = line.split()
            if not modes.startswith("rw"):
                continue
            start, end = (int(part, 16) for part in place.split("-"))
            with contextlib.suppress(OSError):
                memory.seek(start)
                while start < end and (data := memory.read(min(1 << 20, end - start))):
                    found += data
                    start += len(data)
    return bytes(found)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "127.9.9.9:80", "[::1]:8080"])
def test_hosts_that_are_this_machine(server: HttpServer, host: str) -> None:
    assert statuses(server, [("Host", host), AUTH]) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "0.0.0.0", "[::2]", "169.254.1.1"]
)
def test_a_foreign_host_on_a_loopback_connection_is_refused(server: HttpServer, host: str) -> None:
    """DNS rebinding: the page's own name, resolved to 127.0.0.1."""
    assert statuses(server, [("Host", host), AUTH]) == 403


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "file://", "http://localhost.evil.example", ""])
def test_a_foreign_origin_is_refused_everywhere(server: HttpServer, origin: str, path: str) -> None:
    assert statuses(server, [HERE, AUTH, ("Origin", origin)], path) == 403


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1:3000", "https://[::1]"])
def test_a_page_of_this_machine_may_ask(server: HttpServer, origin: str) -> None:
    assert statuses(server, [HERE, AUTH, ("Origin", origin)]) == 200
    assert statuses(server, [HERE, AUTH, ("Origin", origin), ("Origin", "http://evil.example")]) == 403


def test_further_names_and_pages_are_configured(root_identity: object) -> None:
    environ = {
        "MCP_EXEC_ALLOWED_HOSTS": "exec.example.org, other.example.org:8443",
        "MCP_EXEC_ALLOWED_ORIGINS": "https://app.example.org",
        "MCP_EXEC_PREIMPORT": "",
    }
    with HttpServer(environ) as server:
        expected = {
            "exec.example.org": 200,
            "EXEC.example.org:99": 200,
            "other.example.org:8443": 200,
            "other.example.org": 403,
            "localhost": 200,
            "evil.example": 403,
        }
        assert {host: statuses(server, [("Host", host)]) for host in expected} == expected
        page = ("Origin", "https://app.example.org")
        assert statuses(server, [HERE, page]) == 200
        assert statuses(server, [HERE, ("Origin", "http://app.example.org")]) == 403
        asked = ("Access-Control-Request-Method", "POST")
        assert statuses(server, [HERE, page, asked], "/mcp", "OPTIONS") == 200
        assert statuses(server, [HERE, ("Origin", "https://evil.example"), asked], "/mcp", "OPTIONS") == 400
        _, told, _ = server.ask("GET", "/readyz", headers={"Host": "localhost", "Origin": "https://app.example.org"})
        assert told["access-control-allow-origin"] == "https://app.example.org"


def test_from_elsewhere_a_host_is_needed_only_where_some_are_named(root_identity: object) -> None:
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()[0]
    for allowed, expected in (("", 200), ("exec.example.org", 403)):
        environ = {"MCP_EXEC_ADDR": ":0", "MCP_EXEC_ALLOWED_HOSTS": allowed, "MCP_EXEC_PREIMPORT": ""}
        with HttpServer(environ) as server, contextlib.closing(http.client.HTTPConnection(own, server.port)) as client:
            client.request("GET", "/readyz", headers={"Host": "any.example"})
            assert client.getresponse().status == expected


def test_listening_beyond_loopback_without_a_token_is_warned_about(root_identity: object) -> None:
    for addr, token, warned in ((":0", "", True), (":0", TOKEN, False), ("127.0.0.1:0", "", False)):
        environ = {"MCP_EXEC_ADDR": addr, "MCP_EXEC_AUTH_TOKEN": token, "MCP_EXEC_PREIMPORT": ""}
        with HttpServer(environ) as server:
            status, told, _ = server.post({"id": 0, "method": "initialize", "params": INITIALIZE})
            assert status == 200, told
            server.stop()
            assert any("anybody who reaches" in line for line in server.log) == warned


def test_an_unreadable_token_is_refused_and_not_shown(root_identity: object) -> None:
    for token in (" padded", "two\nlines", "bell\a"):
        done = subprocess.run(
            root_identity.command,  # type: ignore[attr-defined]
            env={"PATH": os.environ["PATH"], "MCP_EXEC_TRANSPORT": "http", "MCP_EXEC_AUTH_TOKEN": token},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert "MCP_EXEC_AUTH_TOKEN" in done.stderr
        assert token.strip() not in done.stderr


def test_slow_and_idle_connections_do_not_stop_others(server: HttpServer) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    try:
        for number, one in enumerate(held):
            one.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * (number % 50))
        assert server.ask("GET", "/readyz")[0] == 200
    finally:
        for one in held:
            one.close()
    wait_until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) < 50)
