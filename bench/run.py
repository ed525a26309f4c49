"""One run of the benchmark, from opening the contenders to the report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine, tree
from bench.contender import Contender
from bench.contenders import STDIO, all_contenders, environ_of
from bench.endurance import endure
from bench.field import BROKEN, describe, open_field
from bench.figures import Report
from bench.mcp import open_stdio
from bench.measure import measure_cpu, measure_latency, measure_memory, measure_startup, measure_throughput
from bench.plan import Plan
from bench.programs import PROGRAMS, Program
from bench.targets import MINIMUM, targets_of


def run(
    folder: Path,
    plan: Plan,
    *,
    only: Sequence[str] = (),
    programs: Sequence[str] = (),
    rivals: Sequence[str] = (),
) -> Report:
    """folder: for tools and caches. only, programs: the names of those that take part; empty for all.

    A name matches what begins with it. Raises ValueError where a name matches nothing.
    """
    everybody = all_contenders(folder, rivals)
    contenders = [everybody[place] for place in _choose(only, [contender.name for contender in everybody])]
    chosen = [PROGRAMS[place] for place in _choose(programs, [program.name for program in PROGRAMS])]
    _prepare(folder, chosen)
    tree.adopt_orphans()
    report = Report(machine=machine.describe(), contenders={one.name: one.what for one in contenders})
    with open_field(contenders, report, slow=plan.slow) as field:
        measure_latency(field, chosen, plan)
        measure_throughput(field, chosen, plan)
        measure_cpu(field, chosen, plan)
        measure_memory(field)
    _measure_servers(folder, plan, contenders, report)
    report.targets = targets_of(report)
    return report


def _measure_servers(folder: Path, plan: Plan, contenders: Sequence[Contender], report: Report) -> None:
    """What needs servers of its own, when the others are gone."""
    environ, first = environ_of(folder), PROGRAMS[0]
    minimum = Contender(
        name=MINIMUM,
        what="a server of the SDK's with one tool that answers at once",
        open=lambda: open_stdio([sys.executable, "-m", "bench.sdk_minimum"], environ),
    )
    servers = [one for one in contenders if one.name not in report.absent and one.name.startswith((STDIO, "rival"))]
    try:
        if servers:
            report.startup_s = measure_startup({one.name: one for one in (*servers, minimum)}, first, plan)
        if plan.endurance and any(one.name == STDIO for one in servers):
            report.endurance, wrong = endure(environ, first, plan.endurance)
            report.wrong += wrong
    except BROKEN as error:
        report.wrong.append(f"a server broke down: {describe(error)}")


def _choose(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """The places of the names that begin with one of the wanted words."""
    for word in wanted:
        if not any(name.startswith(word) for name in names):
            raise ValueError(f"{word!r} is none of: {', '.join(names)}")
    return [place for place, name in enumerate(names) if not wanted or name.startswith(tuple(wanted))]


def _prepare(folder: Path, programs: Sequence[Program]) -> None:
    (folder / "home").mkdir(parents=True, exist_ok=True)
    for program in programs:
        path = folder / "programs" / program.name / "main.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program.code)
