"""[server] Waiting for descriptors in asyncio, without transports: what pipes to a jail and to a client both need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def wait_readable(descriptor: int) -> None:
    """Until a read would not block: data, EOF, or the end of a pidfd's process (poll(2))."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def run_whole(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end whatever happens to the caller; a cancellation that came meanwhile is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # fetched: the cancellation stands for it
        raise cancelled
    return task.result()


async def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write everything to a non-blocking descriptor. Raises BrokenPipeError where the reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await _wait_writable(descriptor)


async def _wait_writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
