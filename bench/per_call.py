"""Contenders that start a process for every run: bare Python, bubblewrap, podman."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.contender import Session, Unavailable
from bench.programs import Outcome, Program

_RUN_S = 120.0
_IMAGE = "localhost/mcp-exec-bench:latest"
_PROGRAMS = "/programs"
#: folders of the interpreter and its libraries: the virtualenv's and what it was made from
PREFIXES = tuple(dict.fromkeys((sys.prefix, sys.base_prefix)))


class PerCallSession(Session):
    """`command` and the path of the program, as a new process each time; its end is the end of the run.

    inside: where the command finds the folder of the programs; None: where it is.
    """

    def __init__(
        self, folder: Path, command: Sequence[str], environ: Mapping[str, str], *, inside: str | None = None
    ) -> None:
        self._folder, self._command, self._environ, self._inside = folder, command, environ, inside
        self._work = folder / "work"
        self._work.mkdir(exist_ok=True)

    def run(self, program: Program) -> Outcome:
        path = Path(self._inside or self._folder / "programs", program.name, "main.py")
        done = subprocess.run(
            [*self._command, str(path)],
            env=self._environ,
            cwd=self._work,
            input=program.stdin.encode(),
            capture_output=True,
            timeout=_RUN_S,
        )
        return Outcome(stdout=done.stdout.decode(), stderr=done.stderr.decode(), exit_code=done.returncode)


@contextlib.contextmanager
def open_bare(folder: Path, environ: Mapping[str, str], *options: str) -> Iterator[Session]:
    """Python as it is; `environ` is all that it gets."""
    yield PerCallSession(folder, [sys.executable, *options], environ)


@contextlib.contextmanager
def open_bubblewrap(folder: Path, environ: Mapping[str, str]) -> Iterator[Session]:
    """Namespaces of its own and a read-only view of the libraries. Raises Unavailable."""
    binds, links = _system()
    command = [_need("bwrap"), "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp", "--chdir", "/tmp", "--ro-bind", str(folder / "programs"), _PROGRAMS]
    for path in (*binds, *PREFIXES):
        command += ["--ro-bind", path, path]
    for path, target in links:
        command += ["--symlink", target, path]
    command += ["--bind", environ["HOME"], environ["HOME"], sys.executable]
    yield PerCallSession(folder, command, environ, inside=_PROGRAMS)


@contextlib.contextmanager
def open_podman(folder: Path, environ: Mapping[str, str]) -> Iterator[Session]:
    """An empty image with the host's libraries bound into it, so that all run the same interpreter."""
    podman = [_need("podman"), "--runtime", _need("runc"), "--cgroup-manager", "cgroupfs"]
    binds, links = _system()
    made = subprocess.run([*podman, "import", "-q", "-", _IMAGE], input=_empty_image(links), capture_output=True)
    if made.returncode != 0:
        raise Unavailable(made.stderr.decode().strip().splitlines()[-1][:200])
    # podman asks for limits of its own that a restricted root may not set
    command = [*podman, "run", "--rm", "-i", "--network", "none", "--ulimit", "nofile=1024:4096"]
    command += ["--ulimit", "nproc=4096:4096", "--tmpfs", "/tmp", "--workdir", "/tmp"]
    for path in (*binds, *PREFIXES):
        command += ["--volume", f"{path}:{path}:ro"]
    command += ["--volume", f"{folder / 'programs'}:{_PROGRAMS}:ro"]
    command += ["--volume", f"{environ['HOME']}:{environ['HOME']}", "--env", f"HOME={environ['HOME']}"]
    yield PerCallSession(folder, [*command, _IMAGE, sys.executable], {**os.environ}, inside=_PROGRAMS)


def _system() -> tuple[list[str], list[tuple[str, str]]]:
    """The host's folders of programs and libraries, and those of them that are links: (path, target)."""
    paths = [path for path in ("/usr", "/bin", "/lib", "/lib32", "/lib64") if os.path.exists(path)]
    links = [(path, os.readlink(path)) for path in paths if os.path.islink(path)]
    return [path for path in paths if not os.path.islink(path)], links


def _empty_image(links: Sequence[tuple[str, str]]) -> bytes:
    """An archive of nothing but links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, target in links:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return data.getvalue()


def _need(program: str) -> str:
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise Unavailable(f"{program} is not installed")
    return found
