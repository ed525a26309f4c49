"""Every entry of the default policy is exercised by a real call in a jail, with arguments that are harmless if it passed.

A second policy is the same but for the errno, which is one that the kernel never gives for these calls: what answers
with it was answered by the filter and by nothing else.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyseccomp
import pytest
from support.client import StdioClient, own_identity

from mcp_exec.policy_files import load_policy

MARK = 124  # EMEDIUMTYPE
POLICY = load_policy("default")
BAD = (1 << 64) - 1  # a descriptor, pointer, pid or length that is nothing


def number_of(name: str) -> int | None:
    try:
        found = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    except (OSError, ValueError):
        return None
    return int(found) if found >= 0 else None


def arguments_of(condition: dict[str, Any] | None) -> list[int]:
    words = [BAD] * 6
    if condition is not None:
        value = condition["value"] if "MASKED" not in condition["op"] else condition["valueTwo"]
        words[condition["index"]] = value + 1 if condition["op"] == "SCMP_CMP_GT" else value
    return words


def cases() -> Iterator[tuple[str, list[int], int]]:
    """(name, arguments, errno of the policy); one per name and condition that this machine has."""
    for entry in POLICY["syscalls"]:
        for name in entry["names"]:
            for condition in entry.get("args") or [None]:
                words = arguments_of(condition)
                if name in {"socket", "socketpair"} and condition is not None and condition["index"] == 1:
                    words[0] = 2
                elif name in {"socket", "socketpair"}:
                    words[1] = 1
                yield name, words, entry["errnoRet"]


CASES = [(name, number, words, errno) for name, words, errno in cases() if (number := number_of(name)) is not None]
PROGRAM = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
seen = []
for number, words in json.load(sys.stdin):
    ctypes.set_errno(0)
    pid = os.fork()
    if pid == 0:
        result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, words))
        os._exit(ctypes.get_errno() if result == -1 else 0)
    seen.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(seen))
"""


def answers(environ: dict[str, str]) -> list[int]:
    with StdioClient(own_identity(), environ) as client:
        found: list[int] = client.probe(PROGRAM, stdin=json.dumps([case[1:3] for case in CASES]), timeout_s=120)
    return found


@pytest.fixture(scope="module")
def marked_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    marked = json.loads(json.dumps(POLICY))
    for entry in marked["syscalls"]:
        entry["errnoRet"] = MARK
    path = tmp_path_factory.mktemp("policy") / "marked.json"
    path.write_text(json.dumps(marked))
    return path


def test_every_entry_gives_its_errno() -> None:
    seen = answers({})
    wrong = {
        (name, tuple(words)): (found, errno)
        for (name, _, words, errno), found in zip(CASES, seen, strict=True)
        if found != errno
    }
    assert wrong == {}


def test_it_is_the_filter_that_answers(marked_policy: Path) -> None:
    seen = answers({"MCP_EXEC_POLICY": str(marked_policy)})
    wrong = {
        (name, tuple(words)): found for (name, _, words, _), found in zip(CASES, seen, strict=True) if found != MARK
    }
    assert wrong == {}


def test_every_name_of_this_architecture_is_among_the_cases() -> None:
    names = {name for entry in POLICY["syscalls"] for name in entry["names"]}
    missing = {name for name in names if number_of(name) is None}
    assert {name for name, *_ in CASES} == names - missing
    assert missing <= {
        "vm86",
        "vm86old",
        "open_tree_attr",
        "statmount",
        "listmount",
        "quotactl_fd",
        "process_mrelease",
        "memfd_secret",
    }


@pytest.mark.parametrize("number", [470, 600, 1023])
def test_calls_newer_than_the_policy_do_not_exist(number: int) -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_PREIMPORT": ""}) as client:
        program = (
            f"import ctypes; l = ctypes.CDLL(None, use_errno=True); l.syscall({number}); print(ctypes.get_errno())"
        )
        assert client.run(program).stdout == "38\n"


def test_the_machine_is_one_that_the_policy_knows() -> None:
    assert platform.machine() in {"x86_64", "aarch64"}
    assert os.uname().sysname == "Linux"
