"""[leaf] The values that cross module borders: one request, one result. No I/O, no imports of ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """One validated call.

    code: Python source, not blank. stdin: text given to the program before EOF.
    timeout_s: wall clock in seconds, already clamped to the configured maximum.
    """

    code: str
    timeout_s: int
    stdin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run cost. None where this host cannot say. Goes to `_meta`, never to the six fields.

    ended_by: the limit that ended the run or that it ran into: time, memory, pids; empty where none did.
    """

    jail: str
    ended_by: str = ""
    peak_memory_bytes: int | None = None
    cpu_time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The six fields of the contract, and the usage beside them.

    exit_code: 0..255 from the program, 128+n when signal n ended it, -1 with timed_out.
    duration_ms: from delivery of the code to the known end. truncated: output past the shared cap was dropped.
    """

    stdout: str
    stderr: str
    exit_code: int
    duration_ms: int
    truncated: bool
    timed_out: bool
    usage: Usage

    def structured(self) -> dict[str, str | int | bool]:
        """Exactly the six fields, in the contract's order."""
        return {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "exit_code": self.exit_code,
            "duration_ms": self.duration_ms,
            "truncated": self.truncated,
            "timed_out": self.timed_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFacts:
    """What the sandbox really is on this host, found by looking from inside.

    libraries: (distribution, version) importable in it. walls: which mechanisms hold it, in a few words.
    limits: of memory and processors, and what holds them, likewise. workspace_bytes: its size.
    """

    python_version: str
    libraries: tuple[tuple[str, str], ...]
    walls: str
    limits: str
    workspace_bytes: int
