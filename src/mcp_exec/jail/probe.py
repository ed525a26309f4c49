"""[payload] The program that `doctor` runs in a jail: tries each wall from inside and prints what it saw as JSON.

Sent as code, like a caller's; so it stands alone. `None` means the attempt succeeded, a number is the errno it got.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
import ctypes
import json
import os
import platform
import socket
import sys
from importlib import metadata

_ABSENT = ("/etc/shadow", "/sys/kernel", "/var/lib", "/run/systemd", "/boot")
_KEYCTL = 219 if platform.machine() == "aarch64" else 250
_CLONE_NEWUSER = 0x10000000


def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return error.errno
    return None


def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), "syscall")


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        probe.connect(address)


def write(folder):
    path = os.path.join(folder, ".mcp-exec-probe")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.unlink(path)


def status():
    try:
        with open("/proc/self/status") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def interfaces():
    with open("/proc/net/dev") as file:
        return [line.partition(":")[0].strip() for line in file if ":" in line]


def libraries():
    found = {}
    for distribution in metadata.distributions():
        name = distribution.name
        if name and name.lower() not in found:
            found[name.lower()] = (name, distribution.version or "")
    return sorted(found.values())


def leftovers():
    """What the fresh folders hold, but for the interpreter where it is shown below one of them."""
    found = [os.path.join(folder, name) for folder in ("/workspace", "/tmp", "/dev/shm") for name in os.listdir(folder)]
    shown = ("/workspace/main.py", sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix))
    return [path for path in found if not any(f"{place}/".startswith(f"{path}/") for place in shown)]


space = os.statvfs("/workspace")
seen = status()
print(
    json.dumps(
        {
            "version": platform.python_version(),
            "libraries": libraries(),
            "uid": os.getuid(),
            "capabilities": [seen.get(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
            "no_new_privs": seen.get("NoNewPrivs"),
            "seccomp": seen.get("Seccomp"),
            "proc": bool(seen),
            "parent": os.getppid(),
            "processes": sum(name.isdigit() for name in os.listdir("/proc")),
            "interfaces": interfaces() if seen else ["lo"],
            "connect": attempt(connect, socket.AF_INET, ("192.0.2.1", 9)),
            "raw_socket": attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW),
            "write": {folder: attempt(write, folder) for folder in ("/", "/usr/lib", "/etc", sys.prefix)},
            "scratch": {folder: attempt(write, folder) for folder in ("/workspace", "/tmp", "/dev/shm")},
            "present": [path for path in _ABSENT if os.path.exists(path)],
            "leftovers": leftovers(),
            "keyctl": attempt(call, _KEYCTL, 0, 0, 0, 0, 0),
            "unshare": attempt(call, 97 if platform.machine() == "aarch64" else 272, _CLONE_NEWUSER),
            "workspace_bytes": space.f_blocks * space.f_frsize,
        }
    )
)
