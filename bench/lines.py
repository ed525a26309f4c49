"""A process that is asked and answers in lines of JSON, read without threads so that it alone is measured."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Self

_END_S = 60.0


class LineProcess:
    """Raises BrokenPipeError, with the last line that the process said on stderr, where it has ended."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed with the process
        self._process = subprocess.Popen(
            command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BrokenPipeError(self._last_words()) from None

    def receive(self) -> dict[str, Any]:
        """The next message, as soon as it comes."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenPipeError(self._last_words())
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return said[-1][:300] if said else "it ended without a word"

    def close(self) -> None:
        """End its input, wait until it is gone; kill it if that takes a minute."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended and something was still to be written
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
