"""[launcher, init, payload] All ctypes of the jail: typed calls, each result checked before errno is read.

Every function raises OSError(errno, name) on failure and names its man page.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys

_libc = ctypes.CDLL(None, use_errno=True)
#: Keeps the interpreter lock: a clone must return in the child with the lock held.
_locked = ctypes.PyDLL(None, use_errno=True)

_AARCH64 = platform.machine() == "aarch64"
_SYS_CLONE = 220 if _AARCH64 else 56
_SYS_PIVOT_ROOT = 41 if _AARCH64 else 155
_SYS_CAPSET = 91 if _AARCH64 else 126
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 28, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PTRACE_CONT, PTRACE_SEIZE, PTRACE_LISTEN = 7, 0x4206, 0x4208
PTRACE_O_TRACEEXIT, PTRACE_O_EXITKILL = 0x40, 0x100000
PTRACE_EVENT_EXIT, PTRACE_EVENT_STOP = 6, 128
_PTRACE_GETEVENTMSG = 0x4201
_CPUCLOCK_SCHED = 2
_SECCOMP_MODE_FILTER = 2
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
_CAPABILITY_VERSION_3 = 0x20080522


def _check(result: int, name: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def _syscall(name: str, number: int, *args: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *args), name)


def clone(flags: int) -> int:
    """fork(2) into new namespaces, clone(2): 0 in the child, the child's pid in the parent.

    Only from a single-threaded process. The fork hooks of CPython run around it, as os.fork() does.
    """
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    pid: int = _locked.syscall(
        ctypes.c_long(_SYS_CLONE), ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None
    )
    error = ctypes.get_errno()
    if pid == 0:
        api.PyOS_AfterFork_Child()
        return 0
    api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, "clone")
    return pid


def populate(start: int, length: int, *, write: bool) -> None:
    """Fetch pages as if they were read or written, their contents unchanged: madvise(2), Linux 5.14."""
    advice = ctypes.c_int(_MADV_POPULATE_WRITE if write else _MADV_POPULATE_READ)
    _check(_libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice), "madvise")


def unshare(flags: int) -> None:
    """unshare(2): os.unshare from Python 3.12, the distribution `unshare` on 3.11 (docs/adr/0001)."""
    if sys.version_info >= (3, 12):
        os.unshare(flags)
        return
    import unshare as distribution

    try:
        distribution.unshare(flags)
    except RuntimeError as error:
        number = error.args[0][0] if isinstance(error.args[0], tuple) else error.args[0]
        raise OSError(number, "unshare") from None


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    arguments = [text.encode() if text is not None else None for text in (source, target, kind)]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() if data is not None else None)
    _check(result, "mount")


def seal_tree(path: str, *, devices: bool = False) -> None:
    """Read-only and nosuid (and nodev) for a mount and all below it: mount_setattr(2), Linux 5.12."""
    attributes = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (0 if devices else _MOUNT_ATTR_NODEV)
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _syscall(
        "mount_setattr",
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        request,
        ctypes.c_size_t(ctypes.sizeof(request)),
    )


def umount(path: str, flags: int) -> None:
    """umount2(2)."""
    _check(_libc.umount2(path.encode(), ctypes.c_int(flags)), "umount2")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2)."""
    _syscall("pivot_root", _SYS_PIVOT_ROOT, new.encode(), old.encode())


def prctl(option: int, *values: int) -> int:
    """prctl(2) with integer arguments, the unused ones zero."""
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return _check(_libc.prctl(ctypes.c_int(option), *words), "prctl")


def ptrace(request: int, pid: int, data: int = 0) -> None:
    """ptrace(2), of the requests whose data is a number."""
    result = _libc.ptrace(ctypes.c_long(request), ctypes.c_int(pid), None, ctypes.c_void_p(data))
    _check(result, "ptrace")


def ptrace_message(pid: int) -> int:
    """PTRACE_GETEVENTMSG of ptrace(2): at PTRACE_EVENT_EXIT the wait status to be."""
    message = ctypes.c_ulong()
    result = _libc.ptrace(ctypes.c_long(_PTRACE_GETEVENTMSG), ctypes.c_int(pid), None, ctypes.byref(message))
    _check(result, "ptrace")
    return message.value


def cpu_clock(pid: int) -> int:
    """The id of a process's cpu-time clock, as clock_getcpuclockid(3) makes it."""
    return ~pid << 3 | _CPUCLOCK_SCHED


def drop_capabilities() -> None:
    """Empty effective, permitted and inheritable sets: capset(2)."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _syscall("capset", _SYS_CAPSET, header, (ctypes.c_uint32 * 6)())


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_filter(program: bytes) -> None:
    """A seccomp filter for this process: prctl(2) PR_SET_SECCOMP; no_new_privs must be set."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _FilterProgram(len(program) // 8, ctypes.addressof(buffer))
    result = _libc.prctl(
        ctypes.c_int(PR_SET_SECCOMP), ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(header), None, None
    )
    _check(result, "seccomp")


def landlock_abi() -> int:
    """The kernel's Landlock ABI, 0 where there is none: landlock_create_ruleset(2)."""
    version = _libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(version))


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """A descriptor of a ruleset that handles these access rights; longer structs must be zero beyond the ABI."""
    words = [files, network, scopes]
    while len(words) > 1 and not words[-1]:
        words.pop()
    request = (ctypes.c_uint64 * len(words))(*words)
    return _syscall(
        "landlock_create_ruleset",
        _SYS_LANDLOCK_CREATE_RULESET,
        request,
        ctypes.c_size_t(ctypes.sizeof(request)),
        ctypes.c_uint(0),
    )


def landlock_allow(ruleset: int, directory: int, access: int) -> None:
    """Allow `access` beneath an open directory: landlock_add_rule(2), struct landlock_path_beneath_attr (packed)."""
    request = ctypes.create_string_buffer(access.to_bytes(8, sys.byteorder) + directory.to_bytes(4, sys.byteorder), 12)
    _syscall(
        "landlock_add_rule", _SYS_LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), request, ctypes.c_uint(0)
    )


def landlock_restrict(ruleset: int) -> None:
    """landlock_restrict_self(2)."""
    _syscall("landlock_restrict_self", _SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
