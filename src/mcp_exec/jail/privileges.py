"""[init, payload] No capability in any set, none to be gained: capabilities(7), prctl(2)."""

from __future__ import annotations

from mcp_exec.jail import syscalls

#: SECBIT_{NOROOT,NO_SETUID_FIXUP,NO_CAP_AMBIENT_RAISE} and their locks, KEEP_CAPS locked off
_SECUREBITS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 | 0x80
_CAPABILITIES = 64


def drop_all() -> None:
    """Bounding and ambient sets first (they need CAP_SETPCAP), then the rest, then no_new_privs."""
    for capability in range(_CAPABILITIES):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL: past the kernel's last capability
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.prctl(syscalls.PR_SET_SECUREBITS, _SECUREBITS)
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
