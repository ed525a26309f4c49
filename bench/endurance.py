"""Whether the server is as good after thousands of runs as it was at first, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench import tree
from bench.contender import Session
from bench.contenders import SERVER
from bench.figures import Endurance
from bench.mcp import open_stdio
from bench.measure import memory_of
from bench.programs import Program

_WARM_RUNS = 20
_SETTLE_S = 2.0


def endure(environ: Mapping[str, str], program: Program, runs: int) -> tuple[Endurance, list[str]]:
    """So many runs on a server of their own, one after the other; also what was wrong with their answers."""
    print(f"endurance: {runs} runs", file=sys.stderr, flush=True)
    # a temporary folder of its own, since others make files in the machine's meanwhile
    with tempfile.TemporaryDirectory() as folder, open_stdio(SERVER, {**environ, "TMPDIR": folder}) as session:
        assert session.pid is not None
        wrong = _run(session, program, _WARM_RUNS)[1]
        before, memory_before = _count(session.pid, folder), _memory(session.pid)
        taken, complaints = _run(session, program, runs)
        after, memory_after = _count(session.pid, folder), _memory(session.pid)
    tenth = max(1, runs // 10)
    figures = Endurance(
        runs=runs,
        first_ms=statistics.median(taken[:tenth]) * 1000,
        last_ms=statistics.median(taken[-tenth:]) * 1000,
        memory_before_bytes=memory_before,
        memory_after_bytes=memory_after,
        leftovers={name: after[name] - before[name] for name in before},
    )
    return figures, wrong + complaints


def _run(session: Session, program: Program, runs: int) -> tuple[list[float], list[str]]:
    taken, complaints = [], []
    for number in range(runs):
        started = time.perf_counter()
        outcome = session.run(program)
        taken.append(time.perf_counter() - started)
        if complaint := program.complaint(outcome):
            complaints.append(f"endurance, run {number}: {complaint}")
    time.sleep(_SETTLE_S)
    return taken, complaints


def _count(pid: int, folder: str) -> dict[str, int]:
    members = tree.processes(pid)
    counts = {
        "processes": len(members),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "temporary files": len(os.listdir(folder)),
    }
    with contextlib.suppress(PermissionError):  # the server shows them to root only
        counts["descriptors"] = sum(map(tree.descriptors, members))
    return counts


def _memory(pid: int) -> int | None:
    try:
        memory = memory_of(pid)
    except PermissionError:
        return None
    return memory.server_bytes + memory.below_bytes
