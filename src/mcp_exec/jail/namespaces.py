"""[launcher, init] The namespaces of a run and their id maps.

With CAP_SYS_ADMIN the outer user namespace is the host's; without, clone makes one to gain the capability.
The inner one comes last, so that every mount belongs to a namespace in which the payload has no capability.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from mcp_exec.jail import syscalls
from mcp_exec.jail.spec import JailSpec

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def clone_flags(spec: JailSpec) -> int:
    """Flags for the clone that makes init. The cgroup namespace follows after init has joined its cgroup."""
    flags = (
        syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWPID
        | syscalls.CLONE_NEWNET
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWUTS
    )
    return flags if spec.privileged else flags | syscalls.CLONE_NEWUSER


def write_id_map(inside: int, outside_uid: int, outside_gid: int) -> None:
    """One id in, one id out, setgroups denied: user_namespaces(7). The files are writable only while dumpable."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside_uid} 1"),
        ("gid_map", f"{inside} {outside_gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def enter_inner_user_namespace(spec: JailSpec) -> None:
    """Leave the namespace that owns the mounts, for good."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    write_id_map(spec.inner_id, uid, gid)


def leave_host_ids(uid: int) -> None:
    """As root: no supplementary groups, all ids those of the slot, so that no kuid 0 is in the jail."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def raise_loopback() -> None:
    """Set lo up, so that programs can talk to themselves: netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
