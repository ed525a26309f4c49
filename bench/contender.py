"""What is compared: a contender is opened once and then asked again and again; a session is one that is open."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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

    def rate(self, program: Program, clients: int, seconds: float) -> float:
        """Runs per second of so many clients, each of which asks anew as soon as it has its answer."""
        done = [0] * clients
        start = threading.Barrier(clients + 1)

        def work(number: int, client: Session) -> None:
            start.wait()
            while time.perf_counter() < until:
                client.run(program)
                done[number] += 1

        with ExitStack() as stack:
            opened = [stack.enter_context(self.client()) for _ in range(clients)]
            threads = [threading.Thread(target=work, args=item) for item in enumerate(opened)]
            for thread in threads:
                thread.start()
            started = time.perf_counter()
            until = started + seconds
            start.wait()
            for thread in threads:
                thread.join()
            return sum(done) / (time.perf_counter() - started)


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
