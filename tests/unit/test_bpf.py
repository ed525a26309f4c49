from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec import bpf, bpf_eval, floor
from mcp_exec.errors import ConfigError
from mcp_exec.policy_files import MACHINES, load_policy, packaged_policies, parse_rules, policies_dir

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
I386 = 0x40000003
BIT_32 = 1 << 32
DEFAULT = load_policy("default")
PROGRAMS = {machine: bpf_eval.decode(bpf.compile_policy(DEFAULT, machine)) for machine in MACHINES}
both_machines = pytest.mark.parametrize("machine", list(MACHINES))


def verdict(machine: str, name: str, *args: int) -> int:
    number = bpf.syscall_number(name, MACHINES[machine])
    assert number is not None
    return at_number(machine, number, *args)


def at_number(machine: str, number: int, *args: int) -> int:
    return bpf_eval.run(PROGRAMS[machine], arch=MACHINES[machine].audit_arch, nr=number, args=args)


def policy(*entries: dict[str, Any], default: str = "SCMP_ACT_ALLOW", **more: Any) -> dict[str, Any]:
    return {"defaultAction": default, "syscalls": list(entries), **more}


def without(name: str) -> dict[str, Any]:
    kept = [{**e, "names": [n for n in e["names"] if n != name]} for e in DEFAULT["syscalls"]]
    return {**DEFAULT, "syscalls": [entry for entry in kept if entry["names"]]}


@both_machines
def test_every_entry_of_the_default_denies_on_each_machine_that_has_the_call(machine: str) -> None:
    arch = MACHINES[machine].audit_arch
    for probe in floor.probes(machine):
        answer = bpf_eval.run(PROGRAMS[machine], arch=arch, nr=probe.nr, args=probe.args)
        assert answer & 0xFFFF0000 == ERRNO, probe


@both_machines
@pytest.mark.parametrize("entry", DEFAULT["syscalls"], ids=lambda entry: entry["names"][0])
def test_an_entry_answers_with_the_errno_it_states(machine: str, entry: dict[str, Any]) -> None:
    for name in entry["names"]:
        if not entry.get("args") and bpf.syscall_number(name, MACHINES[machine]) is not None:
            assert verdict(machine, name) == ERRNO | entry["errnoRet"], name


@both_machines
@pytest.mark.parametrize("name", [
    "read", "write", "openat", "mmap", "mprotect", "futex", "execve", "exit_group", "wait4", "kill", "prctl", "seccomp",
    "mbind", "get_mempolicy", "memfd_create", "landlock_create_ruleset", "landlock_restrict_self", "pidfd_open",
    "sched_setaffinity", "getrandom", "rseq", "set_robust_list", "fchmodat2", "connect", "sendmsg", "clone", "ioctl",
])  # fmt: skip
def test_ordinary_calls_are_allowed(machine: str, name: str) -> None:
    assert verdict(machine, name) == ALLOW


@both_machines
def test_threads_and_forks_start_but_clone_makes_no_namespace(machine: str) -> None:
    thread, fork = 0x3D0F00, 0x01200011
    assert verdict(machine, "clone", thread) == verdict(machine, "clone", fork) == ALLOW
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert verdict(machine, "clone", fork | 1 << bit) == ERRNO | errno.EPERM
    assert verdict(machine, "clone3") == ERRNO | errno.ENOSYS


@both_machines
@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x5423])
def test_terminal_injection_is_denied_whatever_the_high_bits_say(machine: str, request_number: int) -> None:
    for high in (0, BIT_32, 0xFFFFFFFF << 32):
        assert verdict(machine, "ioctl", 0, request_number | high) == ERRNO | errno.EPERM
    assert verdict(machine, "ioctl", 0, 0x5413) == ALLOW


@both_machines
@given(family=st.integers(0, 60), high=st.sampled_from([0, BIT_32, 1 << 63]))
def test_only_three_socket_families_pass(machine: str, family: int, high: int) -> None:
    expected = ALLOW if family in (1, 2, 10) and not high else ERRNO | errno.EAFNOSUPPORT
    assert verdict(machine, "socket", family | high, 1) == expected
    assert verdict(machine, "socketpair", family | high, 1) == expected


@both_machines
@given(kind=st.integers(0, 15), flags=st.sampled_from([0, 0o2000000, 0o4000, BIT_32]))
def test_only_three_socket_types_pass(machine: str, kind: int, flags: int) -> None:
    expected = ALLOW if kind in (1, 2, 5) else ERRNO | errno.EPERM
    assert verdict(machine, "socket", 2, kind | flags) == expected


@both_machines
@given(value=st.one_of(st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 0xFFFFFFFF, 8, 0x40000, 0x80000000])))
def test_personality_may_only_be_asked_or_reset(machine: str, value: int) -> None:
    expected = ALLOW if value in (0, 0xFFFFFFFF) else ERRNO | errno.EPERM
    assert verdict(machine, "personality", value) == verdict(machine, "personality", value | BIT_32) == expected


@both_machines
def test_devices_cannot_be_made_but_fifos_can(machine: str) -> None:
    for kind, expected in ((0o020000, ERRNO | 1), (0o060000, ERRNO | 1), (0o010000, ALLOW), (0o140000, ALLOW)):
        assert verdict(machine, "mknodat", 0, 0, kind | 0o666) == expected
        if machine == "x86_64":
            assert verdict(machine, "mknod", 0, kind | 0o666) == expected


@both_machines
def test_a_foreign_architecture_kills_the_process(machine: str) -> None:
    others = {I386, 0, *(m.audit_arch for m in MACHINES.values())} - {MACHINES[machine].audit_arch}
    for arch in others:
        assert bpf_eval.run(PROGRAMS[machine], arch=arch, nr=1) == KILL_PROCESS


@given(number=st.integers(0, 0x3FFFFFFF))
def test_x32_calls_are_denied(number: int) -> None:
    assert at_number("x86_64", 0x40000000 | number) == ERRNO | errno.EPERM


@both_machines
@pytest.mark.parametrize("number", [470, 511, 547, 0x3FFFFFFF, -1, -(1 << 31)])
def test_calls_newer_than_the_policy_do_not_exist(machine: str, number: int) -> None:
    assert at_number(machine, number) == ERRNO | errno.ENOSYS
    assert at_number(machine, bpf.HIGHEST_SYSCALL) == ALLOW


@both_machines
def test_an_allowlist_policy_loads_and_denies_the_rest(machine: str) -> None:
    listed = {"names": ["read", "futex", "mseal", "call_of_the_future"], "action": "SCMP_ACT_ALLOW"}
    program = bpf.compile_policy(policy(listed, default="SCMP_ACT_ERRNO", defaultErrnoRet=38), machine)
    target = MACHINES[machine]
    for name, expected in (("read", ALLOW), ("mseal", ALLOW), ("write", ERRNO | 38), ("listmount", ERRNO | 38)):
        number = bpf.syscall_number(name, target)
        assert number is not None
        assert bpf_eval.evaluate(program, arch=target.audit_arch, nr=number) == expected


def test_a_policy_in_the_manner_of_docker_loads() -> None:
    def allow(*names: str, args: Any = None, **when: Any) -> dict[str, Any]:
        return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": args, "comment": "", **when}

    cloning = [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    vsock = [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]
    entries = [
        allow("read", "write", "_newselect", "riscv_flush_icache_of_tomorrow", includes={}, excludes={}),
        allow("ptrace", includes={"minKernel": "4.8"}),
        *(allow("personality", args=[{"index": 0, "value": n, "op": "SCMP_CMP_EQ"}]) for n in (0, 8, 0xFFFFFFFF)),
        allow("clone", args=cloning, excludes={"caps": ["CAP_SYS_ADMIN"], "arches": ["s390", "s390x"]}),
        allow("clone", "mount", includes={"caps": ["CAP_SYS_ADMIN"]}),
        allow("socket", args=vsock),
    ]
    program = bpf.compile_policy(policy(*entries, default="SCMP_ACT_ERRNO", defaultErrnoRet=1), "x86_64")
    for number, args, expected in (
        (0, (), ALLOW), (135, (8,), ALLOW), (135, (9,), ERRNO | 1), (56, (0x3D0F00,), ALLOW),
        (56, (0x10000000,), ERRNO | 1), (165, (), ERRNO | 1), (41, (40,), ERRNO | 1), (41, (1,), ALLOW),
    ):  # fmt: skip
        assert bpf_eval.evaluate(program, arch=0xC000003E, nr=number, args=args) == expected, (number, args)


def test_entries_for_capabilities_and_other_machines_do_not_apply() -> None:
    ours = {"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64", "x32"]}}
    theirs = {"names": ["write"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}}
    capable = {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}}
    rules = parse_rules(policy(ours, theirs, capable), MACHINES["x86_64"])
    assert [rule.name for rule in rules] == ["read"]


@pytest.mark.parametrize("entry", [
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO"},
    {"names": ["mout"], "action": "SCMP_ACT_MAYBE"},
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0},
    {"names": ["mout"]},
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]},
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": -1, "op": "SCMP_CMP_EQ"}]},
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 0, "op": "EQ"}]},
    {"names": ["mout"], "action": "SCMP_ACT_ERRNO", "args": ["x"]},
])  # fmt: skip
def test_a_bad_entry_is_refused_by_name(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"syscalls\[0\] \(mout\)"):
        bpf.compile_policy(policy(entry), "x86_64")


@pytest.mark.parametrize("entry", ["read", None, {"action": "SCMP_ACT_ALLOW"}, {"names": [], "action": "SCMP_ACT_LOG"}])
def test_an_entry_without_names_is_refused_by_position(entry: Any) -> None:
    with pytest.raises(ConfigError, match=r"syscalls\[0\]"):
        bpf.compile_policy(policy(entry), "x86_64")


@pytest.mark.parametrize("conditional", [[], [{"index": 1, "value": 5, "op": "SCMP_CMP_EQ"}]])
def test_entries_that_contradict_each_other_are_refused(conditional: list[dict[str, Any]]) -> None:
    allowed = {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW"}
    denied = {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": conditional}
    for entries in ((allowed, denied), (denied, allowed)):
        with pytest.raises(ConfigError, match=r"\(ioctl\): contradicts"):
            bpf.compile_policy(policy(*entries, default="SCMP_ACT_KILL_PROCESS"), "x86_64")


def test_a_repeated_entry_changes_nothing() -> None:
    entry = {"names": ["mount", "memfd_secret", "statmount"], "action": "SCMP_ACT_ERRNO"}
    assert bpf.compile_policy(policy(entry, entry), "x86_64") == bpf.compile_policy(policy(entry), "x86_64")


def test_a_machine_without_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="riscv64"):
        bpf.compile_policy(DEFAULT, "riscv64")
    with pytest.raises(ConfigError, match="SCMP_ARCH_AARCH64"):
        bpf.compile_policy(policy(architectures=["SCMP_ARCH_X86_64"]), "aarch64")


@both_machines
def test_the_default_stands_on_its_own_floor(machine: str) -> None:
    floor.check_floor(DEFAULT, machine)


@both_machines
@pytest.mark.parametrize("name", sorted({name for entry in DEFAULT["syscalls"] for name in entry["names"]}))
def test_a_policy_that_drops_a_denial_is_refused_by_name(machine: str, name: str) -> None:
    if bpf.syscall_number(name, MACHINES[machine]) is None:
        return  # nothing to open on this machine
    with pytest.raises(ConfigError, match=rf"MCP_EXEC_POLICY: allows {name}\(") as refusal:
        floor.check_floor(without(name), machine)
    assert "\n" not in str(refusal.value)


def test_a_policy_that_compares_all_bits_of_an_ioctl_is_refused() -> None:
    naive = [{"index": 1, "value": value, "op": "SCMP_CMP_EQ"} for value in (0x5412, 0x541C, 0x5423)]
    weaker = without("ioctl")
    weaker["syscalls"].append({"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": naive})
    with pytest.raises(ConfigError, match=r"allows ioctl"):
        floor.check_floor(weaker, "x86_64")


def test_logging_a_call_is_not_denying_it() -> None:
    with pytest.raises(ConfigError, match="allows"):
        floor.check_floor(policy(default="SCMP_ACT_LOG"), "x86_64")


def test_a_policy_cannot_raise_the_ceiling() -> None:
    with pytest.raises(ConfigError, match=bpf.HIGHEST_KEY):
        floor.check_floor({**DEFAULT, bpf.HIGHEST_KEY: bpf.HIGHEST_SYSCALL + 1}, "x86_64")


def test_a_stricter_policy_stands_on_the_floor() -> None:
    floor.check_floor(
        policy({"names": ["read"], "action": "SCMP_ACT_ALLOW"}, default="SCMP_ACT_KILL_PROCESS"), "x86_64"
    )


def test_a_policy_is_loaded_by_name_or_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(DEFAULT))
    assert load_policy(str(file)) == DEFAULT
    assert (policies_dir() / "seccomp" / "default.json").is_file()
    assert "default" in packaged_policies()


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"[]", b"{}", b'{"defaultAction": "SCMP_ACT_ALLOW"}', b"[" * 200_000]
)
def test_an_unusable_policy_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^MCP_EXEC_POLICY: ") as refusal:
        load_policy(str(file))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["", "nothing", "../seccomp/default", "/dev/zero", "a\nb", "a\0b"])
def test_a_policy_that_is_no_file_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^MCP_EXEC_POLICY: ") as refusal:
        load_policy(name)
    assert "\n" not in str(refusal.value)
