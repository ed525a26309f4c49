"""For what comes to pass soon, at no moment that could be told."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> float:
    """How long it took, in seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it did not come to pass"
        time.sleep(0.01)
    return time.monotonic() - started
