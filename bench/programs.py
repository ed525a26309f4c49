"""What is run: small programs with the answer that each must give."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one run."""

    stdout: str
    stderr: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, its standard input and what it must answer; `error` is how its stderr must end."""

    name: str
    code: str
    stdout: str
    stdin: str = ""
    exit_code: int = 0
    error: str = ""

    def complaint(self, outcome: Outcome) -> str | None:
        """What is wrong with an outcome, in one line; None if it is right."""
        if outcome.exit_code != self.exit_code:
            return f"exit status {outcome.exit_code}: {_reason(outcome.stderr)}"
        if outcome.stdout != self.stdout:
            return f"another output: {len(outcome.stdout)} characters, {outcome.stdout[:40]!r}"
        if not outcome.stderr.rstrip().endswith(self.error):
            return f"another error: {outcome.stderr[-80:]!r}"
        return None


def _reason(stderr: str) -> str:
    """The last line that names an error, as a traceback has it; some say more after it."""
    lines = stderr.strip().splitlines() or ["nothing on stderr"]
    return next((line for line in reversed(lines) if "Error: " in line), lines[-1])[:200]


_NUMPY = """\
import numpy
print(int((numpy.arange(1000) ** 2).sum()))
"""
_PANDAS = """\
import pandas
sales = pandas.DataFrame({"region": ["north", "south"] * 50, "units": range(100)})
print(sales.groupby("region")["units"].sum().to_dict())
"""
_PLOT = """\
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 4, 2, 3])
plt.title("sales")
plt.savefig("plot.png")
with open("plot.png", "rb") as file:
    print(file.read(8))
"""
_FORK = """\
import os
children = []
for number in range(50):
    child = os.fork()
    if child == 0:
        os._exit(0)
    children.append(child)
print(sum(os.waitpid(child, 0)[1] == 0 for child in children))
"""

PROGRAMS = (
    Program(name="print", code="print(6 * 7)\n", stdout="42\n"),
    Program(name="numpy", code=_NUMPY, stdout="332833500\n"),
    Program(name="pandas", code=_PANDAS, stdout="{'north': 2450, 'south': 2500}\n"),
    Program(name="plot", code=_PLOT, stdout="b'\\x89PNG\\r\\n\\x1a\\n'\n"),
    Program(name="1 MiB out", code=f"print('x' * {_MIB}, end='')\n", stdout="x" * _MIB),
    Program(name="1 MiB in", code="import sys\nprint(len(sys.stdin.read()))\n", stdin="x" * _MIB, stdout=f"{_MIB}\n"),
    Program(
        name="100,000 lines",
        code="for number in range(100000):\n    print(number)\n",
        stdout="".join(f"{number}\n" for number in range(100_000)),
    ),
    Program(name="exception", code="raise ValueError('no')\n", stdout="", exit_code=1, error="ValueError: no"),
    Program(name="50 forks", code=_FORK, stdout="50\n"),
)
LINES = "100,000 lines"
