from __future__ import annotations

from typing import Any

import pytest

from mcp_exec.bpf import syscall_number
from mcp_exec.policy_files import MACHINES, load_policy, packaged_policies, parse_rules

POLICIES = packaged_policies()


def entries(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_policy(name)["syscalls"]
    return found


def test_a_default_policy_is_packaged() -> None:
    assert "default" in POLICIES


@pytest.mark.parametrize("name", POLICIES)
def test_every_entry_gives_its_reason(name: str) -> None:
    silent = [entry["names"] for entry in entries(name) if len(entry.get("comment", "").split()) < 3]
    assert not silent


@pytest.mark.parametrize("name", POLICIES)
def test_every_denial_states_its_errno(name: str) -> None:
    denials = [entry for entry in entries(name) if entry["action"] == "SCMP_ACT_ERRNO"]
    assert all(isinstance(entry.get("errnoRet"), int) for entry in denials)


@pytest.mark.parametrize("name", POLICIES)
def test_no_name_has_two_unconditional_entries(name: str) -> None:
    names = [syscall for entry in entries(name) if not entry.get("args") for syscall in entry["names"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", POLICIES)
def test_every_entry_but_x86_relics_exists_somewhere(name: str) -> None:
    relics = {"vm86", "vm86old"}  # 32-bit x86 only: named so that a reader does not miss them
    for machine in MACHINES.values():
        for rule in parse_rules(load_policy(name), machine):
            numbers = [syscall_number(rule.name, other) for other in MACHINES.values()]
            assert rule.name in relics or any(number is not None for number in numbers), rule.label
