"""[server] Structured logs on stderr: sizes, durations, exit codes; never what a caller sent or a program printed."""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import Any

import structlog

from mcp_exec.config import LogLevel

_MAX_LINE_BYTES = 4096  # PIPE_BUF: poll(2) promises that a pipe takes this much without blocking


class _StderrLogger:
    """Never blocks: a client that does not read stderr must not stop the server. What is dropped is counted."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._poller.register(2, select.POLLOUT)
        self._dropped = 0

    def msg(self, line: str) -> None:
        """One line, cut to what a pipe takes at once."""
        if not self._poller.poll(0):
            self._dropped += 1
            return
        if self._dropped:
            line = f"{line} lines_dropped={self._dropped}"
            self._dropped = 0
        try:
            os.write(2, line.encode("utf-8", "replace")[: _MAX_LINE_BYTES - 1] + b"\n")
        except OSError:
            self._dropped += 1

    debug = info = warning = error = msg


def configure_logs(level: LogLevel) -> None:
    """Set up structlog, and silence the loggers of libraries: theirs may quote a caller's message."""
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None  # its report would quote values
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.value),
        logger_factory=lambda *_: _StderrLogger(),
        cache_logger_on_first_use=True,
    )


def get_logger() -> Any:
    """The logger of the server."""
    return structlog.get_logger()
