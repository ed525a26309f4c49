"""The figures as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench.figures import Report

_BAR = 0.8  # of the room of a program


def draw(report: Report, path: Path) -> None:
    """Latency of all programs and throughput of one, as a PNG."""
    names = [name for name in report.contenders if any(name in row for row in report.latency.values())]
    colours = {name: f"C{number}" for number, name in enumerate(names)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 3 + 0.09 * len(names) * len(report.latency)))
    _draw_latency(left, report, colours)
    _draw_throughput(right, report, colours)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _draw_latency(axes: Axes, report: Report, colours: dict[str, str]) -> None:
    height = _BAR / max(1, len(colours))
    for place, (name, colour) in enumerate(colours.items()):
        rows = [(row, found[name].p50_ms) for row, found in enumerate(report.latency.values()) if name in found]
        where = [row - _BAR / 2 + (place + 0.5) * height for row, _ in rows]
        axes.barh(where, [value for _, value in rows], height, color=colour, label=name)
    axes.set_yticks(range(len(report.latency)), list(report.latency))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=0.1)
    axes.set_xlabel("latency, p50 in ms (logarithmic; less is better)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small")


def _draw_throughput(axes: Axes, report: Report, colours: dict[str, str]) -> None:
    if not report.throughput:
        axes.set_axis_off()
        return
    program = "pandas" if "pandas" in report.throughput else next(iter(report.throughput))
    for name, rates in report.throughput[program].items():
        axes.plot(list(rates), list(rates.values()), "o-", color=colours.get(name), label=name)
    axes.set_xlabel("clients at once")
    axes.set_ylabel(f"runs of {program} per second (more is better)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
