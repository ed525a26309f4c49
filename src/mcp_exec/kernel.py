"""[leaf] Which kernel this is."""

from __future__ import annotations

import os
import re


def kernel_release() -> tuple[int, ...]:
    """Major and minor version, as in (6, 12): uname(2)."""
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
