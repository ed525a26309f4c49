"""[server] A seccomp program's verdict on one system call, computed without the kernel.

Classic BPF as the kernel allows it to seccomp (Documentation/networking/filter.rst, seccomp(2)): words are loaded from
`struct seccomp_data` by absolute offset, jumps go forward only, so every program ends within its own length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")

BPF_MAXINSNS: Final = 4096
ARG_COUNT: Final = 6
WORD: Final = 0xFFFFFFFF

_INSTRUCTION: Final = struct.Struct("<HBBI")
_DATA: Final = struct.Struct("<iIQ6Q")

RET_K: Final = 0x06
_RET_A: Final = 0x16
_JA: Final = 0x05
_CLASS: Final = 0x07
_CLASS_ALU: Final = 0x04
_CLASS_JMP: Final = 0x05
_FROM_X: Final = 0x08
_MEMORY_WORDS: Final = 16

_ALU: Final[dict[int, Callable[[int, int], int]]] = {
    0x00: lambda a, b: a + b,
    0x10: lambda a, b: a - b,
    0x20: lambda a, b: a * b,
    0x40: lambda a, b: a | b,
    0x50: lambda a, b: a & b,
    # Shifts of 32 and more are refused by the kernel for constants; from X they would be undefined in C.
    0x60: lambda a, b: a << b if b < 32 else 0,
    0x70: lambda a, b: a >> b if b < 32 else 0,
    0x80: lambda a, _: -a,
    0xA0: lambda a, b: a ^ b,
}
_JUMPS: Final[dict[int, Callable[[int, int], bool]]] = {
    0x10: lambda a, b: a == b,
    0x20: lambda a, b: a > b,
    0x30: lambda a, b: a >= b,
    0x40: lambda a, b: bool(a & b),
}


class _Machine:
    """Accumulator, index and scratch memory; `step` returns how far to jump beyond the next instruction."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.a = 0
        self.x = 0
        self.memory = [0] * _MEMORY_WORDS

    def step(self, code: int, jt: int, jf: int, k: int) -> int:
        operand = self.x if code & _FROM_X else k
        operation = code & 0xF0
        if code & _CLASS == _CLASS_JMP:
            if code == _JA:
                return k
            return jt if _pick(_JUMPS, operation, code)(self.a, operand) else jf
        if code & _CLASS == _CLASS_ALU:
            self.a = _pick(_ALU, operation, code)(self.a, operand) & WORD
        else:
            self._move(code, k)
        return 0

    def _move(self, code: int, k: int) -> None:
        match code:
            case 0x20:  # LD_W_ABS, by far the most frequent
                self.a = self._load(k)
            case 0x00:  # LD_IMM
                self.a = k
            case 0x01:  # LDX_IMM
                self.x = k
            case 0x60:  # LD_MEM
                self.a = self.memory[_slot(k)]
            case 0x61:  # LDX_MEM
                self.x = self.memory[_slot(k)]
            case 0x02:  # ST
                self.memory[_slot(k)] = self.a
            case 0x03:  # STX
                self.memory[_slot(k)] = self.x
            case 0x07:  # TAX
                self.x = self.a
            case 0x87:  # TXA
                self.a = self.x
            case _:
                raise ValueError(f"instruction {code:#x} is not allowed to seccomp")

    def _load(self, offset: int) -> int:
        if offset % 4 or offset + 4 > len(self.data):
            raise ValueError(f"load at offset {offset} is outside struct seccomp_data")
        return int.from_bytes(self.data[offset : offset + 4], "little")


def _pick(table: dict[int, _T], operation: int, code: int) -> _T:
    if operation not in table:
        raise ValueError(f"instruction {code:#x} is not allowed to seccomp")
    return table[operation]


def _slot(k: int) -> int:
    if k >= _MEMORY_WORDS:
        raise ValueError(f"scratch memory has no word {k}")
    return k


def decode(program: bytes) -> list[tuple[int, int, int, int]]:
    """The instructions (code, jt, jf, k) of `program`; ValueError for a length that the kernel would refuse."""
    if not program or len(program) % _INSTRUCTION.size or len(program) > BPF_MAXINSNS * _INSTRUCTION.size:
        raise ValueError(f"a program of {len(program)} bytes cannot be loaded")
    return list(_INSTRUCTION.iter_unpack(program))


def run(instructions: Sequence[tuple[int, int, int, int]], *, arch: int, nr: int, args: Sequence[int] = ()) -> int:
    """As `evaluate`, on instructions already decoded (many questions to one program)."""
    words = [value & 0xFFFFFFFFFFFFFFFF for value in args] + [0] * (ARG_COUNT - len(args))
    signed_nr = (nr & WORD) - (1 << 32 if nr & 0x80000000 else 0)
    machine = _Machine(_DATA.pack(signed_nr, arch, 0, *words))
    at = 0
    # Jumps are unsigned and relative to the next instruction: `at` grows with each step, the loop is bounded.
    while at < len(instructions):
        code, jt, jf, k = instructions[at]
        if code in (RET_K, _RET_A):
            return k if code == RET_K else machine.a
        at += 1 + machine.step(code, jt, jf, k)
    raise ValueError("the program runs past its end")


def evaluate(program: bytes, *, arch: int, nr: int, args: Sequence[int] = ()) -> int:
    """The SECCOMP_RET_* value of `program` for system call `nr` on AUDIT_ARCH `arch`; missing `args` are 0.

    Raises ValueError for a program that the kernel would not load.
    """
    return run(decode(program), arch=arch, nr=nr, args=args)
