from __future__ import annotations

import glob
import os
import shutil
import subprocess


def find_python(version: str) -> str | None:
    """The real path of an interpreter of this version ("3.12"): on PATH, else one that pyenv has but does not offer."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python{version}")))
    for candidate in filter(None, candidates):
        found = subprocess.run(
            [candidate, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return None
