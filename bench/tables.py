"""A report as Markdown, which is also what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.contenders import STDIO
from bench.figures import Endurance, Report, percentile
from bench.targets import ratio

_MIB = 1 << 20


def tables_of(report: Report) -> str:
    """Everything, headings included."""
    parts = [
        *_machine(report),
        *_targets(report),
        *_latency(report),
        *_throughput(report),
        *_cpu(report),
        *_memory(report),
        *_startup(report),
        *_endurance(report.endurance),
        *_contenders(report),
        *_wrong(report),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are as wide as their longest cell: it reads well in a terminal as well."""
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in escaped
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def number(value: float) -> str:
    """Three digits that count, two below 1."""
    if value >= 10:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _machine(report: Report) -> Iterator[str]:
    yield table(["machine", ""], [[key, value] for key, value in report.machine.items()])


def _targets(report: Report) -> Iterator[str]:
    if not report.targets:
        return
    yield "### Targets"
    yield table(
        [STDIO, "wanted", "measured", ""],
        [
            [
                target.name,
                f"{'>=' if target.at_least else '<='} {target.wanted:g}",
                number(target.actual),
                "reached" if target.reached else "missed",
            ]
            for target in report.targets
        ],
    )


def _latency(report: Report) -> Iterator[str]:
    if not report.latency:
        return
    yield "### Latency"
    yield "Milliseconds from asking to the whole answer: p50 (share of bare), p90, p99."
    for program, row in report.latency.items():
        rows = []
        for name, figures in row.items():
            share = ratio(report, program, name)
            millis = [number(value) for value in (figures.p50_ms, figures.p90_ms, figures.p99_ms)]
            rows.append([name, *millis, "" if share is None else number(share), str(figures.samples)])
        yield table([program, "p50 ms", "p90 ms", "p99 ms", "p50 of bare's", "runs"], rows)
        yield from _notes(report, program)


def _notes(report: Report, what: str) -> Iterator[str]:
    notes = report.cannot.get(what, {})
    if notes:
        yield "\n".join(f"- {name} cannot: {reason}" for name, reason in notes.items())


def _throughput(report: Report) -> Iterator[str]:
    if not report.throughput:
        return
    yield "### Throughput"
    yield "Runs per second with several clients at once; for those without a server, that many processes."
    for program, row in report.throughput.items():
        clients = sorted({count for rates in row.values() for count in rates})
        rows = [[name, *(number(rates[count]) for count in clients)] for name, rates in row.items()]
        yield table([program, *(f"{count} client{'s' * (count > 1)}" for count in clients)], rows)


def _cpu(report: Report) -> Iterator[str]:
    if not report.cpu_s:
        return
    yield "### Processor time"
    yield "Milliseconds of user and system time for one run, all processes of a contender together."
    names = list(dict.fromkeys(name for row in report.cpu_s.values() for name in row))
    cells = [
        [name, *(number(row[name] * 1000) if name in row else "" for row in report.cpu_s.values())] for name in names
    ]
    yield table(["ms", *report.cpu_s], cells)


def _memory(report: Report) -> Iterator[str]:
    if report.memory:
        yield "### Memory at rest"
        yield "MiB of proportional set size: of the server, and of all processes below it (launcher, ready jails)."
        rows = [
            [name, number(memory.server_bytes / _MIB), number(memory.below_bytes / _MIB), str(memory.processes)]
            for name, memory in report.memory.items()
        ]
        yield table(["MiB", "server", "below it", "processes"], rows)
    yield from _notes(report, "memory")


def _startup(report: Report) -> Iterator[str]:
    if not report.startup_s:
        return
    yield "### Start"
    yield "Milliseconds from starting a server to its first answered call, over stdio."
    rows = [
        [name, *(number(percentile(taken, share) * 1000) for share in (0.5, 0.9)), str(len(taken))]
        for name, taken in report.startup_s.items()
    ]
    yield table(["ms", "p50", "p90", "starts"], rows)


def _endurance(endurance: Endurance | None) -> Iterator[str]:
    if endurance is None:
        return
    yield "### Endurance"
    amounts = (endurance.memory_before_bytes, endurance.memory_after_bytes)
    memory = ["root only" if amount is None else number(amount / _MIB) for amount in amounts]
    rows = [
        ["p50 of the first and of the last tenth, ms", number(endurance.first_ms), number(endurance.last_ms)],
        ["memory of the server and all below it, MiB", *memory],
        *([f"{what} left over", "", str(count)] for what, count in endurance.leftovers.items()),
    ]
    yield table([f"{endurance.runs:,} runs of print on one server", "before", "after"], rows)


def _contenders(report: Report) -> Iterator[str]:
    yield "### Contenders"
    rows = [
        [name, what, f"not here: {report.absent[name]}" if name in report.absent else "measured"]
        for name, what in report.contenders.items()
    ]
    yield table(["name", "what it is", ""], rows)


def _wrong(report: Report) -> Iterator[str]:
    if report.wrong:
        yield "### Wrong results"
        yield "\n".join(f"- {wrong}" for wrong in report.wrong)
