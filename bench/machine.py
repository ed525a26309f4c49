"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("numpy", "pandas", "matplotlib", "mcp")


def describe() -> dict[str, str]:
    """Words for a table; nothing that tells whose machine it is."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "mcp-exec": f"{version('mcp-exec')}, commit {_commit()}",
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
        "Python": platform.python_version(),
        "libraries": ", ".join(f"{name} {version(name)}" for name in _LIBRARIES),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
