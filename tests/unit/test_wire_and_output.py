from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec.causes import cannot_jail
from mcp_exec.errors import CannotJail
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail.stage import RECORD, Stage
from mcp_exec.launcher import wire
from mcp_exec.output import Output


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    for decode in (wire.decode_run, wire.decode_answer, wire.Hello.decode):
        with contextlib.suppress(wire.WireError):
            decode(data)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_messages_come_back_as_they_went(slot: int, pid: int, errno: int) -> None:
    assert wire.decode_run(wire.encode_run(slot, ahead=True)) == (slot, True)
    assert wire.decode_answer(wire.encode_started(pid)) == (True, pid, 0)
    assert wire.decode_answer(wire.encode_refused(pid, errno)) == (False, pid, errno)


def test_a_greeting_and_a_spec_come_back_as_they_went() -> None:
    hello = wire.Hello(
        version="3.11.7",
        implementation="cpython",
        executable="/p",
        prefixes=("/a", "/b"),
        privileged=True,
        landlock_abi=7,
        can_unshare=True,
    )
    assert wire.Hello.decode(hello.encode()) == hello
    prepare = wire.Prepare(modules=("numpy", "PIL.Image"), scratch="/s", threads=2)
    assert wire.Prepare.decode(prepare.encode()) == prepare
    spec = JailSpec(
        privileged=True, host_uid_base=1, inner_id=2, hostname="h", scaffold="/tmp", binds=("/usr",), links=(("/lib", "usr/lib"),),
        files=(("/etc/x", "ä"),), devices=("/dev/null",), masks=(), workspace_bytes=1, workspace_inodes=2, rlimits=((1, 2, 3),),
        affinities=((0,), (1,)), fetch_ahead=True, interpreter="/p",
        environment=(("A", "b"),), landlock_abi=0, seccomp=(b"\x00\xff", b""),
    )  # fmt: skip
    assert JailSpec.decode(spec.encode()) == spec


def test_a_record_is_written_whole() -> None:
    assert RECORD.size < 512  # POSIX's least PIPE_BUF


@pytest.mark.parametrize("stage", [*Stage, 0, 200])
def test_every_stage_has_words(stage: int) -> None:
    error = cannot_jail(stage, 1)
    assert isinstance(error, CannotJail)
    assert "Operation not permitted" in str(error)


@contextlib.contextmanager
def pipe_with(data: bytes) -> Iterator[int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, data)
    os.close(write)
    yield read
    os.close(read)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_output_is_cut_at_a_character(data: bytes, cap: int) -> None:
    output = Output(cap)
    with pipe_with(data) as descriptor:
        output.drain(0, descriptor)
    assert output.size == min(cap, len(data))
    assert output.truncated == (len(data) > cap)
    whole = data.decode("utf-8", "replace")
    assert output.text(0) == whole if not output.truncated else len(output.text(0)) <= len(whole)


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.integers(0, 60))
def test_cut_text_is_a_beginning_of_the_text(text: str, cap: int) -> None:
    output = Output(cap)
    with pipe_with(text.encode()) as descriptor:
        output.drain(0, descriptor)
    assert text.startswith(output.text(0))
    assert len(output.text(0).encode()) > cap - 4 or not output.truncated
