"""The command line, bad configuration, other interpreters, and the wheel elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.beds import skip_or_fail
from support.client import ROOT, Identity, StdioClient, own_identity
from support.interpreters import find_python


def command(
    *arguments: str, environ: Mapping[str, str] | None = None, stdin: str = "", identity: Identity | None = None
) -> subprocess.CompletedProcess[str]:
    chosen = identity or own_identity()
    return subprocess.run(
        [*chosen.prefix, chosen.command[0], *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], **(environ or {})},
        cwd="/",
    )


def test_the_example_answers_with_its_table() -> None:
    done = command("run", str(ROOT / "examples/csv_report.py"), "--stdin", str(ROOT / "examples/sales.csv"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2].split() == ["South", "1285.5", "160.69", "8"]


@pytest.mark.parametrize(
    ("code", "status", "stdout"),
    [
        ("print(1)", 0, "1\n"),
        ("import sys; sys.exit(7)", 7, ""),
        ("1/0", 1, ""),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
    ],
)
def test_the_exit_status_is_the_programs(code: str, status: int, stdout: str) -> None:
    done = command("run", "-c", code)
    assert (done.returncode, done.stdout) == (status, stdout)


def test_a_program_from_standard_input_and_a_timeout() -> None:
    done = command("run", "-", "--timeout", "1", stdin="print('a'); import time; time.sleep(60)")
    assert (done.returncode, done.stdout) == (124, "a\n")
    assert "time limit of 1 s" in done.stderr


def test_json_is_the_six_fields() -> None:
    done = command("run", "-c", "print('ä')", "--json")
    assert list(json.loads(done.stdout)) == ["stdout", "stderr", "exit_code", "duration_ms", "truncated", "timed_out"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run",), "one program is needed"),
        (("run", "-c", "1", "x.py"), "one program is needed"),
        (("run", "/does/not/exist.py"), "/does/not/exist.py: No such file"),
        (("run", "-c", " "), "blank"),
        (("policy", "check", "/does/not/exist.json"), "/does/not/exist.json"),
    ],
)
def test_what_the_caller_got_wrong_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.startswith("mcp-exec: ")
    assert done.stderr.count("\n") == 1


BAD_VALUES = [
    ("TRANSPORT", "carrier-pigeon", "stdio, http, sse"),
    ("DEFAULT_TIMEOUT_S", "0", "from 1 to"),
    ("DEFAULT_TIMEOUT_S", "301", "MCP_EXEC_MAX_TIMEOUT_S"),
    ("MAX_TIMEOUT_S", "soon", "a whole number"),
    ("MAX_OUTPUT_BYTES", "-1", "bytes"),
    ("MAX_STDIN_BYTES", "1x", "bytes"),
    ("MEMORY", "1", "bytes"),
    ("MEMORY", "lots", "bytes"),
    ("PIDS", "0", "a whole number"),
    ("CPUS", "nan", "a number"),
    ("CPUS", "-1", "a number"),
    ("WORKSPACE", "9e9", "bytes"),
    ("CONCURRENCY", "0", "a whole number"),
    ("QUEUE", "-1", "a whole number"),
    ("WARM", "many", "a whole number"),
    ("PREIMPORT", "os; import sys", "module names"),
    ("JAIL", "chroot", "auto, namespaces, landlock"),
    ("JAIL", "landlock", "namespaces"),
    ("REQUIRE", "luck", "cgroup, landlock"),
    ("LOG_LEVEL", "loud", "debug, info"),
    ("PYTHON", "/does/not/exist", "an executable file"),
    ("PYTHON", "python9", "an executable file"),
    ("PYTHON", "/bin/true", "CPython 3.11 or later"),
    ("PYTHON", "/etc/passwd", "PYTHON"),
    ("POLICY", "/does/not/exist.json", "/does/not/exist.json"),
    ("POLICY", "nonsense", "nonsense"),
]


@pytest.mark.parametrize(("name", "value", "words"), BAD_VALUES)
def test_a_bad_value_stops_the_server_with_one_line(name: str, value: str, words: str) -> None:
    done = command(environ={f"MCP_EXEC_{name}": value})
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("mcp-exec: ")
    assert f"MCP_EXEC_{name}" in done.stderr
    assert value in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_required_mechanism_that_is_missing_stops_the_server() -> None:
    done = command(environ={"MCP_EXEC_REQUIRE": "cgroup"})
    assert done.returncode == 1
    assert "I7" in done.stderr
    assert "MCP_EXEC_REQUIRE" in done.stderr
    table = command("doctor", environ={"MCP_EXEC_REQUIRE": "cgroup"})
    assert table.returncode == 1
    assert "MISSING" in table.stdout


def test_doctor_prints_each_invariant() -> None:
    done = command("doctor")
    assert done.returncode == 0, done.stdout
    assert [f"I{n}" for n in range(1, 10)] == [
        line.split()[0].rstrip("*") for line in done.stdout.splitlines() if line.startswith("I")
    ]
    told = json.loads(command("doctor", "--json").stdout)
    assert told["ok"] is True
    assert {wall["id"] for wall in told["walls"]} == {f"I{n}" for n in range(1, 10)}
    assert all(wall["mechanism"] for wall in told["walls"])


NO_NAMESPACES = """
import ctypes, errno, os, sys
import pyseccomp as s
f = s.SyscallFilter(defaction=s.ALLOW)
for name in ("unshare", "setns"): f.add_rule(s.ERRNO(errno.EPERM), name)
f.add_rule(s.ERRNO(errno.EPERM), "clone", s.Arg(0, s.MASKED_EQ, 0x10000000, 0x10000000))
f.add_rule(s.ERRNO(errno.EPERM), "clone", s.Arg(0, s.MASKED_EQ, 0x20000, 0x20000))
f.add_rule(s.ERRNO(errno.ENOSYS), "clone3")
f.load()
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("arguments", [(), ("doctor",), ("run", "-c", "print(1)")])
def test_where_namespaces_are_forbidden_nothing_runs_and_the_reason_is_told(arguments: tuple[str, ...]) -> None:
    server = own_identity()
    done = subprocess.run(
        [server.python, "-c", NO_NAMESPACES, server.command[0], *arguments],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 1, done
    told = done.stdout + done.stderr
    assert "Operation not permitted" in told
    assert "user namespaces" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_sandbox_runs_another_python(version: str) -> None:
    python = find_python(version)
    if python is None:
        skip_or_fail(f"python{version} is not on this machine")
    with StdioClient(own_identity(), {"MCP_EXEC_PYTHON": python}) as client:
        assert client.run("import sys, json; print(*sys.version_info[:2], sep='.')").stdout == f"{version}\n"
        assert client.run("1/0").stderr.endswith("ZeroDivisionError: division by zero\n")
        program = "import multiprocessing as m\ndef f(x): return x + 1\nif __name__ == '__main__':\n  with m.get_context('spawn').Pool(2) as p: print(p.map(f, [1, 2]))"
        assert client.run(program).stdout == "[2, 3]\n"
        assert client.run("import os; print(os.cpu_count())").stdout.strip() == (
            "1" if version == "3.13" else str(os.cpu_count())
        )
        assert f"Python {version}" in client.request("tools/list")["tools"][0]["description"]


def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\nif [ "$1" = -c ]; then echo 3.9.2 False; else exit 1; fi\n')
    old.chmod(0o755)
    done = command(environ={"MCP_EXEC_PYTHON": str(old)})
    assert done.returncode == 2
    assert "Python 3.9.2; accepted is CPython 3.11 or later" in done.stderr


def test_an_interpreter_under_a_home_of_mode_700_works(root_identity: Identity) -> None:
    base = subprocess.run(
        [root_identity.python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True
    )
    closed = [path for path in Path(base.stdout.strip()).parents if path.stat().st_mode & 0o077 == 0]
    assert closed, "this machine's interpreter lies in the open"
    assert command("run", "-c", "import numpy; print(numpy.ones(2).sum())").stdout == "2.0\n"


def test_the_wheel_works_in_an_empty_virtualenv(installed: Path, user_identity: Identity) -> None:
    assert (installed / "lib").is_dir()
    done = command("run", "-c", "import pandas; print(pandas.Series([1, 2]).sum())", identity=user_identity)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert command("policy", "check", identity=user_identity).returncode == 0
    assert command("--version", identity=user_identity).stdout.startswith("mcp-exec")


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_wheel_serves_on_every_python(version: str, wheel: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        skip_or_fail(f"python{version} is not on this machine")
    subprocess.run([python, "-m", "venv", str(tmp_path)], check=True)
    subprocess.run([str(tmp_path / "bin/python"), "-m", "pip", "install", "-q", str(wheel)], check=True)
    identity = Identity(name="self", command=(str(tmp_path / "bin/mcp-exec"),), python=str(tmp_path / "bin/python"))
    done = command("run", "-c", "import sys; print(*sys.version_info[:2], sep='.')", identity=identity)
    assert (done.returncode, done.stdout) == (0, f"{version}\n"), done.stderr
    with StdioClient(identity, {"MCP_EXEC_MEMROY": "64m"}) as client:
        assert client.run("import json; print(json.dumps({'a': input()}))", stdin="b").stdout == '{"a": "b"}\n'
    assert b"MCP_EXEC_MEMROY" in b"".join(client.log)


def test_policies_are_shown_with_their_reasons(tmp_path: Path) -> None:
    shown = json.loads(command("policy", "show").stdout)
    assert all(entry["comment"] for entry in shown["syscalls"])
    weaker = {**shown, "syscalls": [entry for entry in shown["syscalls"] if "ptrace" not in entry["names"]]}
    path = tmp_path / "weaker.json"
    path.write_text(json.dumps(weaker))
    for arguments, environ in ((("policy", "check", str(path)), {}), ((), {"MCP_EXEC_POLICY": str(path)})):
        done = command(*arguments, environ=environ)
        assert done.returncode == 2
        assert "ptrace" in done.stderr
    path.write_text("{")
    assert command("policy", "check", str(path)).returncode == 2


def test_a_system_that_is_not_linux_is_told_so() -> None:
    code = "import sys; sys.platform = 'darwin'\nfrom mcp_exec.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "mcp-exec: darwin is not Linux; the jail is made of Linux namespaces and seccomp\n"
