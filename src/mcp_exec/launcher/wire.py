"""[server, launcher] Messages <-> bytes of the socket between server and launcher. No I/O here, everything bounded.

One SOCK_SEQPACKET datagram is one message. The server begins with PREPARE (and perhaps a memfd of the extension
`unshare`); the launcher imports and greets with HELLO. Then come the spec's memfd and one RUN per jail, each answered
with STARTED (and a pidfd of init) or REFUSED, in order. Nothing goes through argv, which every payload can read.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

MAX_MESSAGE_BYTES = 65536
MAX_DESCRIPTORS = 6
_RUN = struct.Struct("=4sI?")
_ANSWER = struct.Struct("=4sii")


class WireError(ValueError):
    """A message that is not of this protocol. The connection is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """modules: what to import, dotted names. scratch: a folder for what libraries write meanwhile.

    threads: how many a numerical library shall use in a run.
    """

    modules: tuple[str, ...]
    scratch: str
    threads: int

    def encode(self) -> bytes:
        """UTF-8 JSON, one datagram. Raises WireError where it would not fit."""
        data = json.dumps(asdict(self)).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise WireError(f"{len(data)} bytes are too many for one message")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Prepare:
        """Raises WireError."""
        try:
            fields = json.loads(data)
            return cls(
                modules=tuple(map(str, fields["modules"])),
                scratch=str(fields["scratch"]),
                threads=int(fields["threads"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("not a preparation of the server") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What the launcher found in its interpreter. Paths are strings of that interpreter, unresolved."""

    version: str
    implementation: str
    executable: str
    prefixes: tuple[str, ...]
    privileged: bool
    landlock_abi: int
    can_unshare: bool

    def encode(self) -> bytes:
        """UTF-8 JSON, one datagram."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Raises WireError."""
        try:
            fields = json.loads(data)
            fields["prefixes"] = tuple(map(str, fields["prefixes"]))
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("not a greeting of the launcher") from error


def encode_run(slot: int, *, ahead: bool) -> bytes:
    """The request for a jail; its descriptors are code, stdin, stdout, stderr, status and perhaps cgroup.procs.

    ahead: of its program, so that there is time to prepare for it.
    """
    return _RUN.pack(b"RUN1", slot, ahead)


def decode_run(data: bytes) -> tuple[int, bool]:
    """The slot, and whether it is ahead. Raises WireError."""
    if len(data) != _RUN.size or not data.startswith(b"RUN1"):
        raise WireError("not a request for a jail")
    _, slot, ahead = _RUN.unpack(data)
    return slot, ahead


def encode_started(pid: int) -> bytes:
    """init's pid in the launcher's pid namespace."""
    return _ANSWER.pack(b"STRT", pid, 0)


def encode_refused(stage: int, errno: int) -> bytes:
    """No process was made."""
    return _ANSWER.pack(b"NOPE", stage, errno)


def decode_answer(data: bytes) -> tuple[bool, int, int]:
    """(started, pid or stage, errno). Raises WireError."""
    if len(data) != _ANSWER.size:
        raise WireError("not an answer of the launcher")
    kind, first, second = _ANSWER.unpack(data)
    if kind not in (b"STRT", b"NOPE"):
        raise WireError("not an answer of the launcher")
    return kind == b"STRT", first, second
