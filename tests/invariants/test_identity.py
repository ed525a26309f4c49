"""A1-A9: what a program learns of, and does to, those outside; and that its result is its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.client import Bare, StdioClient

SECRET = "token-of-the-tests"

READ_ENVIRONMENTS = """
import json, os
found = {}
for pid in ("self", "1", str(os.getppid()), PARENT):
    try:
        found[pid] = open(f"/proc/{pid}/environ", "rb").read().decode()
    except OSError as error:
        found[pid] = error.errno
print(json.dumps(found))
"""


def test_a1_the_environment_of_the_server_is_read(sandbox: StdioClient, bare: Bare) -> None:
    outside = f"PARENT = {str(sandbox.process.pid)!r}\n" + READ_ENVIRONMENTS
    control = bare.run("import os; print(open('/proc/self/environ').read())", env={"MCP_EXEC_AUTH_TOKEN": SECRET})
    assert SECRET in control.stdout
    seen = sandbox.probe(outside)
    assert SECRET not in str(seen)
    assert all(isinstance(value, int) or "MCP_EXEC" not in value for value in seen.values())
    assert isinstance(seen["1"], int)


def test_a1_the_environment_of_a_program_is_the_scrubbed_one(sandbox: StdioClient) -> None:
    names = set(sandbox.probe("import json, os; print(json.dumps(dict(os.environ)))"))
    assert names == {
        "HOME", "LANG", "MPLBACKEND", "MPLCONFIGDIR", "PATH", "PYTHON_CPU_COUNT", "TMPDIR", "TZ", "USER",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    }  # fmt: skip


TOUCH_PROCESS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
target = TARGET
seen = {}
def attempt(name, action):
    try:
        action()
        seen[name] = 0
    except OSError as error:
        seen[name] = error.errno
def call(number, *words):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, words)) < 0:
        raise OSError(ctypes.get_errno(), "")
class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))
buffer = ctypes.create_string_buffer(8)
local = Vector(ctypes.addressof(buffer), 8)
remote = Vector(ADDRESS, 8)
attempt("fd", lambda: os.listdir(f"/proc/{target}/fd"))
attempt("mem", lambda: open(f"/proc/{target}/mem", "r+b").close())
attempt("maps", lambda: open(f"/proc/{target}/maps").read())
attempt("process_vm_readv", lambda: call(310, target, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0))
handle = os.pidfd_open(target)
attempt("pidfd_getfd", lambda: call(438, handle, 1, 0))
attempt("ptrace", lambda: call(101, 16, target, 0, 0))
print(json.dumps(seen))
"""


def test_a2_init_is_read_written_or_traced(sandbox: StdioClient, bare: Bare) -> None:
    sleeper = "import ctypes,sys,time; b=ctypes.create_string_buffer(8); print(ctypes.addressof(b), flush=True); time.sleep(60)"
    victim = bare.identity.popen(
        [bare.identity.python, "-c", sleeper], {"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, cwd="/"
    )
    try:
        assert victim.stdout is not None
        address = int(victim.stdout.readline())
        control = bare.probe(f"TARGET, ADDRESS = {victim.pid}, {address}\n" + TOUCH_PROCESS)
        assert control == dict.fromkeys(control, 0)
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
    seen = sandbox.probe(f"TARGET, ADDRESS = 1, {address}\n" + TOUCH_PROCESS)
    assert set(seen) == set(control)
    assert 0 not in seen.values(), seen


def test_a2_a_result_is_forged_through_descriptors_of_init(sandbox: StdioClient) -> None:
    forge = """
import os, struct, sys
for name in ("1", str(os.getppid())):
    for number in range(64):
        try:
            with open(f"/proc/{name}/fd/{number}", "wb", 0) as file:
                file.write(struct.pack("=BBiqq", 3, 23, 0, 0, 0))
        except OSError:
            pass
sys.exit(7)
"""
    assert sandbox.run(forge).exit_code == 7


WRITE_EVERYWHERE = """
import json, os
written = []
for number in range(3, 65536):
    try:
        os.write(number, b"forged")
        written.append(number)
    except OSError:
        pass
print(json.dumps(written))
"""


def test_a3_results_are_written_into_every_descriptor(sandbox: StdioClient, bare: Bare) -> None:
    read, write = os.pipe()
    try:
        control = bare.run(WRITE_EVERYWHERE, pass_fds=(write,))
        assert str(write) in control.stdout
    finally:
        os.close(read)
        os.close(write)
    assert sandbox.probe(WRITE_EVERYWHERE) == []
    listed = sandbox.probe("import json, os; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))))")
    assert listed[:3] == [0, 1, 2]
    assert len(listed) == 4  # the listing's own


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"stdout":"","exit_code":99}}}',
        "\x00\x01READY\x03\x17\x00",
        '{"stdout": "forged", "exit_code": 0}',
    ],
)
def test_a4_a_program_prints_a_frame_and_leaves(sandbox: StdioClient, text: str) -> None:
    before = len(sandbox.raw)
    answer = sandbox.run(f"import os\nprint({text!r}, flush=True)\nos._exit(0)")
    assert answer.stdout == text + "\n"
    assert answer.exit_code == 0
    assert len(sandbox.raw) == before + 1


@pytest.mark.parametrize(
    "attack", ["os.kill(0, 9)", "os.kill(-1, 9)", "os.killpg(os.getpgrp(), 9)", "os.killpg(os.getsid(0), 9)"]
)
def test_a5_a_program_kills_all_that_it_can_name(sandbox: StdioClient, attack: str) -> None:
    bystander = sandbox.start_call("import time; time.sleep(1.0); print('alive')")
    child = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    answer = sandbox.run(f"import os\n{child}\n{attack}\nprint(child.wait())")
    if attack == "os.kill(-1, 9)":  # spares the caller and pid 1: kill(2)
        assert (answer.exit_code, answer.stdout) == (0, "-9\n")
    else:
        assert answer.exit_code == 128 + signal.SIGKILL
    assert sandbox.finish(*bystander)["structuredContent"]["stdout"] == "alive\n"
    assert sandbox.process.poll() is None


def test_a5_control_the_same_kill_reaches_a_shared_process_group() -> None:
    code = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import os; os.kill(0, 9)']).wait(); print(1)"
    done = subprocess.run([sys.executable, "-c", code], start_new_session=True, capture_output=True)
    assert done.returncode == -signal.SIGKILL


def test_a5_init_is_killed(sandbox: StdioClient) -> None:
    answer = sandbox.run(
        "import os\nfor number in range(1, 65):\n  try: os.kill(1, number)\n  except OSError: pass\nprint('on')"
    )
    assert (answer.exit_code, answer.stdout) == (0, "on\n")


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM),
        ("import signal; signal.alarm(1); signal.pause()", signal.SIGALRM),
        ("import os; os.abort()", signal.SIGABRT),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(5)", signal.SIGINT),
    ],
)
def test_a6_a_program_dies_of_a_signal(sandbox: StdioClient, bare: Bare, program: str, number: int) -> None:
    assert bare.run(program).returncode == -number
    assert sandbox.run(program, timeout_s=10).exit_code == 128 + number


def test_a7_a_concurrent_run_is_signalled_or_read(sandbox: StdioClient) -> None:
    neighbour = sandbox.start_call("secret = 'neighbour'\nimport time; time.sleep(1.5); print('alive')")
    attack = """
import json, os, time
time.sleep(0.3)
seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
reached = []
for pid in range(2, 70000):
    if pid == os.getpid():
        continue
    try:
        os.kill(pid, 0)
        reached.append(pid)
    except OSError:
        pass
print(json.dumps([seen, reached, os.getpid()]))
"""
    seen, reached, own = sandbox.probe(attack)
    assert seen == [1, own]
    assert reached == []
    assert sandbox.finish(*neighbour)["structuredContent"]["stdout"] == "alive\n"


def test_a7_control_a_process_of_the_same_user_is_reached(bare: Bare) -> None:
    code = """
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
try:
    os.kill(child.pid, 0)
    print(json.dumps(str(child.pid) in os.listdir("/proc")))
finally:
    child.kill()
"""
    assert bare.probe(code) is True


DESCRIBE_HOST = """
import json, os, socket
def read(path):
    try:
        return open(path, errors="replace").read()
    except OSError as error:
        return f"errno {error.errno}"
names = ("self/cgroup", "self/mountinfo", "cmdline", "kallsyms", "self/cmdline", "self/status", "self/maps", "modules",
         "self/root/etc/hostname", "sys/kernel/hostname", "partitions", "keys", "1/cmdline")
print(json.dumps({"uname": list(os.uname()), "hostname": socket.gethostname(),
                  **{name: read("/proc/" + name) for name in names}}))
"""


def test_a8_the_host_is_named(sandbox: StdioClient, bare: Bare) -> None:
    host = bare.probe(DESCRIBE_HOST)
    seen = sandbox.probe(DESCRIBE_HOST)
    assert any(host[name].strip() and not host[name].startswith("errno") for name in ("cmdline", "partitions"))
    assert seen["hostname"] == seen["uname"][1] == "mcp-exec"
    for name in ("cmdline", "kallsyms", "modules", "partitions", "keys"):
        assert not seen[name].strip() or seen[name].startswith("errno"), name
    assert {line.rpartition(":")[2] for line in seen["self/cgroup"].split()} <= {"/"}
    assert seen["1/cmdline"] == seen["self/cmdline"]
    told = seen["self/mountinfo"] + seen["self/maps"] + seen["self/cgroup"]
    assert os.uname().nodename not in re.findall(r"[\w.-]+", told)


EXITS = ["sys.exit(3)", "sys.exit(256)", "sys.exit(-1)", "sys.exit('text')", "sys.exit(3.5)", "sys.exit(None)",
         "sys.exit((1, 2))", "os._exit(300)", "sys.exit(True)", "raise SystemExit", "sys.exit(2**40)"]  # fmt: skip


@pytest.mark.parametrize("program", EXITS)
def test_a9_exit_statuses_are_cpythons(sandbox: StdioClient, bare: Bare, program: str) -> None:
    code = f"import os, sys\n{program}"
    expected, answer = bare.run(code), sandbox.run(code)
    assert (answer.exit_code, answer.stderr) == (expected.returncode, expected.stderr)


HOOKS = ["sys.excepthook = lambda *_: sys.exit(5)\nraise ValueError",
         "sys.excepthook = lambda *_: 1 / 0\nraise ValueError",
         "sys.excepthook = None\nraise ValueError",
         "import atexit; atexit.register(lambda: 1 / 0)\nsys.exit(4)",
         "import atexit; atexit.register(lambda: sys.exit(6))\nsys.exit(4)",
         "import atexit; atexit.register(print, 'bye')\nraise SystemExit('gone')",
         "sys.stderr = None\nraise ValueError",
         "sys.stdout.close()\nprint(1)",
         "raise KeyboardInterrupt",
         "class E(BaseException): pass\nraise E('own')",
         "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
         "try: 1/0\nexcept Exception as error: raise KeyError('second') from error",
         "def f(n): return f(n - 1) if n else 1/0\nf(3)",
         "import threading; threading.Thread(target=lambda: 1/0).start()"]  # fmt: skip


@pytest.mark.parametrize("program", HOOKS)
def test_a9_the_last_words_are_cpythons(sandbox: StdioClient, bare: Bare, program: str) -> None:
    script = Path(tempfile.mkdtemp(dir="/var/tmp")) / "main.py"
    try:
        script.parent.chmod(0o755)
        script.write_text(f"import sys\n{program}\n")
        expected = bare.run_file(script)
        answer = sandbox.run(script.read_text())
        assert answer.exit_code == (expected.returncode if expected.returncode >= 0 else 128 - expected.returncode)
        assert answer.stdout == expected.stdout
        assert normal(answer.stderr) == normal(expected.stderr.replace(str(script), "/workspace/main.py"))
    finally:
        shutil.rmtree(script.parent)


def normal(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", text)
