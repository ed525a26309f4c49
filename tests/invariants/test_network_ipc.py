"""A28-A30: the network, sockets of the host, and objects that outlive a process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import Bare, StdioClient
from support.programs import ERRNO


@contextlib.contextmanager
def listener(family: int, address: object) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)  # type: ignore[arg-type]
        server.listen()
        thread = threading.Thread(target=accept_all, args=(server,), daemon=True)
        thread.start()
        yield server
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


def accept_all(server: socket.socket) -> None:
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(server.accept()[0])
    for connection in taken:
        connection.close()


CONNECT = """
import socket, time
def connect(family, kind, address):
    with socket.socket(family, kind) as probe:
        probe.settimeout(1)
        probe.connect(address)
        probe.send(b"x")
started = time.monotonic()
seen = [attempt(connect, family, kind, address) for family, kind, address in TARGETS]
print(json.dumps([seen, time.monotonic() - started < len(seen)]))
"""


def test_a28_the_network_is_reached(sandbox: StdioClient, bare: Bare) -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as server:
        own = ("127.0.0.1", server.getsockname()[1])
        targets = f"TARGETS = [(socket.AF_INET, 1, {own!r})]\n"
        assert bare.probe(ERRNO + "import socket\n" + targets + CONNECT)[0] == ["done"]
        targets = f"""TARGETS = [(2, 1, {own!r}), (2, 1, ("169.254.169.254", 80)), (2, 2, ("8.8.8.8", 53)), (2, 1, ("10.0.0.1", 443)),
                   (10, 1, ("2001:db8::1", 80)), (10, 2, ("2001:4860:4860::8888", 53)), (2, 2, ("255.255.255.255", 9))]
"""
        seen, in_time = sandbox.probe(ERRNO + "import socket\n" + targets + CONNECT)
    assert set(seen) <= {"ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES", "EHOSTUNREACH", "EAFNOSUPPORT"}, seen
    assert in_time


def test_a28_names_are_resolved(sandbox: StdioClient) -> None:
    code = """
import json, socket, time
started = time.monotonic()
try:
    found = socket.getaddrinfo("example.com", 80)
except OSError as error:
    found = "none"
print(json.dumps([found, time.monotonic() - started < 1, socket.gethostbyname("localhost")]))
"""
    assert sandbox.probe(code) == ["none", True, "127.0.0.1"]


def test_a28_loopback_is_the_runs_own(sandbox: StdioClient) -> None:
    first = sandbox.start_call(
        "import socket, time\ns = socket.create_server(('127.0.0.1', 45454)); time.sleep(1.5); print('served')"
    )
    code = "import socket, time\ntime.sleep(0.4)\nprint(socket.socket().connect_ex(('127.0.0.1', 45454)) != 0)"
    assert sandbox.run(code).stdout == "True\n"
    assert sandbox.finish(*first)["structuredContent"]["stdout"] == "served\n"


def test_a29_sockets_of_the_host_are_reached(sandbox: StdioClient, bare: Bare) -> None:
    path = f"/var/tmp/socket-of-the-tests-{os.getpid()}"
    name = f"\0socket-of-the-tests-{os.getpid()}"
    code = ERRNO + f"import socket\nTARGETS = [(1, 1, {path!r}), (1, 1, {name!r})]\n" + CONNECT
    try:
        with listener(socket.AF_UNIX, path), listener(socket.AF_UNIX, name):
            os.chmod(path, 0o777)
            assert bare.probe(code)[0] == ["done", "done"]
            seen, _ = sandbox.probe(code)
    finally:
        Path(path).unlink()
    assert seen[0] == "ENOENT"
    assert seen[1] in {"ECONNREFUSED", "EPERM"}


LEAVE_IPC = """
import ctypes.util
libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
made = [libc.shmget(4711, 4096, 0o1666), libc.semget(4712, 1, 0o1666), libc.msgget(4713, 0o1666)]
try:
    queue = libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None)
except AttributeError:
    queue = ctypes.CDLL("librt.so.1").mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None)
open("/dev/shm/sem.left", "w").close()
print(json.dumps([number >= 0 for number in (*made, queue)]))
"""
FIND_IPC = """
libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
found = [libc.shmget(4711, 4096, 0), libc.semget(4712, 1, 0), libc.msgget(4713, 0)]
try:
    queue = libc.mq_open(b"/left", os.O_RDWR)
except AttributeError:
    queue = ctypes.CDLL("librt.so.1").mq_open(b"/left", os.O_RDWR)
print(json.dumps([number >= 0 for number in (*found, queue)] + [os.path.exists("/dev/shm/sem.left")]))
"""


def test_a30_objects_are_left_for_the_next_run(sandbox: StdioClient) -> None:
    within = ERRNO + LEAVE_IPC + FIND_IPC
    made, found = map(json.loads, sandbox.run(within).stdout.splitlines())
    assert made[:3] == [sandbox.has_cgroup, True, True]  # unmapped segments are counted by a cgroup only
    assert found == [*made, True]  # Landlock refuses message queues where the kernel has it
    for _ in range(5):
        assert sandbox.probe(ERRNO + FIND_IPC) == [False] * 5


@pytest.mark.parametrize("name", ["shared", "created"])
def test_a30_shared_memory_of_the_host_is_seen(sandbox: StdioClient, name: str) -> None:
    path = Path(f"/dev/shm/of-the-tests-{name}")
    path.write_text("x")
    try:
        path.chmod(0o666)
        assert (
            sandbox.run(f"import os; print(os.path.exists({str(path)!r}), os.listdir('/dev/shm'))").stdout
            == "False []\n"
        )
    finally:
        path.unlink()
