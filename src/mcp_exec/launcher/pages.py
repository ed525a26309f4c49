"""[launcher] Which pages programs touch, learned once, so that a jail that is kept ready has them before its program.

A forked process shares its parent's pages until it writes to them, and each first write traps: some two thousand of
them for a few lines of pandas, which take longer than the lines themselves. So a child rehearses such lines once;
what it then has of its own, and what it has mapped of files, is what the payload of a ready jail fetches in advance.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
from collections.abc import Iterator, Sequence

from mcp_exec.jail.spec import Page

#: module -> lines that use what programs use of it; the empty one stands for every program
_REHEARSALS = {
    "": "import json\nprint(f'{json.loads(json.dumps({1: [2.5]}))}', sorted({'b': 1, 'a': 2}.items()))",
    "numpy": "import numpy as np\na = np.arange(6.0).reshape(2, 3)\nprint(a @ a.T, a.mean(axis=0), np.sqrt(a))",
    "pandas": (
        "import io\nimport pandas as pd\nd = pd.read_csv(io.StringIO('a,b\\n1,x\\n2,y\\n'))\n"
        "print(d, d.describe(), d.groupby('b').sum(), d.sort_values('a').to_csv())"
    ),
    "matplotlib.pyplot": (
        "import io\nimport matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.savefig(io.BytesIO(), format='png')"
    ),
    "PIL.Image": "import io\nfrom PIL import Image\nImage.new('RGB', (8, 8)).resize((4, 4)).save(io.BytesIO(), 'PNG')",
    "yaml": "import yaml\nprint(yaml.safe_dump(yaml.safe_load('a: [1, x]')))",
    "jinja2": "import jinja2\nprint(jinja2.Template('{% for x in y %}{{ x }}{% endfor %}').render(y=[1]))",
}
_SIZE = os.sysconf("SC_PAGE_SIZE")
#: proc_pid_pagemap(5)
_PRESENT, _OF_FILE, _EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56


def learn(modules: Sequence[str]) -> tuple[Page, ...]:
    """What a child of this process touches in a rehearsal; nothing where the kernel does not tell."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with contextlib.suppress(Exception), open(write, "wb") as report:
            for name in ("", *modules):
                with contextlib.suppress(Exception):
                    exec(_REHEARSALS.get(name, ""), {"__name__": name})  # noqa: S102 - lines of this file
            gc.collect()  # as at the end of every program
            array.array("Q", _touched()).tofile(report)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as report:
        numbers = array.array("Q", report.read())
    os.waitpid(child, 0)
    return tuple(zip(numbers[::3], numbers[1::3], map(bool, numbers[2::3]), strict=True))


def _touched() -> Iterator[int]:
    """Start, length and whether it was written to, of each run of pages."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for start, end, writable in list(_mappings()):
            pagemap.seek(start // _SIZE * 8)
            entries = array.array("Q", pagemap.read((end - start) // _SIZE * 8))
            wanted, unwanted = (_PRESENT | _EXCLUSIVE, _OF_FILE) if writable else (_PRESENT, 0)
            first = None
            for number, entry in enumerate((*entries, 0)):
                hot = entry & wanted == wanted and not entry & unwanted
                if hot and first is None:
                    first = number
                elif not hot and first is not None:
                    yield from (start + first * _SIZE, (number - first) * _SIZE, writable)
                    first = None


def _mappings() -> Iterator[tuple[int, int, bool]]:
    """Private ones that are written to, and those that are read from a file: proc_pid_maps(5)."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            area, modes, _offset, _device, inode, *name = line.split()
            start, end = (int(number, 16) for number in area.split("-"))
            if modes == "rw-p" and name != ["[stack]"]:
                yield start, end, True
            elif modes in ("r--p", "r-xp") and inode != "0":
                yield start, end, False
