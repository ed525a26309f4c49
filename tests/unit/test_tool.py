from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec.answer import to_call_result
from mcp_exec.config import load_config
from mcp_exec.errors import InvalidInput
from mcp_exec.model import ExecResult, SandboxFacts, Usage
from mcp_exec.tool import describe, parse_arguments

CONFIG = load_config({})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["code", "timeout_s", "stdin", "task_progress", "x"]), JSON))
def test_any_arguments_are_a_request_or_a_refusal(arguments: dict[str, Any]) -> None:
    try:
        request = parse_arguments(arguments, CONFIG)
    except InvalidInput as refusal:
        assert str(refusal)
        assert "\n" not in str(refusal)
        return
    assert request.code.strip()
    assert 1 <= request.timeout_s <= CONFIG.max_timeout_s


@pytest.mark.parametrize(
    ("given_s", "taken"), [(None, 30), (0, 30), (1, 1), (-3, 1), (300, 300), (301, 300), (10**30, 300)]
)
def test_timeouts_are_clamped(given_s: int | None, taken: int) -> None:
    assert parse_arguments({"code": "1", "timeout_s": given_s}, CONFIG).timeout_s == taken


@pytest.mark.parametrize("count", [0, 1, 500])
def test_the_description_fits_whatever_is_installed(count: int) -> None:
    libraries = (*((f"library-{n}", "1." * 40) for n in range(count)), ("numpy", "2.0"))
    facts = SandboxFacts(
        python_version="3.11.7", libraries=libraries, walls="w" * 150, limits="l" * 110, workspace_bytes=64 << 20
    )
    text = describe(CONFIG, facts)
    assert len(text) < 1500
    assert "numpy 2.0" in text


def test_long_text_is_shortened_and_the_fields_stay_whole() -> None:
    result = ExecResult(
        stdout="x" * 10**6,
        stderr="e",
        exit_code=0,
        duration_ms=1,
        truncated=False,
        timed_out=False,
        usage=Usage(jail="namespaces"),
    )
    answer = to_call_result(result)
    assert len(answer.content[0].text) < 110_000  # type: ignore[union-attr]
    assert json.loads(answer.content[0].text)["stderr"] == "e"  # type: ignore[union-attr]
    assert answer.structured_content == result.structured()


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["\0", "é", '"', "\\", "x\n"]).map(
    lambda one: one * 3000
)


@given(TEXT, TEXT, st.booleans(), st.integers(5000, 40_000))
def test_an_answer_fits_and_is_said_to_be_cut(stdout: str, stderr: str, killed: bool, most: int) -> None:
    last = "\nmcp-exec: the memory limit of 64 MiB ended the run\n" if killed else ""
    result = ExecResult(
        stdout=stdout,
        stderr=stderr + last,
        exit_code=0,
        duration_ms=1,
        truncated=False,
        timed_out=False,
        usage=Usage(jail="namespaces"),
    )
    answer = to_call_result(result, most)
    assert len(answer.model_dump_json(by_alias=True).encode()) <= most
    fields: dict[str, Any] = answer.structured_content or {}
    assert fields["stderr"].endswith(last)
    assert stdout.startswith(fields["stdout"])
    assert fields["truncated"] == (fields != result.structured())
