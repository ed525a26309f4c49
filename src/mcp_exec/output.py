"""[server] What a program printed: hostile bytes, bounded, turned into text."""

from __future__ import annotations

import os

_CHUNK = 65536
_PIPE_BYTES = 1 << 20  # the most that an unprivileged process may make of one: pipe(7)


class Output:
    """Both streams under one cap, read as they come, so that partial output survives a kill."""

    def __init__(self, cap: int) -> None:
        self._left = cap
        self.streams = (bytearray(), bytearray())
        self.truncated = False

    @property
    def size(self) -> int:
        """Bytes kept so far."""
        return len(self.streams[0]) + len(self.streams[1])

    def read(self, stream: int, descriptor: int) -> bool:
        """One read without blocking; False at EOF or when nothing is there."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        kept = chunk[: self._left]
        self.streams[stream].extend(kept)
        self._left -= len(kept)
        self.truncated = self.truncated or len(kept) < len(chunk)
        return bool(chunk)

    def drain(self, stream: int, descriptor: int) -> None:
        """What is in the pipe now, at most its capacity: whoever writes on is being killed."""
        for _ in range(1 + _PIPE_BYTES // _CHUNK):
            if not self.read(stream, descriptor):
                return

    def text(self, stream: int) -> str:
        """UTF-8 with replacement; a character that the cap split is left out."""
        data = bytes(self.streams[stream])
        return (_whole_characters(data) if self.truncated else data).decode("utf-8", "replace")


def _whole_characters(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if width > back else data
    return data
