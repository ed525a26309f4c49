"""A20-A27: what of the kernel a program can reach."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.client import Bare, StdioClient
from support.programs import ERRNO

NAMESPACES = """
flags = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
         "net": 0x40000000}
seen = {"unshare " + name: attempt(syscall, 272, flag) for name, flag in flags.items()}
for name, flag in flags.items():
    try:
        pid = libc.syscall(ctypes.c_long(56), ctypes.c_ulong(flag | 17), None, None, None, None)
        if pid == 0:
            os._exit(0)
        if pid < 0:
            raise OSError(ctypes.get_errno(), "")
        os.waitpid(pid, 0)
        seen["clone " + name] = "done"
    except OSError as error:
        seen["clone " + name] = errno.errorcode[error.errno]
seen["setns"] = attempt(syscall, 308, os.open("/proc/self/ns/user", os.O_RDONLY), 0)
seen["clone3"] = attempt(syscall, 435, (ctypes.c_uint64 * 11)(), 88)
print(json.dumps(seen))
"""


def test_a20_namespaces_are_made(sandbox: StdioClient, bare: Bare) -> None:
    seen = sandbox.probe(ERRNO + NAMESPACES)
    assert seen.pop("clone3") == "ENOSYS"
    assert seen == dict.fromkeys(seen, "EPERM")
    control = bare.probe(ERRNO + NAMESPACES.replace('"mnt"', '"user first": 0x10000000, "mnt"'))
    assert control["unshare user first"] == "done"
    assert control["unshare net"] == "done"


def test_a20_threads_work_all_the_same(sandbox: StdioClient) -> None:
    code = "import threading as t\nseen = []\nall = [t.Thread(target=seen.append, args=(n,)) for n in range(20)]\n"
    assert sandbox.run(code + "[x.start() for x in all]; [x.join() for x in all]; print(len(seen))").stdout == "20\n"


INT80 = """
import ctypes, mmap, sys
code = bytes.fromhex("53" "b814000000" "cd80" "5b" "c3")  # push rbx; eax = 20 (getpid of i386); int 0x80; pop rbx; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print("called", function() > 0, flush=True)
"""


def test_a21_system_calls_of_another_architecture_are_made(sandbox: StdioClient, bare: Bare) -> None:
    answer = sandbox.run(INT80)
    control = bare.run(INT80)
    assert control.returncode == 0 or control.returncode == -11, "the host's kernel has IA32 emulation or not"
    if control.stdout == "called False\n":  # User-Mode Linux makes nothing of the instruction
        assert (answer.exit_code, answer.stdout) == (0, control.stdout)
    else:
        assert (answer.exit_code, answer.stdout) == (128 + 31, "")  # SIGSYS


def test_a21_the_x32_table_is_used(sandbox: StdioClient) -> None:
    code = "print(attempt(syscall, 0x40000000 | 39), attempt(syscall, 0x40000000 | 101, 0, 0, 0, 0))"
    assert sandbox.run(ERRNO + code).stdout == "EPERM EPERM\n"


TERMINALS = """
read, write = os.pipe()
seen = {}
for name, request in (("TIOCSTI", 0x5412), ("TIOCSTI high", 0x5412 | 1 << 32), ("TIOCLINUX", 0x541C),
                      ("TIOCLINUX high", 0x541C | 1 << 40), ("TIOCSETD", 0x5423)):
    seen[name] = attempt(syscall, 16, 0, request, ctypes.create_string_buffer(b"x", 8))
seen["tty"] = attempt(lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
seen["isatty"] = str(any(map(os.isatty, (0, 1, 2))))
print(json.dumps(seen))
"""


def test_a22_a_terminal_is_typed_into(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + TERMINALS)
    assert seen.pop("tty") in {"ENOENT", "ENXIO"}
    assert seen.pop("isatty") == "False"
    assert seen == dict.fromkeys(seen, "EPERM")


def test_a22_control_outside_the_request_reaches_the_driver(bare: Bare) -> None:
    seen = bare.probe(ERRNO + TERMINALS)
    assert seen["TIOCSTI"] == seen["TIOCSTI high"] == "ENOTTY"  # standard input is no terminal there


KERNEL = """
numbers = {"io_uring_setup": (425, 1, 0), "keyctl": (250, 0, 0), "add_key": (248, 0, 0, 0, 0, 0),
           "request_key": (249, 0, 0, 0, 0), "userfaultfd": (323, 0), "bpf": (321, 0, 0, 0),
           "perf_event_open": (298, 0, 0, -1, -1, 0), "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
           "process_vm_writev": (311, 1, 0, 0, 0, 0, 0), "kcmp": (312, os.getpid(), os.getpid(), 0, 0, 0), "open_by_handle_at": (304, -1, 0, 0),
           "fanotify_init": (300, 0, 0), "ptrace": (101, 0, 0, 0, 0), "pidfd_getfd": (438, -1, 0, 0),
           "name_to_handle_at": (303, -1, 0, 0, 0, 0), "memfd_secret": (447, 1 << 20), "process_madvise": (440, -1, 0, 0, 0, 0),
           "init_module": (175, 0, 0, 0), "finit_module": (313, -1, 0, 0), "delete_module": (176, 0, 0),
           "kexec_load": (246, 0, 0, 0, 0), "reboot": (169, 0, 0, 0, 0), "swapon": (167, 0, 0), "swapoff": (168, 0),
           "settimeofday": (164, 1, 0), "clock_settime": (227, 0, 0), "adjtimex": (159, 0), "sethostname": (170, 0, 0),
           "setdomainname": (171, 0, 0), "syslog": (103, 3, 0, 0), "acct": (163, 1), "quotactl": (179, 0, 0, 0, 0),
           "personality": (135, 0x0040000), "iopl": (172, 3), "ioperm": (173, 0, 1, 1), "vhangup": (153,), "mlockall": (151, 1)}
print(json.dumps({name: attempt(syscall, *words) for name, words in numbers.items()}))
"""


def test_a23_a24_privileged_and_dangerous_calls_are_made(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + KERNEL)
    assert seen == dict.fromkeys(seen, "EPERM")


def test_a23_control_the_kernel_itself_answers_otherwise(root_identity: object) -> None:
    code = ERRNO + KERNEL.replace('"vhangup": (153,), ', "").replace('"acct": (163, 1), ', "")
    done = subprocess.run(
        ["unshare", "-mu", sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    seen = json.loads(done.stdout)
    denied = {name for name, value in seen.items() if value == "EPERM"}
    assert denied <= {"reboot", "kexec_load", "bpf", "add_key"}, seen


SOCKETS = """
import socket
def make(family, kind=1, protocol=0):
    socket.socket(family, kind, protocol).close()
families = {"AF_ALG": 38, "AF_VSOCK": 40, "AF_PACKET": 17, "AF_NETLINK": 16, "AF_XDP": 44, "AF_BLUETOOTH": 31, "AF_CAN": 29,
            "AF_TIPC": 30, "AF_RDS": 21, "AF_KEY": 15, "AF_AX25": 3, "AF_APPLETALK": 5, "AF_IB": 27, "AF_SMC": 43}
seen = {name: [attempt(make, number, kind) for kind in (1, 2, 3, 5)] for name, number in families.items()}
seen["raw"] = [attempt(make, family, 3, 1) for family in (2, 10)]
seen["raw high bits"] = [attempt(syscall, 41, 2 | 1 << 32, 3, 1), attempt(syscall, 41, 16 | 1 << 32, 3, 0)]
seen["allowed"] = [attempt(make, family, kind) for family in (1, 2, 10) for kind in (1, 2)]
print(json.dumps(seen))
"""


def test_a25_sockets_of_other_families_are_made(sandbox: StdioClient, bare: Bare) -> None:
    seen = sandbox.probe(ERRNO + SOCKETS)
    allowed = seen.pop("allowed")
    assert allowed == bare.probe(ERRNO + SOCKETS)["allowed"]  # not every kernel has IPv6
    assert allowed[:4] == ["done"] * 4
    assert set(seen.pop("raw")) == {"EPERM"}
    assert set(seen.pop("raw high bits")) <= {"EPERM", "EAFNOSUPPORT"}
    assert {answer for answers in seen.values() for answer in answers} <= {"EAFNOSUPPORT", "EPERM"}


def test_a25_control_outside_some_of_them_exist(bare: Bare) -> None:
    seen = bare.probe(ERRNO + SOCKETS)
    assert "done" in seen["AF_NETLINK"]


CAPABILITIES = """
status = dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
seen = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")}
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
seen["capset"] = attempt(syscall, 126, header, data)
seen["ambient"] = attempt(call, "prctl", 47, 2, 21, 0, 0)
seen["securebits"] = attempt(call, "prctl", 28, 0)
seen["keepcaps"] = attempt(call, "prctl", 8, 1)
seen["bits"] = hex(libc.prctl(27))
seen["no_new_privs off"] = attempt(call, "prctl", 38, 0, 0, 0, 0)
after = dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
seen["same"] = str(all(after[name] == status[name] for name in status if name.startswith("Cap")))
print(json.dumps(seen))
"""


def test_a26_capabilities_are_gained(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + CAPABILITIES)
    none = "0" * 16
    assert [seen[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [none] * 5
    assert (seen["NoNewPrivs"], seen["Seccomp"], seen["same"]) == ("1", "2", "True")
    assert {seen["capset"], seen["ambient"], seen["securebits"], seen["keepcaps"]} == {"EPERM"}
    assert seen["no_new_privs off"] == "EINVAL"
    assert int(seen["bits"], 16) & 0xEF == 0xEF


SYSTEM = """
import resource
def write(path, text="1"):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
seen = {path: attempt(write, path) for path in
        ("/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/core_pattern",
         "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register",
         "/proc/sys/user/max_user_namespaces", "/proc/irq/default_smp_affinity", "/proc/sys/kernel/ns_last_pid")}
seen["oom_score_adj"] = attempt(write, "/proc/self/oom_score_adj", "-1000")
seen["uid_map"] = attempt(write, "/proc/self/uid_map", "0 0 1")
seen["setgroups"] = attempt(write, "/proc/self/setgroups", "allow")
def raise_limit(name):
    soft, hard = resource.getrlimit(name)
    resource.setrlimit(name, (soft, resource.RLIM_INFINITY))
for name in ("NPROC", "FSIZE", "NOFILE", "CORE", "DATA", "MEMLOCK", "NICE", "RTPRIO"):
    try:
        raise_limit(getattr(resource, "RLIMIT_" + name))
        seen["rlimit " + name] = "done"
    except (ValueError, OSError) as error:
        seen["rlimit " + name] = "EPERM"
seen["nice"] = attempt(os.nice, -5)
seen["fifo"] = attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
print(json.dumps(seen))
"""


def test_a27_settings_of_the_system_are_changed(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + SYSTEM)
    assert set(seen.values()) <= {"EPERM", "EACCES", "ENOENT", "EROFS", "EINVAL"}, seen


def test_a27_sysrq_is_triggered(sandbox: StdioClient) -> None:
    code = "open('/proc/sysrq-trigger', 'w').write('x'); print(open('/proc/sysrq-trigger').read() == '')"
    answer = sandbox.run(code)  # /dev/null stands in its place, or it cannot be opened
    assert answer.exit_code == 1 or answer.stdout == "True\n"


def test_a27_control_root_may(root_identity: object) -> None:
    code = (
        ERRNO
        + "import resource; print(attempt(os.nice, -5), attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "done" in done.stdout


@pytest.mark.parametrize("size", [1, 1 << 40])
def test_a27_memory_is_locked(sandbox: StdioClient, size: int) -> None:
    assert sandbox.run(
        ERRNO + f"print(attempt(call, 'mlock', ctypes.create_string_buffer(64), {min(size, 64)}))"
    ).stdout in {"EPERM\n", "ENOMEM\n"}
