"""[init] The private root: an own small tmpfs with read-only binds of what the spec lists, and one tmpfs to write in.

Theory: the tmpfs is pivoted to `/` first and the host's root put aside at `/.host`, so no bind source can be
covered by the scaffold. The host's root is detached before anything of the payload exists. All of it happens in
the outer user namespace; the payload, in the inner one, can neither undo nor uncover any of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from mcp_exec.jail.spec import WRITABLE, JailSpec
from mcp_exec.jail.syscalls import (
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    pivot_root,
    seal_tree,
    umount,
)

_HOST = "/.host"
_STORE = "/.store"
#: NOSUID, NODEV, NOEXEC, NOATIME and NODIRATIME have the same bits in statvfs(3) and mount(2); RELATIME stays by itself
_KEPT = 2 | 4 | 8 | 1024 | 2048


def make_root(spec: JailSpec) -> None:
    """A small tmpfs becomes `/`; the host's root waits at /.host: pivot_root(2)."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.umask(0o022)
    mount("tmpfs", spec.scaffold, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,nr_inodes=4k,mode=755")
    os.mkdir(spec.scaffold + _HOST)
    pivot_root(spec.scaffold, spec.scaffold + _HOST)
    os.chdir("/")


def bind_system(spec: JailSpec) -> None:
    """Read-only binds at their own paths, submounts included, and the host's symlinks such as /lib.

    The workspace stands already, so that an interpreter whose host path is below /tmp is not covered by it.
    """
    for path in spec.binds:
        source = _HOST + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISDIR(os.stat(source).st_mode):
            os.makedirs(path, exist_ok=True)
        elif not os.path.exists(path):
            _touch(path)
        mount(source, path, None, MS_BIND | MS_REC)
        _seal(path)
    for path, target in spec.links:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.lexists(path):
            os.symlink(target, path)


def write_files(spec: JailSpec) -> None:
    """The synthetic /etc."""
    for path, text in spec.files:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _touch(path, text.encode())


def bind_devices(spec: JailSpec) -> None:
    """Harmless device nodes of the host; mknod is not allowed in a user namespace."""
    os.makedirs("/dev", exist_ok=True)
    for path in spec.devices:
        _touch(path)
        mount(_HOST + path, path, None, MS_BIND)
        _seal(path, devices=True)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"/dev/{name}")


def mount_proc(spec: JailSpec) -> None:
    """A fresh /proc of this pid namespace; where the kernel refuses one, an empty tmpfs. Never the host's.

    It stays writable for its owner, since the inner user namespace's id map is written through it.
    """
    os.mkdir("/proc")
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    try:
        mount("proc", "/proc", "proc", flags)
    except PermissionError:
        mount("tmpfs", "/proc", "tmpfs", flags | MS_RDONLY, "size=4k,mode=555")
        return
    for path in spec.masks:
        with contextlib.suppress(FileNotFoundError):  # which files exist depends on the kernel's configuration
            mount("/dev/null", path, None, MS_BIND)


def mount_workspace(spec: JailSpec, owner: int) -> None:
    """One tmpfs, bounded in bytes and inodes, under /workspace, /tmp and /dev/shm: tmpfs(5)."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    os.mkdir(_STORE)
    mount("tmpfs", _STORE, "tmpfs", flags, f"size={spec.workspace_bytes},nr_inodes={spec.workspace_inodes},mode=755")
    for path, mode in WRITABLE:
        inside = _STORE + "/" + os.path.basename(path)
        os.mkdir(inside)
        os.chmod(inside, mode)
        os.chown(inside, owner, owner)
        os.makedirs(path, exist_ok=True)
        mount(inside, path, None, MS_BIND)
        mount(None, path, None, MS_BIND | MS_REMOUNT | flags)
    umount(_STORE, MNT_DETACH)
    os.rmdir(_STORE)


def seal_root() -> None:
    """The host's root goes out of reach and the private root becomes read-only."""
    umount(_HOST, MNT_DETACH)
    os.rmdir(_HOST)
    mount(None, "/", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _seal(path: str, *, devices: bool = False) -> None:
    """Read-only, submounts included. Before Linux 5.12, or where a filter denies mount_setattr, mount by mount."""
    try:
        seal_tree(path, devices=devices)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        for place in _mounts_at(path):
            flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | (0 if devices else MS_NODEV)
            # A flag that is left out would be cleared, and clearing a locked one is refused: mount_namespaces(7).
            mount(None, place, None, flags | os.statvfs(place).f_flag & _KEPT)


def _mounts_at(path: str) -> list[str]:
    """The mount points at and below a path of ours, from the host's /proc, which is in view until `seal_root`."""
    with open(_HOST + "/proc/self/mountinfo", "rb") as file:
        points = [line.split(b" ")[4].decode("unicode_escape").encode("latin-1") for line in file]
    found = [os.fsdecode(point) for point in points]
    return [point for point in found if point == path or point.startswith(f"{path}/")]


def _touch(path: str, data: bytes = b"") -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
