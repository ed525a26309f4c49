"""What is compared: a contender is opened once and then asked again and again; a session is one that is open."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

from bench import tree
from bench.programs import Outcome, Program


class Unavailable(Exception):
    """A contender, or a figure of it, cannot be had on this host; the text is the reason."""


class Session(ABC):
    """One contender at work."""

    #: The process that stays from run to run, with everything below it; None: there is none
    pid: int | None = None

    @abstractmethod
    def run(self, program: Program) -> Outcome:
        """One run, to its end. Raises OSError or ValueError where the contender broke down."""

    def client(self) -> AbstractContextManager[Session]:
        """What one of several clients uses at the same time as the others."""
        return nullcontext(self)

    def cpu_s(self) -> float:
        """Processor time so far, user and system, of all that worked for this contender and has been reaped."""
        return tree.reaped_cpu_s() if self.pid is None else tree.cpu_s(self.pid)

    def run_checked(self, program: Program) -> None:
        """One run. Raises ValueError if its outcome is wrong, OSError where the contender broke down."""
        if complaint := program.complaint(self.run(program)):
            raise ValueError(complaint)

    def rate(self, program: Program, clients: int, seconds: float) -> float:
        """Runs per second of so many clients, each of which asks anew as soon as it has its answer."""
        with ExitStack() as stack:
            opened = [stack.enter_context(self.client()) for _ in range(clients)]
            pool = stack.enter_context(ThreadPoolExecutor(clients))
            started = time.perf_counter()
            done = sum(pool.map(lambda client: _run_until(started + seconds, client, program), opened))
            return done / (time.perf_counter() - started)


def _run_until(end: float, client: Session, program: Program) -> int:
    """How many runs were begun before `end`, by the clock of perf_counter."""
    done = 0
    while time.perf_counter() < end:
        client.run_checked(program)
        done += 1
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """name: short, for tables and --only. what: one line about it. only: the programs it is asked; None: all.

    every: it is asked in every so-manieth round; the slow ones would take most of the time.
    cannot: programs that it cannot run, each with the reason; what else it cannot run is found out.
    """

    name: str
    what: str
    open: Callable[[], AbstractContextManager[Session]]
    only: frozenset[str] | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    every: int = 1
    ours: bool = False
