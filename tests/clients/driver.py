"""Starts a client's program against a server, and follows it step by step."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.client import ANSWER_S
from support.processes import children_of, descendants_of
from support.waiting import wait_until

from clients.install import CLIENTS, node, python_of

PROGRAMS = Path(__file__).parent / "programs"
CANCELLED_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client as installed: its program, the transports that it has, the eras that it can be told."""

    name: str
    program: str
    transports: tuple[str, ...] = ("stdio", "http", "sse")
    eras: tuple[str, ...] = ("legacy",)
    leaves: tuple[str, ...] = ()
    """Where it cancels by ending its session."""

    def command(self, asked: Mapping[str, Any]) -> list[str]:
        words = [str(PROGRAMS / self.program), json.dumps(asked)]
        if self.program.endswith(".mjs"):
            return [str(node()), *words, str(CLIENTS / self.name)]
        return [str(python_of(self.name)), *words]


class Tour:
    """A running client; each of its steps is one line."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors: list[str] = []
        self._thread = threading.Thread(target=lambda: self._errors.extend(self.process.stderr or ()))
        self._thread.start()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.end()
        told: dict[str, Any] = json.loads(line)
        return told

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def cancel(self, server: int) -> float:
        """Seconds until the jail of the call that is at work was dead."""
        wait_until(lambda: not jails(server))
        self.go()
        wait_until(lambda: jails(server))
        (jail,) = jails(server)
        family = {jail} | descendants_of(jail)
        self.go()
        seconds = wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family))
        return seconds

    def end(self) -> tuple[int, str]:
        """Exit status and what was said on stderr."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            status = self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status, "".join(self._errors)

    def __enter__(self) -> Tour:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def jails(server: int) -> set[int]:
    """Those at work: below the launcher, which is the server's only child."""
    return {jail for launcher in children_of(server) for jail in children_of(launcher)}


def server_below(client: int) -> int:
    """The server that a client started over stdio, itself or through another process."""
    found = [pid for pid in descendants_of(client) if is_server(pid)]
    assert len(found) == 1, found
    return found[0]


def is_server(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(b"/mcp-exec") for word in words)
