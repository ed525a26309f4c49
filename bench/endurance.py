"""Whether the server is as good after thousands of runs as it was at first, and what they leave behind."""

from __future__ import annotations

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
    with open_stdio(SERVER, environ) as session:
        assert session.pid is not None
        wrong = _run(session, program, _WARM_RUNS)[1]
        before, memory_before = _count(session.pid), _memory(session.pid)
        taken, complaints = _run(session, program, runs)
        after, memory_after = _count(session.pid), _memory(session.pid)
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


def _count(pid: int) -> dict[str, int]:
    members = tree.processes(pid)
    return {
        "processes": len(members),
        "descriptors": sum(map(tree.descriptors, members)),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "temporary files": len(os.listdir(tempfile.gettempdir())),
    }


def _memory(pid: int) -> int:
    memory = memory_of(pid)
    return memory.server_bytes + memory.below_bytes
