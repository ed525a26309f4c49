from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from support.client import ROOT, StdioClient, own_identity

PACKAGE = ROOT / "src/mcp_exec"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
ZONES = {"leaf", "server", "launcher", "init", "payload"}
#: What runs in the sandbox's interpreter, which has none of the server's packages.
INSIDE = [
    name
    for name in MODULES
    if name.startswith(("jail/", "payload/"))
    or name
    in {"launcher/main.py", "launcher/imports.py", "launcher/pages.py", "launcher/wire.py", "launcher/__init__.py"}
]
NEVER_INSIDE = {
    "asyncio",
    "anyio",
    "mcp",
    "logging",
    "threading",
    "pickle",
    "multiprocessing",
    "concurrent",
    "subprocess",
}
SHARED_IN_JAIL = {"mcp_exec.jail.spec", "mcp_exec.jail.stage", "mcp_exec.jail.syscalls"}
MECHANISMS = {"namespaces", "mounts", "descriptors", "privileges", "rlimits", "landlock", "seccomp", "share", "ending"}
LEAVES = {"model.py", "errors.py", "address.py", "config.py", "variables.py", "kernel.py", "limits.py"}


def imports_of(name: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found.add(node.module or "")
            if node.module in {"mcp_exec", "mcp_exec.jail", "mcp_exec.launcher"}:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def zones_of(name: str) -> set[str]:
    words = ast.get_docstring(ast.parse((PACKAGE / name).read_text())) or ""
    assert words.startswith("["), f"{name}: the docstring must begin with its zone"
    return set(words[1 : words.index("]")].split(", "))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__init__.py")])
def test_every_module_says_in_which_process_it_runs(name: str) -> None:
    zones = zones_of(name)
    assert zones
    assert zones <= ZONES
    assert ("server" in zones or "leaf" in zones) or name in INSIDE


@pytest.mark.parametrize("name", INSIDE)
def test_what_runs_inside_needs_the_standard_library_only(name: str) -> None:
    outside = {module.partition(".")[0] for module in imports_of(name)} - set(sys.stdlib_module_names)
    assert outside <= {"mcp_exec", "unshare"}
    assert not {module.partition(".")[0] for module in imports_of(name)} & NEVER_INSIDE
    ours = {module for module in imports_of(name) if module.startswith("mcp_exec.")}
    assert all(module.startswith(("mcp_exec.jail", "mcp_exec.payload", "mcp_exec.launcher")) for module in ours)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_mechanisms_do_not_import_each_other(name: str) -> None:
    ours = {module for module in imports_of(f"jail/{name}.py") if module.startswith("mcp_exec.")}
    assert ours - {"mcp_exec.jail"} <= SHARED_IN_JAIL


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_leaves_import_leaves(name: str) -> None:
    ours = {module for module in imports_of(name) if module.startswith("mcp_exec")}
    assert ours <= {"mcp_exec.errors", "mcp_exec.model", "mcp_exec.address", "mcp_exec.config", "mcp_exec.variables"}


def test_ctypes_is_in_one_file() -> None:
    users = {name for name in MODULES if any(module.partition(".")[0] == "ctypes" for module in imports_of(name))}
    assert users == {"jail/syscalls.py", "jail/probe.py"}  # the probe is a program that stands alone


def test_the_server_imports_of_the_jail_only_values_and_calls() -> None:
    for name in set(MODULES) - set(INSIDE):
        used = {module for module in imports_of(name) if module.startswith("mcp_exec.jail.")}
        assert used <= SHARED_IN_JAIL, name


def test_enter_stays_a_screenful() -> None:
    assert len((PACKAGE / "jail/enter.py").read_text().splitlines()) <= 90


def test_a_running_launcher_has_loaded_none_of_what_is_forbidden() -> None:
    with StdioClient(own_identity(), {"MCP_EXEC_PREIMPORT": ""}) as client:
        loaded = set(client.probe("import json, sys; print(json.dumps(sorted(sys.modules)))"))
    assert {"ctypes", "select"} <= loaded  # the launcher's own are seen: the control
    assert not {name.partition(".")[0] for name in loaded} & NEVER_INSIDE


def test_no_absolute_path_of_a_machine_and_no_registry_is_named() -> None:
    texts = [
        path
        for pattern in ("*.md", "*.toml", "Makefile", "src/**/*.py", "tests/**/*.py", "docs/**/*.md")
        for path in ROOT.glob(pattern)
    ]
    for path in texts:
        text = path.read_text()
        assert str(ROOT) not in text, path
        assert "index-" + "url" not in text, path


@pytest.mark.parametrize("name", MODULES)
def test_files_stay_small(name: str) -> None:
    assert len((PACKAGE / name).read_text().splitlines()) <= 240
    assert Path(name).suffix == ".py"
