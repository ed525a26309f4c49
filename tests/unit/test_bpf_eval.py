from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec.bpf_eval import decode, evaluate

X86_64 = 0xC000003E
RET_K, RET_A, LD_ABS, LD_IMM, LDX_IMM, JA, JEQ, JGT, JGE, JSET = (
    0x06,
    0x16,
    0x20,
    0x00,
    0x01,
    0x05,
    0x15,
    0x25,
    0x35,
    0x45,
)


def program(*instructions: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def ask(*instructions: tuple[int, int, int, int], nr: int = 0, args: tuple[int, ...] = ()) -> int:
    return evaluate(program(*instructions), arch=X86_64, nr=nr, args=args)


def test_a_constant_is_returned() -> None:
    assert ask((RET_K, 0, 0, 0x7FFF0000)) == 0x7FFF0000


@pytest.mark.parametrize("index", range(6))
@given(value=st.integers(0, (1 << 64) - 1))
def test_both_halves_of_every_argument_can_be_loaded(index: int, value: int) -> None:
    args = tuple(value if i == index else 0 for i in range(6))
    offset = 16 + 8 * index
    assert ask((LD_ABS, 0, 0, offset), (RET_A, 0, 0, 0), args=args) == value & 0xFFFFFFFF
    assert ask((LD_ABS, 0, 0, offset + 4), (RET_A, 0, 0, 0), args=args) == value >> 32


def test_number_and_architecture_can_be_loaded() -> None:
    assert ask((LD_ABS, 0, 0, 0), (RET_A, 0, 0, 0), nr=-1) == 0xFFFFFFFF
    assert ask((LD_ABS, 0, 0, 4), (RET_A, 0, 0, 0)) == X86_64


@pytest.mark.parametrize(
    ("code", "nr", "taken"),
    [(JEQ, 7, True), (JEQ, 8, False), (JGT, 8, True), (JGT, 7, False), (JGE, 7, True), (JGE, 6, False),
     (JSET, 2, True), (JSET, 8, False)],
)  # fmt: skip
def test_a_conditional_jump_goes_where_its_comparison_says(code: int, nr: int, taken: bool) -> None:
    verdict = ask((LD_ABS, 0, 0, 0), (code, 0, 1, 7), (RET_K, 0, 0, 1), (RET_K, 0, 0, 2), nr=nr)
    assert verdict == (1 if taken else 2)


def test_an_unconditional_jump_skips() -> None:
    assert ask((JA, 0, 0, 1), (RET_K, 0, 0, 1), (RET_K, 0, 0, 2)) == 2


@given(a=st.integers(0, 0xFFFFFFFF), b=st.integers(0, 0xFFFFFFFF))
def test_arithmetic_wraps_at_32_bits(a: int, b: int) -> None:
    def result(operation: int) -> int:
        return ask((LD_IMM, 0, 0, a), (LDX_IMM, 0, 0, b), (0x0C | operation, 0, 0, 0), (RET_A, 0, 0, 0))

    assert result(0x00) == (a + b) % (1 << 32)
    assert result(0x10) == (a - b) % (1 << 32)
    assert result(0x50) == a & b
    assert result(0xA0) == a ^ b


def test_scratch_memory_and_index_keep_their_value() -> None:
    moved = ((LD_IMM, 0, 0, 9), (0x02, 0, 0, 3), (LD_IMM, 0, 0, 0), (0x61, 0, 0, 3), (0x87, 0, 0, 0), (RET_A, 0, 0, 0))
    assert ask(*moved) == 9


@pytest.mark.parametrize(
    "instructions",
    [
        [(LD_ABS, 0, 0, 64), (RET_K, 0, 0, 0)],
        [(LD_ABS, 0, 0, 2), (RET_K, 0, 0, 0)],
        [(0x28, 0, 0, 0), (RET_K, 0, 0, 0)],
        [(0x34, 0, 0, 0), (RET_K, 0, 0, 0)],
        [(0x02, 0, 0, 16), (RET_K, 0, 0, 0)],
        [(LD_ABS, 0, 0, 0)],
        [(JA, 0, 0, 0xFFFFFFFF), (RET_K, 0, 0, 0)],
        [],
    ],
)
def test_a_program_the_kernel_would_not_load_is_refused(instructions: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError, match=r"outside|not allowed|no word|past its end|cannot be loaded"):
        ask(*instructions)


def test_a_program_of_odd_or_excessive_length_is_refused() -> None:
    for length in (7, 4097 * 8):
        with pytest.raises(ValueError, match="cannot be loaded"):
            decode(b"\0" * length)


@given(junk=st.binary(max_size=400), nr=st.integers(-(1 << 31), (1 << 31) - 1))
def test_junk_ends_in_a_verdict_or_a_value_error(junk: bytes, nr: int) -> None:
    try:
        verdict = evaluate(junk, arch=X86_64, nr=nr)
    except ValueError:
        return
    assert 0 <= verdict <= 0xFFFFFFFF
