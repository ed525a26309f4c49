"""[server, launcher, init, payload] JailSpec: everything a jail is made of, resolved by the server beforehand.

Plan outside, apply inside: init and payload make system calls on these values and decide nothing.
It travels once, as JSON in a memfd, from the server to the launcher; never pickled.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

#: (place, mode) of what the one tmpfs of a run carries
#: start, length in bytes, whether to write to it: memory that a payload fetches in advance
Page = tuple[int, int, bool]
WRITABLE = (("/workspace", 0o755), ("/tmp", 0o1777), ("/dev/shm", 0o1777))


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSpec:
    """binds: absolute host paths shown read-only at the same place. links: (path, target) symlinks of the root.

    files: (path, text) synthetic files. masks: paths of /proc hidden behind /dev/null.
    rlimits: (RLIMIT_* number, soft, hard). sizes in bytes. seccomp: arrays of struct sock_filter, all in force.
    affinities: the processors of each slot; empty where a cgroup bounds the cpu.
    privileged: the launcher holds CAP_SYS_ADMIN, so no outer user namespace is needed.
    fetch_ahead: a jail that is made ahead of its program fetches the pages that programs touch.
    interpreter: what the payload execs to run the program; empty: it runs it itself.
    host_uid_base: with privileged, slot n runs as kuid host_uid_base + n.
    """

    privileged: bool
    host_uid_base: int
    inner_id: int
    hostname: str
    scaffold: str
    binds: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    masks: tuple[str, ...]
    workspace_bytes: int
    workspace_inodes: int
    rlimits: tuple[tuple[int, int, int], ...]
    affinities: tuple[tuple[int, ...], ...]
    fetch_ahead: bool
    interpreter: str
    environment: tuple[tuple[str, str], ...]
    landlock_abi: int
    seccomp: tuple[bytes, ...]

    def encode(self) -> bytes:
        """UTF-8 JSON, the seccomp programs in base64."""
        fields = asdict(self)
        fields["seccomp"] = [base64.b64encode(program).decode() for program in self.seccomp]
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> JailSpec:
        """The inverse of `encode`. Raises TypeError or ValueError where the fields are not those of this version."""
        fields: dict[str, Any] = json.loads(data)
        fields["seccomp"] = [base64.b64decode(text, validate=True) for text in fields["seccomp"]]
        return cls(**{name: _frozen(value) for name, value in fields.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
