"""Reverse proxies from Debian, with the configurations that we ship; only addresses are changed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.client import ANSWER_S, ROOT

PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy"}
_NGINX = """daemon off;
user root;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/unused;
    uwsgi_temp_path {folder}/unused;
    scgi_temp_path {folder}/unused;
    include {folder}/shipped;
}}
"""


def install(name: str) -> str:
    """The path of the program; Debian's package is installed where it is missing."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if shutil.which(name, path=path) is None:
        subprocess.run(["apt-get", "update", "-q"], check=True, capture_output=True)
        command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", PACKAGES[name]]
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
    found = shutil.which(name, path=path)
    assert found, f"Debian's {PACKAGES[name]} brought no {name}"
    return found


@contextlib.contextmanager
def proxy(name: str, folder: Path, instances: Sequence[int], token: str) -> Iterator[int]:
    """The port of a proxy before the servers on these ports."""
    program, port = install(name), free_port()
    shipped = (ROOT / "deploy/proxy" / {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[name]).read_text()
    for default, real in zip((8081, 8082), instances, strict=True):
        assert f" 127.0.0.1:{default}" in shipped
        shipped = shipped.replace(f" 127.0.0.1:{default}", f" 127.0.0.1:{real}")
    shipped, count = re.subn(r"(listen |bind ):?8080\b", rf"\g<1>127.0.0.1:{port}", shipped)
    assert count == 1
    (folder / "shipped").write_text(shipped)
    (folder / "main").write_text(_NGINX.format(folder=folder))
    arguments = ["-c", str(folder / "main"), "-e", "stderr"] if name == "nginx" else ["-f", str(folder / "shipped")]
    with open(folder / "log", "wb") as log:
        environ = {"PATH": os.environ["PATH"], "MCP_EXEC_AUTH_TOKEN": token}
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=environ)
    try:
        _wait_for(port, process, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=ANSWER_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.05)
        else:
            return
