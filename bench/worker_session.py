"""Contenders that are libraries: a worker of ours, in their own environment, asks them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.contender import Session
from bench.lines import LineProcess
from bench.programs import Outcome, Program

WORKERS = Path(__file__).parent / "workers"


class WorkerSession(Session):
    """One worker, which runs one program at a time; several clients get one each."""

    def __init__(self, process: LineProcess, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process, self._command, self._environ = process, command, environ
        self.pid = process.pid

    def run(self, program: Program) -> Outcome:
        self._process.send({"code": program.code, "stdin": program.stdin})
        return Outcome(**self._process.receive())

    def client(self) -> contextlib.AbstractContextManager[Session]:
        return open_worker(self._command, self._environ)


@contextlib.contextmanager
def open_worker(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Session]:
    """Start a worker. Raises OSError."""
    with LineProcess(command, environ) as process:
        yield WorkerSession(process, command, environ)
