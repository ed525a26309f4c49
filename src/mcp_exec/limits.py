"""[leaf] The limits of a run as they are in force, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_exec.config import Config
from mcp_exec.errors import ConfigError

_MIB = 1 << 20
#: Less than this and the interpreter itself would be killed
_LEAST_MEMORY = 16 * _MIB
#: Kept free of what is left to us, for the server's and the launcher's own growth
_RESERVE = 16 * _MIB
#: What a ready jail takes of memory: with the pages in it that programs touch, and without
_READY_BYTES, _READY_BARE_BYTES = 32 * _MIB, 8 * _MIB
#: Ready jails may take this part of what is left to runs, and such pages this part of the memory of one run
_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """memory_bytes and workspace_bytes per run; pids counts processes and threads; cpus in processors.

    together_bytes: what all runs together may take of memory; None where nothing above us sets a bound.
    warm: jails kept ready. fetch_ahead: whether they have the pages in memory that programs touch.
    """

    memory_bytes: int
    together_bytes: int | None
    pids: int
    cpus: float
    workspace_bytes: int
    warm: int
    fetch_ahead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """What limits did to a run, and what it took. None where this host does not say.

    memory_limit_bytes: the limit whose breach ended the run, of the run or of all together.
    held_bytes: the most that the watchdog saw the run hold; it looks now and then.
    """

    memory_limit_bytes: int | None = None
    out_of_pids: bool = False
    peak_memory_bytes: int | None = None
    cpu_time_ms: int | None = None
    held_bytes: int = 0


def fit(config: Config, memory_left: int | None) -> Limits:
    """The configured limits, with memory lowered to what is left (None: no bound), and the workspace to half of it.

    A full workspace must be ENOSPC and not a kill; a ready jail must not be what a run lacks. Raises ConfigError where
    no run would fit.
    """
    together = None if memory_left is None else memory_left - _RESERVE
    warm, fetch_ahead, taken = _fit_warm(config, together)
    memory = config.memory_bytes if together is None else min(config.memory_bytes, together - taken)
    if memory < _LEAST_MEMORY:
        raise ConfigError(
            f"only {max(0, memory) // _MIB} MiB of memory are left to runs by the cgroup that the server is in;"
            f" give it (the container, the unit) more, at least {_LEAST_MEMORY // _MIB} MiB for one run"
        )
    return Limits(
        memory_bytes=memory,
        together_bytes=together,
        pids=config.pids,
        cpus=config.cpus,
        workspace_bytes=min(config.workspace_bytes, memory // 2),
        warm=warm,
        fetch_ahead=fetch_ahead,
    )


def _fit_warm(config: Config, together: int | None) -> tuple[int, bool, int]:
    """How many jails to keep ready, whether with their pages, and what they take of `together`."""
    fetch_ahead = bool(config.warm) and config.memory_bytes >= _SHARE * _READY_BYTES
    if together is None:
        return config.warm, fetch_ahead, 0
    share = max(0, together) // _SHARE
    if fetch_ahead and config.warm * _READY_BYTES <= share:
        return config.warm, True, config.warm * _READY_BYTES
    warm = min(config.warm, share // _READY_BARE_BYTES)
    return warm, False, warm * _READY_BARE_BYTES
