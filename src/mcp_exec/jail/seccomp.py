"""[payload] The last wall: the filters that the server compiled; the strictest answer counts.

Nothing of ours needs more afterwards.
"""

from __future__ import annotations

from mcp_exec.jail import syscalls
from mcp_exec.jail.spec import JailSpec


def install(spec: JailSpec) -> None:
    """no_new_privs is set already (privileges.py), as seccomp(2) demands of an unprivileged process."""
    for program in spec.seccomp:
        syscalls.install_filter(program)
