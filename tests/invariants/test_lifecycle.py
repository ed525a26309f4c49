"""A34-A39: output, descriptors, signals and odd bytes; the answer comes in time and is a value."""

from __future__ import annotations

import json
import time

import pytest
from support.client import StdioClient, ToolError
from support.processes import descendants_of
from support.waiting import wait_until

CAP = 1 << 20


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        "import sys\nwhile True: sys.stderr.write('x' * 65536)",
        "import os\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)",
        "import sys\nfor _ in range(1024): sys.stdout.write('x' * (1 << 20))",
        "import subprocess\nsubprocess.run(['yes'])",
    ],
)
def test_a34_output_without_end(sandbox: StdioClient, program: str) -> None:
    sandbox.run("print(1)")
    before = rss_kib(sandbox.process.pid)
    started = time.monotonic()
    answer = sandbox.run(program, timeout_s=3)
    assert time.monotonic() - started < 10
    assert answer.truncated
    assert len(answer.stdout.encode()) + len(answer.stderr.encode()) <= CAP + 200
    assert rss_kib(sandbox.process.pid) - before < 64 << 10


def test_a34_the_rest_is_dropped_and_the_program_goes_on(sandbox: StdioClient) -> None:
    answer = sandbox.run(f"print('x' * {CAP + 10}); import sys; sys.stderr.write('late'); sys.exit(5)")
    assert (answer.truncated, answer.exit_code, len(answer.stdout), answer.stderr) == (True, 5, CAP, "")
    exact = sandbox.run(f"import sys; sys.stdout.write('x' * {CAP})")
    assert (exact.truncated, len(exact.stdout)) == (False, CAP)


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        MARK
        time.sleep(3600)
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("program", "code", "stdout"),
    [
        ("import os; os.close(0); os.close(1); os.close(2)", None, ""),
        (DAEMON.replace("MARK", "") + "os.wait(); os._exit(0)", 0, ""),
        (DAEMON.replace("MARK", "") + "os.wait(); print('out', flush=True); os._exit(9)", 9, "out\n"),
        ("import subprocess, sys; subprocess.Popen(['sleep', '3600']); print('left')", 0, "left\n"),
    ],
)
def test_a35_descriptors_are_closed_or_held_open(
    sandbox: StdioClient, program: str, code: int | None, stdout: str
) -> None:
    started = time.monotonic()
    answer = sandbox.run(program)
    assert time.monotonic() - started < 5
    assert answer.stdout == stdout
    assert code is None or answer.exit_code == code
    assert not answer.timed_out


def below(sandbox: StdioClient) -> int:
    """How many processes: the launcher, those of jails that are ready, and those of runs."""
    return len(descendants_of(sandbox.process.pid))


def at_rest(sandbox: StdioClient) -> int:
    """How many there are while nothing runs, once nothing is being built or taken apart."""
    counts = [below(sandbox)]
    while len(counts) < 5 or len(set(counts[-5:])) > 1:
        time.sleep(0.1)
        counts.append(below(sandbox))
    return counts[-1]


def test_a35_a_daemon_survives_the_run(sandbox: StdioClient) -> None:
    rest = at_rest(sandbox)
    waiting = sandbox.start_call(DAEMON.replace("MARK", "") + "time.sleep(1)")
    wait_until(lambda: below(sandbox) >= rest + 3)  # the control: init, payload and daemon are seen
    sandbox.finish(*waiting)
    wait_until(lambda: below(sandbox) == rest)


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, signal; os.killpg(0, signal.SIGSTOP)",
        "import os, signal; os.fork(); os.kill(0, signal.SIGTSTP); os.kill(os.getpid(), signal.SIGSTOP)",
        "import signal, time\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1)",
        "while True: pass",
        "import time\nwhile True:\n  try: time.sleep(100)\n  except BaseException: pass",
    ],
)
def test_a36_the_deadline_is_ignored(sandbox: StdioClient, program: str) -> None:
    rest = at_rest(sandbox)
    answer = sandbox.run("print('before', flush=True)\n" + program, timeout_s=1)
    assert (answer.timed_out, answer.exit_code, answer.stdout) == (True, -1, "before\n")
    assert 1000 <= answer.duration_ms < 1000 + 1500
    assert answer.stderr.splitlines()[-1] == "mcp-exec: the time limit of 1 s ended the run"
    wait_until(lambda: below(sandbox) == rest)


@pytest.mark.parametrize(
    ("program", "arguments", "stdout"),
    [
        ("import sys; print(repr(sys.stdin.read()))", {}, "''\n"),
        ("import sys; print(repr(sys.stdin.read()))", {"stdin": "a\nb"}, "'a\\nb'\n"),
        ("print('not read')", {"stdin": "x" * CAP}, "not read\n"),
        ("import sys; print(len(sys.stdin.read()))", {"stdin": "x" * CAP}, f"{CAP}\n"),
        ("import subprocess; subprocess.run(['cat'])", {"stdin": "for the child"}, "for the child"),
        ("import os; os.close(0); print('closed')", {"stdin": "x" * CAP}, "closed\n"),
        (
            "import sys; print(sys.stdin.readline(), end=''); sys.stdout.flush(); import subprocess; subprocess.run(['true'])",
            {"stdin": "one\ntwo\n"},
            "one\n",
        ),
    ],
)
def test_a37_standard_input(sandbox: StdioClient, program: str, arguments: dict[str, str], stdout: str) -> None:
    answer = sandbox.run(program, timeout_s=20, **arguments)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, stdout, "")


def test_a37_standard_input_of_control_characters(sandbox: StdioClient) -> None:
    text = "\x00\x01\x1f\u2028é" * 1000
    answer = sandbox.run("import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=text)
    import hashlib

    assert answer.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("print('a')\x00", None),
        ("\ufeffprint('bom')", "bom\n"),
        ("# coding: latin-1\nprint('ä')", None),
        ("print(1)\r\nprint(2)\r\n", "1\n2\n"),
        ("print('no newline')", "no newline\n"),
        ("# only a comment", ""),
        ("'''only a string'''", ""),
        ("#" * (1 << 20) + "\nprint('long')", "long\n"),
        ("x = '" + "y" * (1 << 20) + "'\nprint(len(x))", "1048576\n"),
        ("print('\u2028\U0001f600')", "\u2028\U0001f600\n"),
        ("(" * 300, None),
        ("x = " + "-" * 100000 + "1", None),
    ],
)
def test_a38_odd_sources(sandbox: StdioClient, code: str, stdout: str | None) -> None:
    answer = sandbox.run(code)
    if stdout is None:
        assert answer.exit_code in {0, 1}
        assert answer.exit_code == 0 or "Error" in answer.stderr
    else:
        assert (answer.stdout, answer.stderr, answer.exit_code) == (stdout, "", 0)


@pytest.mark.parametrize("code", ["", " \n\t"])
def test_a38_blank_code_is_a_tool_error(sandbox: StdioClient, code: str) -> None:
    with pytest.raises(ToolError, match="blank"):
        sandbox.run(code)


def test_a38_a_lone_surrogate_is_a_tool_error(sandbox: StdioClient) -> None:
    with pytest.raises(ToolError, match="lone surrogate"):
        sandbox.run("print('\ud800')")
    with pytest.raises(ToolError, match="lone surrogate"):
        sandbox.run("print(1)", stdin="\udfff")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00bytes", b"\x1b[31mred\x1b[0m", bytes(range(256)), b"\xc3", b"\xed\xa0\x80", b"\0" * 1000]
)
def test_a39_output_of_odd_bytes(sandbox: StdioClient, data: bytes) -> None:
    answer = sandbox.run(f"import os; os.write(1, {data!r}); os.write(2, {data!r})")
    assert answer.stdout == answer.stderr == data.decode("utf-8", "replace")
    json.loads(sandbox.raw[-1])


@pytest.mark.parametrize("shift", range(4))
def test_a39_a_character_is_split_at_the_cap(sandbox: StdioClient, shift: int) -> None:
    answer = sandbox.run(f"import os, sys\nsys.stdout.write('x' * {shift} + '\U0001f600' * {CAP // 4 + 1})")
    assert answer.truncated
    assert answer.stdout == "x" * shift + "\U0001f600" * ((CAP - shift) // 4)
