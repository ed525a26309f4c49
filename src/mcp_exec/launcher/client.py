"""[server] The server's side of the launcher: exec it, greet, ask for jails, replace it when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from mcp_exec.aio import wait_readable
from mcp_exec.causes import cannot_jail
from mcp_exec.config import Config
from mcp_exec.errors import CannotJail, ConfigError, LauncherDied
from mcp_exec.jail.spec import JailSpec
from mcp_exec.launcher import wire
from mcp_exec.launcher.scratch import make_scratch, remove_scratch

_START_S = 60
_ANSWER_S = 20
_DIED = "the launcher ended during the call; the next call gets a new one"
OUT_OF_DESCRIPTORS = (
    "the server has no file descriptor left: raise its limit (LimitNOFILE in the unit, ulimit -n), or lower"
    " MCP_EXEC_CONCURRENCY and MCP_EXEC_WARM"
)


class LauncherClient:
    """One launcher process. `greet` first, then `configure`, then `start_jail` as often as wanted, one at a time.

    born: on the monotonic clock, in seconds. runs: how many programs it has made a jail for.
    retired: it makes no further ones.
    """

    def __init__(self, python: Path, process: subprocess.Popen[bytes], control: socket.socket, scratch: Path) -> None:
        self._python = python
        self._process = process
        self._control = control
        self._scratch = scratch
        self._lock = asyncio.Lock()
        self._jails = 0
        self.retired = False
        self.failed = False
        self.born = time.monotonic()
        self.runs = 0

    @classmethod
    def spawn(cls, config: Config) -> LauncherClient:
        """Exec the sandbox interpreter in its own session. Raises ConfigError where it cannot be executed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = make_scratch()
        try:
            with theirs:
                _prepare(ours, config, scratch)
                process = subprocess.Popen(
                    [str(config.python), "main.py"],  # every payload is shown it: what `python main.py` has
                    cwd=Path(__file__).parent,
                    # nothing else: that is shown too. From 3.13 on the count is read at the interpreter's start only
                    env={"LANG": "C.UTF-8", "PYTHON_CPU_COUNT": str(config.threads)},
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except (OSError, wire.WireError) as error:
            ours.close()
            remove_scratch(scratch)
            if isinstance(error, wire.WireError):
                raise ConfigError(f"MCP_EXEC_PREIMPORT cannot be used: {error}") from error
            raise ConfigError(f"MCP_EXEC_PYTHON: {config.python} cannot be executed: {error.strerror}") from error
        ours.setblocking(False)
        return cls(config.python, process, ours, scratch)

    async def greet(self) -> wire.Hello:
        """Wait for the launcher's greeting, bounded. Raises ConfigError where the interpreter gives none."""
        try:
            async with asyncio.timeout(_START_S):
                data = await asyncio.get_running_loop().sock_recv(self._control, wire.MAX_MESSAGE_BYTES)
        except (TimeoutError, OSError):
            data = b""
        remove_scratch(self._scratch)
        if not data:
            self.close()
            raise ConfigError(f"MCP_EXEC_PYTHON={str(self._python)!r} cannot be used: {_diagnose(self._python)}")
        hello = wire.Hello.decode(data)
        if not hello.can_unshare:
            self.close()
            raise ConfigError(
                f"MCP_EXEC_PYTHON={str(self._python)!r} cannot be used: CPython 3.11 needs the distribution `unshare`;"
                " install it there, or name an interpreter of 3.12 or later"
            )
        return hello

    def configure(self, spec: JailSpec) -> None:
        """Hand the spec over, once, in a memfd."""
        memory = os.memfd_create("spec", os.MFD_CLOEXEC)
        try:
            os.write(memory, spec.encode())
            socket.send_fds(self._control, [b"SPEC"], [memory])
        finally:
            os.close(memory)

    async def start_jail(self, slot: int, descriptors: Sequence[int], *, ahead: bool) -> tuple[int, int]:
        """The new init: its pid, and a pidfd of it. Raises LauncherDied or CannotJail.

        ahead: of its program. Not to be cancelled: the answer must be taken.
        """
        async with self._lock:
            try:
                socket.send_fds(self._control, [wire.encode_run(slot, ahead=ahead)], list(descriptors))
                data, received = await self._answer()
            except (OSError, TimeoutError) as error:
                self.close()
                raise LauncherDied(_DIED) from error
            finally:
                if self.failed:
                    self._control.close()
        if not data:
            self.close()
            raise LauncherDied(_DIED)
        started, value, errno = wire.decode_answer(data)
        if not started:
            raise cannot_jail(value, errno)
        if not received:  # we have no descriptor left for it: nobody could kill this init
            self.close()
            raise CannotJail(OUT_OF_DESCRIPTORS)
        return value, received[0]

    async def _answer(self) -> tuple[bytes, list[int]]:
        async with asyncio.timeout(_ANSWER_S):
            await wait_readable(self._control.fileno())
        data, received, _, _ = socket.recv_fds(self._control, wire.MAX_MESSAGE_BYTES, 1)
        return data, received

    @property
    def alive(self) -> bool:
        """Whether the process runs and its socket is in step."""
        return not self.failed and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The launcher's pid, for tests and doctor."""
        return self._process.pid

    def hold(self) -> None:
        """A jail of this launcher begins; `release` follows when it is gone."""
        self._jails += 1

    def release(self) -> None:
        """A jail is gone; with the last one goes a launcher that has retired."""
        self._jails -= 1
        self._end_if_idle()

    def retire(self) -> None:
        """No further jails; those that are there go on."""
        self.retired = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.retired and not self._jails:
            self.close()

    def close(self) -> None:
        """Kill the launcher; every init dies with it (PDEATHSIG). Idempotent."""
        self.failed = True
        remove_scratch(self._scratch)
        self._process.kill()
        self._process.wait()
        if not self._lock.locked():  # else somebody waits for an answer on it, gets its end, and closes it
            self._control.close()


def _prepare(control: socket.socket, config: Config, scratch: Path) -> None:
    """The first message, which waits in the socket until the launcher has started. Raises WireError."""
    message = wire.Prepare(modules=config.preimport, scratch=str(scratch), threads=config.threads).encode()
    extension = _own_unshare()
    if extension is None:
        control.send(message)
        return
    memory = os.memfd_create("unshare", os.MFD_CLOEXEC)
    try:
        os.write(memory, extension)
        socket.send_fds(control, [message], [memory])
    finally:
        os.close(memory)


def _diagnose(python: Path) -> str:
    """Why this interpreter did not greet, in words; accepted is CPython 3.11 or later."""
    question = "import sys; print(sys.version.split()[0], sys.version_info >= (3, 11))"
    accepted = "accepted is CPython 3.11 or later"
    try:
        answer = subprocess.run(
            [str(python), "-c", question], capture_output=True, text=True, timeout=_ANSWER_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return f"it does not run Python code; {accepted}"
    version, new_enough = (*answer.stdout.split(), "", "")[:2]
    if answer.returncode or new_enough not in ("True", "False"):
        return f"it does not run Python code; {accepted}"
    if new_enough == "False":
        return f"it is Python {version}; {accepted}"
    return f"it is Python {version}, but the launcher did not start in it (does it have ctypes?); {accepted}"


def _own_unshare() -> bytes | None:
    """The server's copy of the extension `unshare`, lent to a sandbox interpreter of 3.11 that has none."""
    import importlib.util
    import sys

    if sys.version_info >= (3, 12):
        return None
    found = importlib.util.find_spec("unshare")
    return Path(found.origin).read_bytes() if found is not None and found.origin else None
