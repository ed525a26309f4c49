"""[server] A folder for what libraries write while the launcher imports them, as matplotlib does; gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "mcp-exec-"


def make_scratch() -> Path:
    """A private folder that carries our pid in its name; those of servers that died are swept first."""
    _sweep(Path(tempfile.gettempdir()))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def remove_scratch(folder: Path) -> None:
    """Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}[0-9]*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            ours = folder.lstat().st_uid == os.geteuid()
        except OSError:
            continue
        if ours and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove_scratch(folder)
