"""Who takes part."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import install
from bench.contender import Contender, Session
from bench.mcp import open_http, open_stdio
from bench.per_call import PREFIXES, open_bare, open_bubblewrap, open_podman
from bench.programs import LINES
from bench.worker_session import WORKERS, open_worker

STDIO, HTTP, BARE, UNBUFFERED = "mcp-exec stdio", "mcp-exec http", "bare", "bare -u"
#: what our server is started with
SERVER = (str(Path(sys.executable).parent / "mcp-exec"),)
_SLOW = 5


def environ_of(folder: Path) -> dict[str, str]:
    """What every contender gets: a home, since libraries keep caches there, and nothing that changes Python's ways."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(folder / "home"), "LANG": "C.UTF-8"}


def all_contenders(folder: Path, rivals: Sequence[str] = ()) -> list[Contender]:
    """folder: the output folder, below which tools are installed. rivals: command lines of other MCP servers."""
    environ = environ_of(folder)
    ours = [_over_stdio(environ), _over_http(environ)]
    return [*ours, *_bare(folder, environ), *_sandboxes(folder, environ), *_rivals(environ, rivals)]


def _over_stdio(environ: Mapping[str, str]) -> Contender:
    what = "this server over stdio, in its default configuration"
    return Contender(name=STDIO, what=what, open=lambda: open_stdio(SERVER, environ), ours=True)


def _over_http(environ: Mapping[str, str]) -> Contender:
    what = "this server over streamable HTTP, one connection and one session for each client"
    cannot = {"1 MiB out": "answers over HTTP are cut at 1,000,000 bytes, as official clients take no more"}
    return Contender(name=HTTP, what=what, open=lambda: open_http(SERVER, environ), cannot=cannot, ours=True)


def _bare(folder: Path, environ: Mapping[str, str]) -> list[Contender]:
    uncached = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return [
        Contender(
            name=BARE,
            what="`python3 main.py`, no sandbox; the sandbox's own interpreter, all caches warm",
            open=lambda: open_bare(folder, environ),
        ),
        Contender(
            name="bare -B",
            what="the same with PYTHONDONTWRITEBYTECODE=1",
            open=lambda: open_bare(folder, uncached),
        ),
        Contender(
            name=UNBUFFERED,
            what="`python3 -u main.py`: output at once, as the sandbox has it",
            open=lambda: open_bare(folder, environ, "-u"),
            only=frozenset({LINES}),
        ),
    ]


def _sandboxes(folder: Path, environ: Mapping[str, str]) -> list[Contender]:
    tools = folder / "tools"

    @contextlib.contextmanager
    def bubblewrap() -> Iterator[Session]:
        install.debian("bubblewrap", programs=["bwrap"])
        with open_bubblewrap(folder, environ) as session:
            yield session

    @contextlib.contextmanager
    def podman() -> Iterator[Session]:
        install.debian("podman", "runc", programs=["podman", "runc"])
        with open_podman(folder, environ) as session:
            yield session

    @contextlib.contextmanager
    def sandlock() -> Iterator[Session]:
        python = install.python(tools, "sandlock")
        (folder / "work").mkdir(exist_ok=True)
        command = [python, WORKERS / "sandlock_worker.py", sys.executable, folder / "work", folder / "home"]
        readable = [
            path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev") if os.path.exists(path)
        ]
        with open_worker([*map(str, command), *readable, *PREFIXES], environ) as session:
            yield session

    @contextlib.contextmanager
    def monty() -> Iterator[Session]:
        python = install.python(tools, "monty")
        with open_worker([str(python), str(WORKERS / "monty_worker.py")], environ) as session:
            yield session

    @contextlib.contextmanager
    def pyodide() -> Iterator[Session]:
        module = install.pyodide(tools)
        node = install.node(tools)
        with open_worker([str(node), str(WORKERS / "pyodide_worker.mjs"), str(module)], environ) as session:
            yield session

    return [
        Contender(name="bubblewrap", what="`bwrap` and Python for every run, all namespaces", open=bubblewrap),
        Contender(
            name="sandlock",
            what=f"{install.PYTHON['sandlock'][0]}: Landlock and seccomp; Python started for every run",
            open=sandlock,
        ),
        Contender(name="podman", what="`podman run` with runc for every run, no network", open=podman, every=_SLOW),
        Contender(
            name="pyodide",
            what=f"{install.PYODIDE[0]}: a new WebAssembly interpreter for every run in one node process",
            open=pyodide,
            every=_SLOW,
        ),
        Contender(
            name="monty",
            what=f"{install.PYTHON['monty'][0]}: an interpreter of a part of Python, without libraries",
            open=monty,
        ),
    ]


def _rivals(environ: Mapping[str, str], commands: Sequence[str]) -> list[Contender]:
    # the default binds each command, which a plain closure would not
    return [
        Contender(
            name=f"rival {number}",
            what=f"`{command}`, an MCP server over stdio",
            open=lambda command=command: open_stdio(shlex.split(command), environ),  # type: ignore[misc]
        )
        for number, command in enumerate(commands, 1)
    ]
