"""[payload] Landlock as a further layer: writes only where the workspace is, no signals out: landlock(7)."""

from __future__ import annotations

import os

from mcp_exec.jail import syscalls
from mcp_exec.jail.spec import WRITABLE, JailSpec

#: WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_*: ABI 1; REFER: ABI 2; TRUNCATE: ABI 3
_WRITES = {1: (1 << 1) | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: 1 << 14}
#: WRITE_FILE and TRUNCATE, the rights that a device file knows
_FILE_RIGHTS = (1 << 1) | (1 << 14)
#: LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL, ABI 6
_SCOPES = 0b11


def restrict(spec: JailSpec) -> None:
    """Nothing where the kernel has no Landlock: the mounts hold the same invariant."""
    if not spec.landlock_abi:
        return
    writes = sum(bits for abi, bits in _WRITES.items() if abi <= spec.landlock_abi)
    ruleset = syscalls.landlock_ruleset(writes, 0, _SCOPES if spec.landlock_abi >= 6 else 0)
    for path, _ in WRITABLE:
        _allow(ruleset, path, writes)
    for path in spec.devices:
        _allow(ruleset, path, writes & _FILE_RIGHTS)
    syscalls.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        syscalls.landlock_allow(ruleset, descriptor, access)
    finally:
        os.close(descriptor)
