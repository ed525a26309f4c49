"""[server] Finds, reads and parses policy files: data only, packaged in the wheel or named by the operator.

Files in the OCI format (runtime-spec config-linux.md, "Seccomp"), and Docker's variant of it, become flat rules here.
What the rules turn into is bpf.py's business.
"""

from __future__ import annotations

import errno
import importlib.resources
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from mcp_exec.errors import ConfigError

VARIABLE: Final = "MCP_EXEC_POLICY"
# Docker's profile is 15 KiB; anything far beyond is not a policy, and is read whole into memory.
_MAX_BYTES: Final = 1 << 20

# SECCOMP_RET_* of <linux/seccomp.h>. TRACE and NOTIFY are left out: the jail has nobody to answer them.
_ACTIONS: Final = {
    "SCMP_ACT_ALLOW": 0x7FFF0000,
    "SCMP_ACT_LOG": 0x7FFC0000,
    "SCMP_ACT_KILL": 0x00000000,
    "SCMP_ACT_KILL_THREAD": 0x00000000,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
    "SCMP_ACT_TRAP": 0x00030000,
}
_OPS: Final = frozenset(f"SCMP_CMP_{op}" for op in ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One architecture as OCI, Docker's profile and the kernel name it; libseccomp uses the kernel's AUDIT_ARCH too."""

    oci: str
    docker: str
    audit_arch: int


MACHINES: Final = {
    "x86_64": Machine(oci="SCMP_ARCH_X86_64", docker="amd64", audit_arch=0xC000003E),
    "aarch64": Machine(oci="SCMP_ARCH_AARCH64", docker="arm64", audit_arch=0xC00000B7),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison on one argument; for SCMP_CMP_MASKED_EQ `value` is the mask and `value_two` the datum."""

    index: int
    op: str
    value: int
    value_two: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One system call and its action; all `conditions` must hold. `label` names the entry for a person."""

    label: str
    name: str
    action: int
    conditions: tuple[Condition, ...]


def find_machine(machine: str) -> Machine:
    """The architecture of a uname(2) machine name; ConfigError if mcp-exec has no policy for it."""
    if machine not in MACHINES:
        raise ConfigError(f"seccomp policy: machine {machine!r} is not one of {', '.join(MACHINES)}")
    return MACHINES[machine]


def policies_dir() -> Traversable:
    """The directory `policies`: inside the installed package, or at the top of an editable checkout."""
    packaged = importlib.resources.files("mcp_exec") / "policies"
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[2] / "policies"


def packaged_policies() -> tuple[str, ...]:
    """Names that `load_policy` accepts besides paths, sorted."""
    files = (policies_dir() / "seccomp").iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json")))


def load_policy(name_or_path: str) -> dict[str, Any]:
    """The seccomp policy (OCI format) of a packaged name such as `default`, or of a path to a JSON file.

    Raises ConfigError (one line, names MCP_EXEC_POLICY) if it is unreadable, not JSON, or not a policy's shape.
    """
    text = _read(_locate(name_or_path), name_or_path)
    try:
        policy = json.loads(text)
    # Deep nesting ends in RecursionError, not in a ValueError.
    except (ValueError, RecursionError) as error:
        raise _refused(name_or_path, f"is not JSON ({error})") from error
    return _shaped(policy, name_or_path)


def _locate(name_or_path: str) -> Traversable:
    # A name never contains a separator, so it cannot reach outside the packaged directory.
    if "/" not in name_or_path and name_or_path in packaged_policies():
        return policies_dir() / "seccomp" / f"{name_or_path}.json"
    return Path(name_or_path)


def _read(file: Traversable, name_or_path: str) -> str:
    try:
        # A FIFO would block the start and a device has no end: only plain files are policies.
        if not file.is_file():
            raise _refused(name_or_path, f"is neither a file nor one of: {', '.join(packaged_policies())}")
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise _refused(name_or_path, f"is larger than {_MAX_BYTES} bytes")
        return content.decode("utf-8")
    except OSError as error:
        raise _refused(name_or_path, f"cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise _refused(name_or_path, f"cannot be read ({error})") from error


def _shaped(policy: object, name_or_path: str) -> dict[str, Any]:
    if not isinstance(policy, dict):
        raise _refused(name_or_path, "must be a JSON object")
    if not isinstance(policy.get("defaultAction"), str):
        raise _refused(name_or_path, "must have a defaultAction such as SCMP_ACT_ERRNO")
    if not isinstance(policy.get("syscalls"), list):
        raise _refused(name_or_path, "must have a list named syscalls")
    return policy


def _refused(name_or_path: str, reason: str) -> ConfigError:
    return ConfigError(" ".join(f"{VARIABLE}: {name_or_path!r} {reason}".split()))


def parse_rules(policy: Mapping[str, Any], machine: Machine) -> Iterator[Rule]:
    """The rules of the entries that apply to `machine`, in the policy's order; ConfigError names a bad entry."""
    entries = policy.get("syscalls", [])
    if not isinstance(entries, list):
        raise ConfigError("seccomp policy: syscalls must be a list")
    for position, entry in enumerate(entries):
        label = _label(position, entry)
        try:
            if _applies(entry, machine):
                yield from _rules_of(entry, label, policy)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"seccomp policy: {label}: {type(error).__name__}: {error}") from error


def parse_action(name: Any, errno_ret: Any) -> int:
    """The SECCOMP_RET_* value of an OCI action; ValueError if it has none."""
    if name == "SCMP_ACT_ERRNO":
        number = errno.EPERM if errno_ret is None else errno_ret
        # errno 0 would report success without doing anything.
        if type(number) is not int or not 0 < number < 4096:
            raise ValueError(f"errnoRet {number!r} is not an errno")
        return 0x00050000 | number
    if name not in _ACTIONS:
        raise ValueError(f"action {name!r} is not SCMP_ACT_ERRNO or one of {', '.join(_ACTIONS)}")
    return _ACTIONS[name]


def _label(position: int, entry: Any) -> str:
    names = entry.get("names") if isinstance(entry, Mapping) else None
    first = names[0] if isinstance(names, list) and names else "?"
    return f"syscalls[{position}] ({first})"


def _applies(entry: Mapping[str, Any], machine: Machine) -> bool:
    """Docker's profile is not plain OCI: it includes entries by capability (we hold none) and by architecture."""
    includes, excludes = entry.get("includes") or {}, entry.get("excludes") or {}
    if includes.get("caps") or machine.docker in excludes.get("arches", ()):
        return False
    return machine.docker in includes.get("arches", (machine.docker,))


def _rules_of(entry: Mapping[str, Any], label: str, policy: Mapping[str, Any]) -> Iterator[Rule]:
    action = parse_action(entry["action"], entry.get("errnoRet", policy.get("defaultErrnoRet")))
    conditions = tuple(_condition(arg) for arg in entry.get("args") or ())
    # As runc does: an argument that occurs twice cannot be meant as "and" (libseccomp has no such rule), it means "or".
    repeated = len({condition.index for condition in conditions}) < len(conditions)
    groups = [(condition,) for condition in conditions] if repeated else [conditions]
    names = entry["names"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("names must be a list of system calls")
    for name in names:
        for group in groups:
            yield Rule(label=f"{label.partition(' ')[0]} ({name})", name=name, action=action, conditions=group)


def _condition(arg: Mapping[str, Any]) -> Condition:
    condition = Condition(index=arg["index"], op=arg["op"], value=arg["value"], value_two=arg.get("valueTwo", 0))
    numbers = (condition.index, condition.value, condition.value_two)
    if condition.op not in _OPS or not all(type(n) is int and 0 <= n < 1 << 64 for n in numbers):
        raise ValueError(f"bad comparison {dict(arg)}")
    if condition.index > 5:
        raise ValueError("a system call has arguments 0 to 5")
    return condition
