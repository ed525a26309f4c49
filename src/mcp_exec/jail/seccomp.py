"""[payload] The last wall: the filter that the server compiled. Nothing of ours needs more afterwards."""

from __future__ import annotations

from mcp_exec.jail import syscalls
from mcp_exec.jail.spec import JailSpec


def install(spec: JailSpec) -> None:
    """no_new_privs is set already (privileges.py), as seccomp(2) demands of an unprivileged process."""
    syscalls.install_filter(spec.seccomp)
