"""What is kept of a run of the benchmark, and the arithmetic on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

#: figures by program and contender
Table = dict[str, dict[str, float]]


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest sample that `share` of all, in (0, 1], do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Of one program with one contender, in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        p50, p90, p99 = (percentile(seconds, share) * 1000 for share in (0.5, 0.9, 0.99))
        return cls(p50_ms=p50, p90_ms=p90, p99_ms=p99, samples=len(seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """At rest between runs, as proportional set size, so that shared pages count once; in bytes."""

    server_bytes: int
    below_bytes: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance:
    """Before and after many runs of one server; the p50 are of the first and of the last tenth."""

    runs: int
    first_ms: float
    last_ms: float
    #: None where only root may read it
    memory_before_bytes: int | None
    memory_after_bytes: int | None
    #: what there was more of after the runs than before: processes, mounts, files in the temporary folder, descriptors
    leftovers: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure that we want, and the one that there is."""

    name: str
    wanted: float
    actual: float
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.actual >= self.wanted if self.at_least else self.actual <= self.wanted


@dataclass(slots=True, kw_only=True)
class Report:
    """All figures of one run. A contender that is missing in a table is in `absent` or `cannot`, with the reason."""

    machine: dict[str, str]
    contenders: dict[str, str]
    absent: dict[str, str] = field(default_factory=dict)
    cannot: dict[str, dict[str, str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    latency: dict[str, dict[str, Latency]] = field(default_factory=dict)
    #: runs per second, by program, contender and number of clients
    throughput: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    #: processor seconds of one run
    cpu_s: Table = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    #: from the start to the first answered call, each start
    startup_s: dict[str, list[float]] = field(default_factory=dict)
    endurance: Endurance | None = None
    targets: list[Target] = field(default_factory=list)
