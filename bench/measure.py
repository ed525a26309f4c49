"""The measurements. Contenders take turns in everything, so that noise of the machine hits all alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench import tree
from bench.contender import Contender, Session
from bench.field import Field
from bench.figures import Latency, Memory
from bench.plan import Plan
from bench.programs import Program

#: of which throughput and processor time are measured
_BUSY = ("print", "pandas")
_SETTLE_S = 1.0


def measure_latency(field: Field, programs: Sequence[Program], plan: Plan) -> None:
    """From asking to the whole answer; each answer is checked again, outside of what is timed."""
    for program in programs:
        _say(f"latency of {program.name}")
        field.check(program)
        samples: dict[str, list[float]] = defaultdict(list)
        for number in range(plan.rounds):
            for name, session in field.able(program, number):
                with field.surviving(name):
                    samples[name].append(_time(field, name, session, program))
                time.sleep(plan.pause_s)
        names = [name for name in field.sessions if samples[name]]
        field.report.latency[program.name] = {name: Latency.of(samples[name]) for name in names}


def _time(field: Field, name: str, session: Session, program: Program) -> float:
    started = time.perf_counter()
    outcome = session.run(program)
    taken = time.perf_counter() - started
    if complaint := program.complaint(outcome):
        field.report.wrong.append(f"{name}, {program.name}, while timed: {complaint}")
    return taken


def measure_throughput(field: Field, programs: Sequence[Program], plan: Plan) -> None:
    """Runs per second with several clients at once."""
    for program in _busy(programs):
        _say(f"throughput of {program.name}")
        rates: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name, _ in field.able(program)}
        for _ in range(plan.slices):
            for clients in plan.clients:
                for name, session in field.able(program):
                    with field.surviving(name):
                        rates[name][clients].append(session.rate(program, clients, plan.slice_s))
                    time.sleep(plan.pause_s)
        field.report.throughput[program.name] = {
            name: {clients: statistics.mean(found) for clients, found in row.items()} for name, row in rates.items()
        }


def measure_cpu(field: Field, programs: Sequence[Program], plan: Plan) -> None:
    """Processor time of one run, all processes of a contender together, what makes jails ready again included."""
    for program in _busy(programs):
        _say(f"processor time of {program.name}")
        row = field.report.cpu_s.setdefault(program.name, {})
        for name, session in field.able(program):
            with field.surviving(name):
                row[name] = _cpu_of(session, program, plan)


def _cpu_of(session: Session, program: Program, plan: Plan) -> float:
    before = session.cpu_s()
    for _ in range(plan.cpu_runs):
        session.run_checked(program)
        time.sleep(plan.pause_s)
    time.sleep(_SETTLE_S)
    return (session.cpu_s() - before) / plan.cpu_runs


def measure_memory(field: Field) -> None:
    """Of those that have a process which stays."""
    time.sleep(_SETTLE_S)
    for name, session in field.sessions.items():
        if session.pid is not None:
            try:
                field.report.memory[name] = memory_of(session.pid)
            except PermissionError as error:
                field.report.cannot.setdefault("memory", {})[name] = str(error)


def memory_of(pid: int) -> Memory:
    """Of a server and of all below it. Raises PermissionError: a server of ours shows its pages to root only."""
    members = tree.processes(pid)
    below = sum(tree.pss_bytes(member) for member in members[1:])
    return Memory(server_bytes=tree.pss_bytes(pid), below_bytes=below, processes=len(members))


def measure_startup(servers: Mapping[str, Contender], program: Program, plan: Plan) -> dict[str, list[float]]:
    """From starting a server to its first answered call, which includes the handshake; in seconds. Raises as `run`."""
    _say("start")
    taken: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(plan.starts):
        for name, server in servers.items():
            started = time.perf_counter()
            with server.open() as session:
                session.run_checked(program)
                taken[name].append(time.perf_counter() - started)
            time.sleep(plan.pause_s)
    return taken


def _busy(programs: Sequence[Program]) -> list[Program]:
    return [program for program in programs if program.name in _BUSY]


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
