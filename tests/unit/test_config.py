from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec.config import Config, load_config
from mcp_exec.errors import ConfigError

NAMES = [field.name for field in dataclasses.fields(Config)]
README = Path(__file__).parents[2] / "README.md"


def test_the_defaults_are_those_of_the_contract() -> None:
    config = load_config({})
    assert (config.default_timeout_s, config.max_timeout_s) == (30, 300)
    assert (config.max_output_bytes, config.max_stdin_bytes) == (1 << 20, 1 << 20)
    assert (config.memory_bytes, config.pids, config.cpus, config.workspace_bytes) == (512 << 20, 128, 1.0, 64 << 20)
    assert config.python.is_absolute()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64m", 64 << 20),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("1g", 1 << 30),
        ("67108864", 64 << 20),
        (" 70000k ", 70000 << 10),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert load_config({"MCP_EXEC_MEMORY": text}).memory_bytes == size


def test_an_empty_value_is_the_default_and_an_empty_list_is_empty() -> None:
    config = load_config({"MCP_EXEC_PIDS": "", "MCP_EXEC_PREIMPORT": ""})
    assert config.pids == 128
    assert config.preimport == ()


@given(
    st.sampled_from(
        [
            "PIDS",
            "MEMORY",
            "CPUS",
            "TRANSPORT",
            "JAIL",
            "REQUIRE",
            "PREIMPORT",
            "DEFAULT_TIMEOUT_S",
            "PYTHON",
            "LOG_LEVEL",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)
def test_any_value_is_taken_or_refused_by_name(name: str, value: str) -> None:
    try:
        load_config({f"MCP_EXEC_{name}": value})
    except ConfigError as error:
        assert f"MCP_EXEC_{name}" in str(error)
        assert "\n" not in str(error)


def test_a_variable_that_means_nothing_is_told() -> None:
    config = load_config({"MCP_EXEC_MEMROY": "64m", "MCP_EXEC_PIDS": "9", "PATH": "/bin", "MCP_EXEC_": "1"})
    assert config.unknown == ("MCP_EXEC_", "MCP_EXEC_MEMROY")
    assert load_config({f"MCP_EXEC_{name.upper()}": "" for name in ("pids", "cgroup", "addr", "warm")}).unknown == ()


def test_the_token_is_not_shown() -> None:
    assert "hidden" not in repr(load_config({"MCP_EXEC_AUTH_TOKEN": "hidden"}))


def test_the_readme_names_every_variable_that_has_an_effect() -> None:
    readme = README.read_text()
    later = {"UNKNOWN"}
    renamed = {"memory_bytes": "MEMORY", "workspace_bytes": "WORKSPACE"}
    variables = {renamed.get(name, name.upper()) for name in NAMES} - later
    assert {name for name in variables if f"MCP_EXEC_{name}" not in readme} == set()
