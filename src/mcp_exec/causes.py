"""[server] The words for a jail that could not be built: stage, errno, the likely cause on this host, and the fix."""

from __future__ import annotations

import os
from pathlib import Path

from mcp_exec.errors import CannotJail
from mcp_exec.jail.stage import Stage

_NAMESPACES = frozenset({Stage.FORK, Stage.OUTER_USER_NAMESPACE, Stage.INNER_USER_NAMESPACE, Stage.CGROUP_NAMESPACE})
_MOUNTS = frozenset({Stage.ROOT, Stage.WORKSPACE, Stage.BINDS, Stage.DEVICES, Stage.PROC, Stage.SEAL_ROOT})
#: (file, value, words): what forbids user namespaces, most certain first
_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0",
     "user namespaces are forbidden; sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0",
     "user namespaces are for root only; sysctl -w kernel.unprivileged_userns_clone=1, or run the server as root"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
     "AppArmor restricts user namespaces, as on Ubuntu 24.04; give the interpreter a profile that allows `userns`,"
     " or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
)  # fmt: skip


def cannot_jail(stage: int, errno: int) -> CannotJail:
    """stage, errno: numbers that a child reported."""
    known = Stage(stage) if stage in Stage._value2member_map_ else None
    name = known.name.lower().replace("_", " ") if known else str(stage)
    reason = os.strerror(errno) if errno else "an internal error"
    cause = _cause(known) if known else ""
    return CannotJail(f"the jail could not be built at stage {name!r}: {reason}" + (f"; {cause}" if cause else ""))


def _cause(stage: Stage) -> str:
    if stage in _NAMESPACES or stage in _MOUNTS:
        found = next((words for path, value, words in _SWITCHES if _read(path) == value), "")
        return found or _filtered(stage)
    if stage is Stage.SECCOMP:
        return "the kernel lacks CONFIG_SECCOMP_FILTER"
    return ""


def _filtered(stage: Stage) -> str:
    what = "user namespaces" if stage in _NAMESPACES else "mounts"
    if "Seccomp:\t2" in _read("/proc/self/status"):
        return (
            f"a seccomp filter around the server forbids {what}, as Docker's default profile does;"
            " allow unshare, clone, mount, umount2, pivot_root and mount_setattr in it"
        )
    return f"something on this host forbids {what}: a security module, a chroot, or the kernel's configuration"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
