"""The contenders that are open, and what each was found to be able to."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from bench.contender import Contender, Session, Unavailable
from bench.contenders import BARE
from bench.figures import Report
from bench.programs import Program

#: what a contender that breaks down raises, in a run or in its answer
BROKEN = (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError)


class Field:
    """The sessions, in an order that stays; notes go into the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.sessions: dict[str, Session] = {}
        self._contenders: dict[str, Contender] = {}

    def add(self, contender: Contender, session: Session) -> None:
        self._contenders[contender.name] = contender
        self.sessions[contender.name] = session

    def able(self, program: Program, round_number: int = 0) -> list[tuple[str, Session]]:
        """Who is asked a program in a round: those that can, begun with another one each time."""
        cannot = self.report.cannot.get(program.name, {})
        names = [
            name
            for name, contender in self._contenders.items()
            if name not in cannot
            and (contender.only is None or program.name in contender.only)
            and round_number % contender.every == 0
        ]
        first = round_number % len(names) if names else 0
        return [(name, self.sessions[name]) for name in names[first:] + names[:first]]

    @contextlib.contextmanager
    def surviving(self, name: str) -> Iterator[None]:
        """Around a measurement: a contender that breaks down in it takes no further part; the report says so."""
        try:
            yield
        except BROKEN as error:
            del self._contenders[name], self.sessions[name]
            self.report.wrong.append(f"{name} broke down in the middle: {describe(error)}")

    def check(self, program: Program) -> None:
        """Let each run a program once, unmeasured. A wrong answer of ours or of bare Python is an error."""
        notes = self.report.cannot.setdefault(program.name, {})
        notes |= {
            name: contender.cannot[program.name]
            for name, contender in self._contenders.items()
            if program.name in contender.cannot
        }
        for name, session in self.able(program):
            complaint = _complaint(session, program)
            if complaint is not None:
                notes[name] = complaint
                if self._contenders[name].ours or name == BARE:
                    self.report.wrong.append(f"{name}, {program.name}: {complaint}")


def _complaint(session: Session, program: Program) -> str | None:
    try:
        return program.complaint(session.run(program))
    except BROKEN as error:
        return describe(error)


def describe(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@contextlib.contextmanager
def open_field(contenders: Sequence[Contender], report: Report, *, slow: bool) -> Iterator[Field]:
    """Install and open all that can be had here; the report says why the others cannot."""
    with contextlib.ExitStack() as stack:
        field = Field(report)
        for contender in contenders:
            try:
                if contender.every > 1 and not slow:
                    raise Unavailable("too slow for a quick run")
                print(f"opening {contender.name}", file=sys.stderr)
                field.add(contender, stack.enter_context(contender.open()))
            except (Unavailable, *BROKEN) as error:
                report.absent[contender.name] = str(error) if isinstance(error, Unavailable) else describe(error)
                if contender.ours:
                    report.wrong.append(f"{contender.name} does not start: {describe(error)}")
        yield field
