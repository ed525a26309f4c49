"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """rounds: of latency, for each program. pause_s: after each run, in which a server may make jails ready again.

    clients: at once, for throughput. slice_s, slices: each figure of throughput is the mean of so many stretches.
    cpu_runs: over which processor time is counted. starts: of each server.
    endurance: runs of one server one after the other; 0: none.
    slow: whether those take part that are asked in some rounds only.
    """

    rounds: int
    pause_s: float
    clients: tuple[int, ...]
    slice_s: float
    slices: int
    cpu_runs: int
    starts: int
    endurance: int
    slow: bool


FULL = Plan(
    rounds=30,
    pause_s=0.05,
    clients=(1, 2, 4, 8),
    slice_s=2,
    slices=2,
    cpu_runs=20,
    starts=10,
    endurance=10_000,
    slow=True,
)
QUICK = Plan(
    rounds=4,
    pause_s=0.05,
    clients=(1, 4),
    slice_s=0.5,
    slices=1,
    cpu_runs=4,
    starts=3,
    endurance=0,
    slow=False,
)
