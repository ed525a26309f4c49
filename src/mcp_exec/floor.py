"""[server] The floor: whatever the packaged default denies, an operator's own policy must deny too.

The policy's text is not compared, its compiled program is asked: each condition of the default becomes a few probes
(a call that must be denied), and the evaluator gives the verdict. How it is denied is the operator's choice.
Probes are samples. They find an opened call or flag, not a hand-made hole at one odd value.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec import bpf, bpf_eval
from mcp_exec.errors import ConfigError
from mcp_exec.policy_files import Condition, Rule, find_machine, load_policy, parse_rules

_ACTION_MASK: Final = 0xFFFF0000
# KILL_PROCESS, KILL_THREAD, TRAP, ERRNO. Not LOG, TRACE and NOTIFY: those let the call happen.
_DENIALS: Final = frozenset({0x80000000, 0x00000000, 0x00030000, 0x00050000})
_ALL_BITS: Final = (1 << 64) - 1
# What the arguments without a condition hold: a policy that opens a call for some of them opens it. 1 and 2 are also
# valid families and socket types, 3 is SOCK_RAW, 16 is AF_NETLINK.
_FILLS: Final = (0, 1, 2, 3, 16, _ALL_BITS)
_FAMILIES: Final = 48  # above AF_MAX: a "greater than" on a family is probed at each of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One system call that must be denied, and the entry of the default policy that says so."""

    label: str
    name: str
    nr: int
    args: tuple[int, ...]


def probes(machine: str = platform.machine()) -> Iterator[Probe]:
    """Calls that the packaged default denies on `machine`."""
    target = find_machine(machine)
    for rule in parse_rules(load_policy("default"), target):
        number = bpf.syscall_number(rule.name, target)
        if number is None:
            continue
        for args in _arguments(rule):
            yield Probe(label=rule.label, name=rule.name, nr=number, args=args)


def check_floor(policy: Mapping[str, Any], machine: str = platform.machine()) -> None:
    """Raises ConfigError naming the call if `policy` allows what the packaged default denies."""
    instructions = bpf_eval.decode(bpf.compile_policy(policy, machine))
    arch = find_machine(machine).audit_arch
    for probe in probes(machine):
        verdict = bpf_eval.run(instructions, arch=arch, nr=probe.nr, args=probe.args)
        if verdict & _ACTION_MASK not in _DENIALS:
            shown = ", ".join(hex(value) for value in probe.args)
            raise ConfigError(
                f"MCP_EXEC_POLICY: allows {probe.name}({shown}), which the floor denies: default {probe.label}"
            )


def _arguments(rule: Rule) -> Iterator[tuple[int, ...]]:
    for fill in _FILLS:
        plain = [fill] * bpf_eval.ARG_COUNT
        if not rule.conditions:
            yield tuple(plain)
        # The default has one condition per rule; with more, the others keep their first value.
        for condition in rule.conditions:
            for other in rule.conditions:
                plain[other.index] = _matching(other)[0]
            for value in _matching(condition):
                yield tuple(value if i == condition.index else kept for i, kept in enumerate(plain))


def _matching(condition: Condition) -> tuple[int, ...]:
    """Values for which `condition` holds, with the bits that do not count both clear and set."""
    value, two = condition.value, condition.value_two
    match condition.op:
        case "SCMP_CMP_EQ":
            return (value,)
        case "SCMP_CMP_MASKED_EQ":
            return (two, two | (_ALL_BITS & ~value), two | (1 << 32 & ~value))
        case "SCMP_CMP_GT":
            return (*range(value + 1, value + _FAMILIES), value | 1 << 32, 1 | 1 << 32, _ALL_BITS)
        case "SCMP_CMP_GE":
            return (value, value + 1, _ALL_BITS)
        case "SCMP_CMP_LT" | "SCMP_CMP_LE":
            return (0, value - 1)
        case _:
            return (value ^ 1, value ^ 1 << 32)
