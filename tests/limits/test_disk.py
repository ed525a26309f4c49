"""A16: the workspace, in bytes and inodes."""

from __future__ import annotations

import pytest
from support.client import Bare, StdioClient

TRY = """
import errno, os
def attempt(action, *words):
    try:
        action(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 'done'
"""
FILL = """
def fill(place):
    with open(f'{place}/full', 'wb', buffering=0) as file:
        while True: file.write(bytes(1 << 20))
"""


@pytest.mark.parametrize("place", ["/workspace", "/tmp", "/dev/shm"])
@pytest.mark.parametrize(
    ("action", "errors"),
    [
        ("os.truncate(path, 1 << 40)", {"EFBIG"}),
        ("os.posix_fallocate(os.open(path, os.O_WRONLY), 0, 100 << 30)", {"EFBIG", "ENOSPC"}),
        ("os.pwrite(os.open(path, os.O_WRONLY), b'x', 1 << 40)", {"EFBIG"}),
    ],
)
def test_a16_files_of_absurd_sizes(small: StdioClient, place: str, action: str, errors: set[str]) -> None:
    answer = small.run(f"{TRY}\npath = '{place}/file'\nopen(path, 'w').close()\nprint(attempt(lambda: {action}))")
    assert answer.stdout.strip() in errors, answer


def test_a16_control_elsewhere_a_sparse_file_is_allowed(bare: Bare) -> None:
    done = bare.run(
        f"{TRY}\nimport tempfile\nwith tempfile.NamedTemporaryFile() as f: print(attempt(f.truncate, 1 << 35))"
    )
    assert done.stdout == "done\n"


def test_a16_filling_all_places_together(small: StdioClient) -> None:
    answer = small.run(f"{TRY}{FILL}\nprint([attempt(fill, place) for place in ('/workspace', '/tmp', '/dev/shm')])")
    assert answer.exit_code == 0, answer
    assert set(eval(answer.stdout)) <= {"ENOSPC", "EFBIG"}


def test_a16_a_million_empty_files(small: StdioClient) -> None:
    code = f"{TRY}\ndef make():\n    for n in range(10 ** 6): open(f'/tmp/{{n}}', 'w').close()\nprint(attempt(make))"
    answer = small.run(code, timeout_s=50)
    assert (answer.exit_code, answer.stdout) == (0, "ENOSPC\n"), answer
