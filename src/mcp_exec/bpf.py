"""[server] Seccomp policy (OCI JSON) -> program for the kernel (array of struct sock_filter).

libseccomp, through pyseccomp, compiles what it knows. A short prologue of our own goes before its program and answers
what libseccomp cannot express, in this order: foreign architecture -> killed; x32 -> EPERM; numbers above the highest
one the policy knows -> ENOSYS; system calls newer than the installed libseccomp, by number.
Formats: runtime-spec config-linux.md "Seccomp", seccomp(2). Jumps are relative, so the two parts simply concatenate.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyseccomp  # type: ignore[import-untyped]  # ships no stubs

from mcp_exec.errors import ConfigError
from mcp_exec.policy_files import MACHINES, Machine, Rule, find_machine, parse_action, parse_rules

# Linux 6.17. A call that is newer than the policy has been judged by nobody: it does not exist in the jail.
HIGHEST_SYSCALL: Final = 469
HIGHEST_KEY: Final = "mcpExecHighestSyscall"

# From 424 on numbers are the same on all architectures. An old libseccomp lacks these names: without the table a
# denylist would drop its denial silently.
_NEWER: Final = {
    "process_mrelease": 448, "memfd_secret": 447, "quotactl_fd": 443, "mount_setattr": 442, "process_madvise": 440,
    "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455,
    "futex_requeue": 456, "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
    "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}  # fmt: skip

_OPS: Final = {
    "SCMP_CMP_NE": pyseccomp.NE,
    "SCMP_CMP_LT": pyseccomp.LT,
    "SCMP_CMP_LE": pyseccomp.LE,
    "SCMP_CMP_EQ": pyseccomp.EQ,
    "SCMP_CMP_GE": pyseccomp.GE,
    "SCMP_CMP_GT": pyseccomp.GT,
    "SCMP_CMP_MASKED_EQ": pyseccomp.MASKED_EQ,
}
_X32_BIT: Final = 0x40000000
_NEGATIVE: Final = 0x80000000
_JEQ, _JGT, _JGE, _LD, _RET = 0x15, 0x25, 0x35, 0x20, 0x06
_NR_OFFSET, _ARCH_OFFSET = 0, 4
_MAX_BYTES: Final = 4096 * 8  # BPF_MAXINSNS


def syscall_number(name: str, machine: Machine) -> int | None:
    """The number of `name`, None where the architecture has no such call; ConfigError for an unknown name."""
    number = int(pyseccomp.resolve_syscall(machine.audit_arch, name))
    if number == -1:
        number = _NEWER.get(name, -1)
    if number == -1:
        raise ConfigError(f"seccomp policy: {name!r} is not a system call that libseccomp or mcp-exec knows")
    # libseccomp numbers calls of other architectures below -1.
    return number if number >= 0 else None


def compile_policy(policy: Mapping[str, Any], machine: str = platform.machine()) -> bytes:
    """The program of `policy` for `machine`, 8 bytes per instruction, ready for seccomp(SECCOMP_SET_MODE_FILTER).

    Raises ConfigError that names the entry which cannot be compiled.
    """
    target = find_machine(machine)
    architectures = policy.get("architectures")  # absent in Docker's profile, which has an archMap
    if architectures is not None and (not isinstance(architectures, list) or target.oci not in architectures):
        raise ConfigError(f"seccomp policy: architectures does not list {target.oci}")
    try:
        default = parse_action(policy.get("defaultAction"), policy.get("defaultErrnoRet"))
    except ValueError as error:
        raise ConfigError(f"seccomp policy: defaultAction: {error}") from error
    rules = tuple(parse_rules(policy, target))
    _refuse_conflicts(rules)
    compiled = _new_filter(default, target)
    newer: dict[int, int] = {}
    for rule in rules:
        _add(compiled, newer, rule, default, target)
    program = _prologue(target, _ceiling(policy), newer) + _export(compiled)
    if len(program) > _MAX_BYTES:
        raise ConfigError(f"seccomp policy: {len(program) // 8} instructions, the kernel takes {_MAX_BYTES // 8}")
    return program


def _refuse_conflicts(rules: Sequence[Rule]) -> None:
    """libseccomp lets one of two contradicting rules win in silence: an allow swallows a denial by argument."""
    general: dict[str, int] = {rule.name: rule.action for rule in rules if not rule.conditions}
    exact: dict[tuple[str, object], int] = {}
    for rule in rules:
        first = exact.setdefault((rule.name, rule.conditions), rule.action)
        if rule.action != first or general.get(rule.name, rule.action) != rule.action:
            raise ConfigError(f"seccomp policy: {rule.label}: contradicts another entry for {rule.name!r}")


def _ceiling(policy: Mapping[str, Any]) -> int:
    highest = policy.get(HIGHEST_KEY, HIGHEST_SYSCALL)
    # Lower is the operator's choice; higher would open calls that this version has never judged.
    if type(highest) is not int or not 0 < highest <= HIGHEST_SYSCALL:
        raise ConfigError(f"seccomp policy: {HIGHEST_KEY} {highest!r} is not a number from 1 to {HIGHEST_SYSCALL}")
    return highest


def _new_filter(default: int, target: Machine) -> pyseccomp.SyscallFilter:
    compiled = pyseccomp.SyscallFilter(default)
    if target.audit_arch != pyseccomp.system_arch():
        compiled.add_arch(target.audit_arch)
        compiled.remove_arch(pyseccomp.system_arch())
    compiled.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    return compiled


def _add(compiled: pyseccomp.SyscallFilter, newer: dict[int, int], rule: Rule, default: int, target: Machine) -> None:
    try:
        number = syscall_number(rule.name, target)
    except ConfigError as error:
        # Allowing a name nobody knows opens nothing; failing to deny one would.
        if rule.action == pyseccomp.ALLOW:
            return
        raise ConfigError(f"seccomp policy: {rule.label}: unknown system call {rule.name!r}") from error
    if number is None or rule.action == default:  # libseccomp refuses rules that say what the default says
        return
    if int(pyseccomp.resolve_syscall(target.audit_arch, rule.name)) == -1:
        if rule.conditions:
            raise ConfigError(f"seccomp policy: {rule.label}: args need a libseccomp that knows {rule.name!r}")
        newer.setdefault(number, rule.action)
        return
    # libseccomp takes the number of the machine it runs on and translates it to the filter's architecture.
    native = int(pyseccomp.resolve_syscall(pyseccomp.system_arch(), rule.name))
    args = [pyseccomp.Arg(c.index, _OPS[c.op], c.value, c.value_two) for c in rule.conditions]
    try:
        compiled.add_rule_exactly(rule.action, native, *args)
    except FileExistsError:
        return  # the same rule twice; contradictions were refused before
    except (OSError, ValueError) as error:
        raise ConfigError(f"seccomp policy: {rule.label}: libseccomp refuses the rule ({error})") from error


def _prologue(target: Machine, ceiling: int, newer: Mapping[int, int]) -> bytes:
    no_such_call, denied = pyseccomp.ERRNO(errno.ENOSYS), pyseccomp.ERRNO(errno.EPERM)
    lines = [(_LD, 0, 0, _ARCH_OFFSET), (_JEQ, 1, 0, target.audit_arch), (_RET, 0, 0, pyseccomp.KILL_PROCESS)]
    lines.append((_LD, 0, 0, _NR_OFFSET))
    if target is MACHINES["x86_64"]:
        # syscall(-1) is no x32 call: a plain ENOSYS, as without a filter.
        lines += [(_JGE, 0, 1, _NEGATIVE), (_RET, 0, 0, no_such_call), (_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, denied)]
    lines += [(_JGT, 0, 1, ceiling), (_RET, 0, 0, no_such_call)]
    for number, action in newer.items():
        lines += [(_JEQ, 0, 1, number), (_RET, 0, 0, action)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _export(compiled: pyseccomp.SyscallFilter) -> bytes:
    # libseccomp writes only to a descriptor; memory, because a temporary directory may be missing or full.
    with os.fdopen(os.memfd_create("mcp-exec-bpf", os.MFD_CLOEXEC), "r+b", buffering=0) as file:
        compiled.export_bpf(file)
        file.seek(0)
        return bytes(file.readall())
