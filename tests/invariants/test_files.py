"""A10-A14, A16-A19: the host's files, mounts and devices; what one run could leave for the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.client import Bare, StdioClient
from support.programs import ERRNO

WRITE = """
def write(folder):
    path = os.path.join(folder, "probe-of-the-tests")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
def overwrite(path):
    os.close(os.open(path, os.O_WRONLY))
"""


def test_a10_system_files_are_written(sandbox: StdioClient) -> None:
    seen = sandbox.probe(
        ERRNO
        + WRITE
        + """
import sysconfig, threading
folders = ["/", "/usr", "/usr/lib", "/usr/bin", "/bin", "/lib", "/etc", "/dev", sys.prefix, sys.base_prefix,
           sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), os.path.dirname(threading.__file__)]
files = [sys.executable, os.path.realpath(sys.executable), threading.__file__, "/etc/passwd", "/etc/hosts"]
print(json.dumps({**{path: attempt(write, path) for path in folders}, **{path: attempt(overwrite, path) for path in files},
                  **{"chmod " + path: attempt(os.chmod, path, 0o777) for path in folders},
                  **{"rename " + path: attempt(os.rename, path, path + "x") for path in files}}))
"""
    )
    assert set(seen.values()) <= {"EROFS", "EACCES", "EPERM", "EXDEV", "EBUSY"}, seen


def test_a10_control_the_probe_writes_where_it_may(bare: Bare, sandbox: StdioClient) -> None:
    code = (
        ERRNO + WRITE + "folder = FOLDER\nprint(json.dumps([attempt(write, folder), attempt(os.chmod, folder, 0o777)]))"
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o777)
        assert bare.probe(code.replace("FOLDER", repr(folder)))[0] == "done"
    assert sandbox.probe(code.replace("FOLDER", "'/workspace'")) == ["done", "done"]


def test_a10_a_submount_of_a_bound_tree_is_written(root_identity: object, tmp_path: Path) -> None:
    """Only root can make the submount; the sandbox's interpreter then lies above it."""
    code = """
import os, subprocess, sys
from support.client import StdioClient, own_identity
prefix = sys.argv[1]
subprocess.run([sys.executable, "-m", "virtualenv", "-q", "--without-pip", prefix], check=True)
os.mkdir(prefix + "/sub")
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", prefix + "/sub"], check=True)
open(prefix + "/sub/seen", "w").close()
open(prefix + "/sub/control", "w").close()
program = '''
import errno, os
print(os.path.exists(P + "/sub/seen"))
try: open(P + "/sub/new", "w")
except OSError as error: print(errno.errorcode[error.errno])
'''.replace("P +", repr(prefix) + " +")
with StdioClient(own_identity(), {"MCP_EXEC_PYTHON": prefix + "/bin/python"}) as client:
    print(client.run(program).stdout)
"""
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", code, str(tmp_path / "venv")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=120,
    )
    assert done.stdout.split() == ["True", "EROFS"], done.stderr


MOUNTS = """
AT_FDCWD = -100
seen = {
    "remount /": attempt(call, "mount", None, "/", None, 32 | 4096, None),
    "remount /usr/lib": attempt(call, "mount", None, "/usr/lib", None, 32 | 4096, None),
    "umount /proc": attempt(call, "umount2", "/proc", 2),
    "umount -l /": attempt(call, "umount2", "/", 2),
    "umount /workspace": attempt(call, "umount2", "/workspace", 2),
    "pivot_root": attempt(syscall, 155, "/tmp", "/tmp"),
    "chroot": attempt(call, "chroot", "/tmp"),
    "move": attempt(call, "mount", "/workspace", "/tmp", None, 8192, None),
    "bind": attempt(call, "mount", "/usr", "/tmp", None, 4096, None),
    **{kind: attempt(call, "mount", kind, "/tmp", kind, 0, None)
       for kind in ("proc", "sysfs", "tmpfs", "overlay", "cgroup2", "mqueue", "devpts", "ramfs")},
    "mount_setattr": attempt(syscall, 442, AT_FDCWD, "/", 0x8000, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32),
    "open_tree": attempt(syscall, 428, AT_FDCWD, "/", 1),
    "fsopen": attempt(syscall, 430, "tmpfs", 0),
}
print(json.dumps(seen))
"""


def test_a11_a12_mounts_are_changed_or_left(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + MOUNTS)
    new_api = {"mount_setattr", "open_tree", "fsopen"}
    assert {name: value for name, value in seen.items() if name not in new_api} == dict.fromkeys(
        set(seen) - new_api, "EPERM"
    )
    assert {seen[name] for name in new_api} == {"ENOSYS"}


def test_a11_control_mounting_works_for_those_who_may(root_identity: object) -> None:
    code = ERRNO + 'print(attempt(call, "mount", "tmpfs", "/tmp", "tmpfs", 0, None), attempt(call, "chroot", "/tmp"))'
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["done", "done"], done


def test_a12_a_descriptor_of_a_folder_leads_out(sandbox: StdioClient) -> None:
    code = (
        ERRNO
        + """
top = os.open("/", os.O_RDONLY)
os.fchdir(top)
for _ in range(20):
    os.chdir("..")
print(json.dumps([os.getcwd(), sorted(os.listdir(".")), os.path.samefile(".", "/")]))
"""
    )
    cwd, names, same = sandbox.probe(code)
    assert (cwd, same) == ("/", True)
    assert not {"home", "boot", "sys", "run", "srv", "mnt", "media", "opt"} & set(names)


SETUID = """
import shutil, stat, subprocess
shutil.copy("/bin/sh", "/workspace/sh")
os.chmod("/workspace/sh", 0o6755)
result = {"copy": attempt(subprocess.check_output, ["/workspace/sh", "-c", "id -u"])}
for name in ("su", "mount", "newuidmap", "sudo", "passwd", "chsh", "pkexec", "umount", "gpasswd", "newgrp"):
    path = shutil.which(name)
    if path:
        done = subprocess.run([path], stdin=subprocess.DEVNULL, capture_output=True)
        uid = subprocess.run(["sh", "-c", "id -u"], capture_output=True, text=True).stdout.strip()
        result[name] = uid
result["setuid"] = attempt(os.setuid, 0)
result["setresuid"] = attempt(os.setresuid, 0, 0, 0)
result["setgroups"] = attempt(os.setgroups, [0])
result["uid"] = os.getresuid()
print(json.dumps(result))
"""


def test_a13_setuid_programs_change_the_uid(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + SETUID)
    assert seen.pop("copy") == "EACCES"
    assert seen.pop("uid") == [65532] * 3
    assert {seen.pop(name) for name in ("setuid", "setresuid", "setgroups")} <= {"EPERM", "EINVAL"}
    assert set(seen.values()) <= {"65532"}
    assert seen, "no setuid program of the host is visible: the probe shows nothing"


def test_a13_setuid_bits_of_system_mounts_are_ignored(sandbox: StdioClient) -> None:
    options = sandbox.probe("import json; print(json.dumps([line.split() for line in open('/proc/self/mounts')]))")
    assert options
    assert all("nosuid" in entry[3].split(",") for entry in options), options


DEVICES = """
import stat
seen = {path: attempt(lambda path=path: os.close(os.open(path, os.O_RDWR)))
        for path in ("/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/net/tun", "/dev/tty",
                     "/dev/ptmx", "/dev/console", "/dev/loop0", "/dev/port", "/dev/snapshot", "/dev/userfaultfd")}
for kind in (stat.S_IFCHR, stat.S_IFBLK):
    seen[f"mknod {kind}"] = attempt(os.mknod, "/workspace/node", kind | 0o666, os.makedev(1, 3))
print(json.dumps(seen))
"""


def test_a14_devices_are_made_or_opened(sandbox: StdioClient) -> None:
    assert set(sandbox.probe(ERRNO + DEVICES).values()) <= {"EPERM", "ENOENT", "ENXIO"}


def test_a14_control_devices_are_there_outside(root_identity: object) -> None:
    done = subprocess.run([sys.executable, "-c", ERRNO + DEVICES.replace("/workspace", tempfile.mkdtemp())],
                          capture_output=True, text=True, check=True)  # fmt: skip
    seen = json.loads(done.stdout)
    assert "done" in {value for name, value in seen.items() if name.startswith("mknod")}
    assert "done" in {value for name, value in seen.items() if name.startswith("/dev")}


FILL = """
import errno
def fill(place):
    try:
        with open(place, "wb") as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError as error:
        return errno.errorcode[error.errno]
def many(place):
    try:
        for number in range(1_000_000):
            os.close(os.open(f"{place}/{number}", os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        return errno.errorcode[error.errno]
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
"""


@pytest.mark.parametrize(
    ("program", "accepted"),
    [
        ("print(json.dumps(attempt(lambda: os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 1 << 40))))", {"EFBIG"}),
        ("print(json.dumps(attempt(lambda: os.posix_fallocate(os.open('b', os.O_CREAT | os.O_RDWR), 0, 100 << 30))))",
         {"EFBIG", "ENOSPC"}),
        ("print(json.dumps(many('/workspace')))", {"ENOSPC"}),
        ("print(json.dumps([fill('/workspace/a'), fill('/tmp/b'), fill('/dev/shm/c')][2]))", {"ENOSPC", "EFBIG"}),
        ("os.symlink('/etc/passwd', 'l'); print(json.dumps(many('/dev/shm')))", {"ENOSPC"}),
    ],
)  # fmt: skip
def test_a16_the_workspace_is_filled(sandbox: StdioClient, program: str, accepted: set[str]) -> None:
    assert sandbox.probe(ERRNO + FILL + program, timeout_s=60) in accepted


LEAVE = """
import os, pathlib
for place in ("/tmp", "/dev/shm", os.environ["HOME"], os.environ["HOME"] + "/.cache", "/workspace"):
    os.makedirs(place, exist_ok=True)
    for name in ("left", "sitecustomize.py", "left.pth", "json.py", "usercustomize.py"):
        pathlib.Path(place, name).write_text("raise SystemExit(99)")
pathlib.Path("main.pyc").write_text("x")
print("left")
"""


def test_a17_files_are_left_for_the_next_run(sandbox: StdioClient) -> None:
    for _ in range(6):  # every slot
        assert sandbox.run(LEAVE).stdout == "left\n"
    look = """
import json, os
print(json.dumps({place: sorted(os.listdir(place)) for place in ("/tmp", "/dev/shm", "/workspace")}))
"""
    for _ in range(6):
        seen = sandbox.probe(look)
        assert "left" not in str(seen)
        assert seen["/dev/shm"] == []
        assert seen["/workspace"] == ["main.py"]


def test_a17_control_within_one_run_they_are_found(sandbox: StdioClient) -> None:
    again = LEAVE + "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import json']).returncode)"
    assert sandbox.run(again).stdout == "left\n99\n"


def test_a17_modules_changed_in_memory_are_those_of_the_next_run(sandbox: StdioClient) -> None:
    sandbox.run("import json, random, sys\njson.dumps = None\nrandom.random = lambda: 4\nsys.modules['os'].evil = 1")
    for _ in range(6):
        assert sandbox.run("import json, os, random\nprint(json.dumps(hasattr(os, 'evil')))").stdout == "false\n"


SECRETS = ["/run/docker.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket",
           "/var/run/secrets/kubernetes.io/serviceaccount/token", "/root/.ssh", "/root/.aws", "/root/.bash_history",
           "/etc/shadow", "/etc/ssh", "/home", "/var/lib", "/var/log", "/srv", "/opt", "/sys", "/boot", "/mnt", "/media"]  # fmt: skip


def test_a18_secrets_of_the_host_are_found(sandbox: StdioClient) -> None:
    code = f"import json, os\nprint(json.dumps([path for path in {SECRETS!r} if os.path.lexists(path)]))"
    assert sandbox.probe(code) == []
    assert {"/etc/shadow", "/home", "/var/lib", "/sys"} <= {path for path in SECRETS if os.path.lexists(path)}


def test_a18_a_file_beside_the_server_is_read(sandbox: StdioClient, tmp_path: Path) -> None:
    beside = [tmp_path / ".env", Path("/var/tmp/.env-of-the-tests"), Path.cwd() / ".env-of-the-tests"]
    try:
        for path in beside:
            path.write_text("SECRET=1")
        code = f"import json, os\nprint(json.dumps([p for p in {[*map(str, beside)]!r} if os.path.exists(p)]))"
        assert sandbox.probe(code) == []
    finally:
        for path in beside:
            path.unlink()


def test_a18_nothing_of_the_home_is_seen_but_the_interpreter(sandbox: StdioClient) -> None:
    seen = sandbox.probe("""
import json, os, sys
seen = {}
for prefix in {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)}:
    folder = prefix
    while folder != "/":
        below, folder = os.path.basename(folder), os.path.dirname(folder)
        if folder not in ("/", "/usr", "/tmp"):
            seen.setdefault(folder, []).append([below, os.listdir(folder)])
print(json.dumps(seen))
""")
    for folder, pairs in seen.items():
        expected = {below for below, _ in pairs}
        for _, names in pairs:
            assert set(names) <= expected, folder


EXECUTE = """
import shutil, subprocess
def output(path, *words):
    return subprocess.check_output([path, *words, "-c", "import os; print(os.getuid())"], text=True).strip()
real = os.path.realpath(sys.executable)
seen = {}
for place in ("/workspace", "/tmp", "/dev/shm"):
    copy = place + "/python"
    shutil.copy(real, copy)
    os.chmod(copy, 0o755)
    seen[place] = attempt(output, copy)
def from_memory():
    descriptor = os.memfd_create("python")
    with open(real, "rb") as source:
        while chunk := source.read(1 << 20):
            os.write(descriptor, chunk)
    child = os.fork()
    if child == 0:
        os.execve(descriptor, ["python", "-c", "import os; os._exit(os.getuid() == 65532 and 7 or 8)"],
                  {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": os.path.join(sys.base_prefix, "lib")})
    seen["exit code"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
seen["memfd"] = attempt(from_memory)
print(json.dumps(seen))
"""


def test_a19_programs_brought_along_are_executed(sandbox: StdioClient) -> None:
    seen = sandbox.probe(ERRNO + EXECUTE)
    memory = {"memfd": "done", "exit code": 7} if sandbox.has_cgroup else {"memfd": "ENOSYS"}
    assert seen == {"/workspace": "EACCES", "/tmp": "EACCES", "/dev/shm": "EACCES", **memory}


def test_a19_what_is_executed_is_confined_alike(sandbox: StdioClient) -> None:
    status = sandbox.run(
        "import subprocess; print(subprocess.check_output(['cat', '/proc/self/status'], text=True))"
    ).stdout
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["CapBnd"]) == ("1", "2", "0" * 16)


def test_a19_the_loader_starts_a_file_of_the_workspace(sandbox: StdioClient) -> None:
    code = (
        ERRNO
        + """
import glob, shutil, subprocess
loader = (glob.glob("/lib64/ld-linux*") + glob.glob("/lib/ld-linux*"))[0]
shutil.copy("/bin/true", "/workspace/true")
print(json.dumps(subprocess.run([loader, "/workspace/true"], capture_output=True).returncode))
"""
    )
    assert sandbox.probe(code) != 0  # noexec also forbids the mapping: mmap(2) EPERM
