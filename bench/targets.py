"""What we want to reach, against bare Python unless said otherwise. Nothing fails if it is missed: machines differ."""

from __future__ import annotations

from collections.abc import Iterator

from bench.contenders import BARE, STDIO, UNBUFFERED
from bench.figures import Report, Target, percentile
from bench.programs import LINES

MINIMUM = "SDK minimum"
_LATENCY = {"print": 0.25, "numpy": 0.05, "pandas": 0.03, "plot": 0.15}
_LINES, _CPU, _THROUGHPUT, _STARTUP = 1.2, 0.15, 8.0, 2.0
_CLIENTS = 4


def targets_of(report: Report) -> list[Target]:
    """Those for which this run has the figures."""
    return [*_of_latency(report), *_of_use(report), *_of_startup(report)]


def ratio(report: Report, program: str, name: str, to: str = BARE) -> float | None:
    """The p50 of a contender in those of another; None where one of them has none."""
    row = report.latency.get(program, {})
    return row[name].p50_ms / row[to].p50_ms if name in row and to in row else None


def _of_latency(report: Report) -> Iterator[Target]:
    for program, wanted in _LATENCY.items():
        if (actual := ratio(report, program, STDIO)) is not None:
            yield Target(name=f"{program}, of bare", wanted=wanted, actual=actual)
    if (actual := ratio(report, LINES, STDIO, UNBUFFERED)) is not None:
        yield Target(name=f"{LINES}, of `python3 -u`", wanted=_LINES, actual=actual)


def _of_use(report: Report) -> Iterator[Target]:
    cpu = report.cpu_s.get("pandas", {})
    if STDIO in cpu and BARE in cpu:
        yield Target(name="processor time of pandas, of bare", wanted=_CPU, actual=cpu[STDIO] / cpu[BARE])
    rates = report.throughput.get("pandas", {})
    if _CLIENTS in rates.get(STDIO, {}) and _CLIENTS in rates.get(BARE, {}):
        actual = rates[STDIO][_CLIENTS] / rates[BARE][_CLIENTS]
        name = f"throughput of pandas with {_CLIENTS} clients, of bare"
        yield Target(name=name, wanted=_THROUGHPUT, actual=actual, at_least=True)


def _of_startup(report: Report) -> Iterator[Target]:
    ours, least = report.startup_s.get(STDIO), report.startup_s.get(MINIMUM)
    if ours and least:
        actual = percentile(ours, 0.5) / percentile(least, 0.5)
        yield Target(name="start to the first answer, of the SDK's minimum", wanted=_STARTUP, actual=actual)
