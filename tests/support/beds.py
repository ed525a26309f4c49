"""What a bed must show, as its environment says."""

from __future__ import annotations

import os

import pytest


def skip_or_fail(reason: str) -> None:
    """A wall that this machine cannot show is a failure where MCP_EXEC_MUST_JAIL is set."""
    if os.environ.get("MCP_EXEC_MUST_JAIL") == "1":
        pytest.fail(f"MCP_EXEC_MUST_JAIL=1 and {reason}")
    pytest.skip(reason)
