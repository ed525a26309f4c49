"""[leaf] The limits of a run as they are in force, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mcp_exec.config import Config
from mcp_exec.errors import ConfigError

_MIB = 1 << 20
#: Less than this and the interpreter itself would be killed
_LEAST_MEMORY = 16 * _MIB
#: Kept free of what is left to us, for the server's and the launcher's own growth
_RESERVE = 16 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """memory_bytes and workspace_bytes per run; pids counts processes and threads; cpus in processors.

    together_bytes: what all runs together may take of memory; None where nothing above us sets a bound.
    """

    memory_bytes: int
    together_bytes: int | None
    pids: int
    cpus: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """What limits did to a run, and what it took. None where this host does not say.

    memory_limit_bytes: the limit whose breach ended the run, of the run or of all together.
    """

    memory_limit_bytes: int | None = None
    out_of_pids: bool = False
    peak_memory_bytes: int | None = None
    cpu_time_ms: int | None = None


def fit(config: Config, memory_left: int | None) -> Limits:
    """The configured limits, with memory lowered to what is left (None: no bound), and the workspace to half of it.

    A full workspace must be ENOSPC and not a kill. Raises ConfigError where no run would fit.
    """
    together = None if memory_left is None else memory_left - _RESERVE
    memory = config.memory_bytes if together is None else min(config.memory_bytes, together)
    if memory < _LEAST_MEMORY:
        raise ConfigError(
            f"only {max(0, memory) // _MIB} MiB of memory are left to runs by the cgroup that the server is in;"
            f" give it (the container, the unit) more, at least {_LEAST_MEMORY // _MIB} MiB for one run"
        )
    wanted = Limits(
        memory_bytes=memory,
        together_bytes=together,
        pids=config.pids,
        cpus=config.cpus,
        workspace_bytes=config.workspace_bytes,
    )
    return replace(wanted, workspace_bytes=min(config.workspace_bytes, memory // 2))
