"""[server] The jails of this server: who gets which, what is kept ready, what is being taken apart.

A ready jail is one whose payload is confined and blocks on its code. It is used once; there is no way back from any
state to an earlier one. Decisions are taken synchronously on `_states`, waiting comes after.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from mcp_exec.aio import run_whole
from mcp_exec.cgroup.leaf import Leaf
from mcp_exec.errors import McpExecError
from mcp_exec.jail_handle import Jail
from mcp_exec.launchers import Launchers
from mcp_exec.logs import get_logger

_LOOK_S = 1.0
#: A run that lasts longer does not keep the next call waiting for its jail: the pool is refilled beside it
_LONG_RUN_S = 0.05


class State(enum.Enum):
    """The life of a jail."""

    BUILDING = "building"
    READY = "ready"
    RUNNING = "running"
    DYING = "dying"
    GONE = "gone"


_NEXT = {
    State.BUILDING: (State.READY, State.DYING),
    State.READY: (State.RUNNING, State.DYING),
    State.RUNNING: (State.DYING,),
    State.DYING: (State.GONE,),
}


class Pool:
    """At most `at_once` jails for runs, and beside them at most `warm` kept ready, once `keep_warm` was called."""

    def __init__(
        self,
        launchers: Launchers,
        make_leaf: Callable[[], Leaf | None],
        pressed: Callable[[], bool],
        *,
        warm: int,
        at_once: int,
    ) -> None:
        """make_leaf: a cgroup for one jail. pressed: whether memory is scarce."""
        self._launchers = launchers
        self._make_leaf = make_leaf
        self._is_pressed = pressed
        self._at_once = at_once
        self._warm = 0
        self._pressed = False
        self._complained = False
        self._slots = list(reversed(range(warm + at_once)))
        self._states: dict[Jail, State] = {}
        self._kept: set[Jail] = set()  # built for nobody yet; at most `warm`, those that are dying included
        self._callers_building = 0
        self._filler: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._serving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()  # never cancelled

    def count(self, state: State) -> int:
        """How many jails are in this state."""
        return sum(each is state for each in self._states.values())

    def keep_warm(self, count: int) -> None:
        """From now on so many jails are kept ready, at most `warm`, and the launcher is replaced in time."""
        self._serving = True
        self._warm = count
        self._spawn(self._tend())
        self.fill()

    async def take(self) -> Jail:
        """A jail for one run, which the caller must `end`. Raises CannotJail, ConfigError or LauncherDied."""
        jail = self._pick()
        if jail is None:
            self._callers_building += 1
            try:
                jail = await self._build(kept=False)
            finally:
                self._callers_building -= 1
        self._kept.discard(jail)
        self._move(jail, State.RUNNING)
        jail.launcher.runs += 1
        asyncio.get_running_loop().call_later(_LONG_RUN_S, self.fill)
        return jail

    async def end(self, jail: Jail) -> None:
        """Kill and reap, not to be cut short. Its slot is free when everybody in it is dead."""
        self._move(jail, State.DYING)
        await self._take_apart(jail)

    async def _take_apart(self, jail: Jail) -> None:
        try:
            await jail.close()
        finally:
            self._move(jail, State.GONE)
            del self._states[jail]
            self._kept.discard(jail)
            self._slots.append(jail.slot)
            self._renew_if_due()
            self.fill()

    def fill(self) -> None:
        """Give up ready jails that are of no use, bring their number up, one after another; returns at once."""
        for jail in self._ready():
            if self._pressed or not _is_usable(jail):
                self._give_up(jail)
        if self._wants_more() and (self._filler is None or self._filler.done()):
            self._filler = self._spawn(self._fill())

    async def close(self) -> None:
        """End the jails that are ready, and what works in the background. After the last run."""
        self._serving = False
        self._warm = 0
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for jail in self._ready():
            self._give_up(jail)
        await asyncio.gather(*self._ends)

    def _give_up(self, jail: Jail) -> None:
        """A ready jail: from here on nobody gets it."""
        self._move(jail, State.DYING)
        _keep(self._take_apart(jail), self._ends)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return _keep(work, self._tasks)

    def _move(self, jail: Jail, state: State) -> None:
        before = self._states.get(jail)
        if state not in ((State.BUILDING,) if before is None else _NEXT[before]):
            raise AssertionError(f"a jail cannot go from {before} to {state}")
        self._states[jail] = state

    def _pick(self) -> Jail | None:
        """A ready jail, on the processors that have least to do."""
        ready = [jail for jail in self._ready() if _is_usable(jail)]
        running = Counter(jail.slot % self._at_once for jail, at in self._states.items() if at is State.RUNNING)
        return min(ready, key=lambda jail: running[jail.slot % self._at_once], default=None)

    def _ready(self) -> list[Jail]:
        return [jail for jail, state in self._states.items() if state is State.READY]

    async def _build(self, *, kept: bool) -> Jail:
        jail = Jail(await self._launchers.current(), self._make_leaf(), self._slots.pop())
        self._move(jail, State.BUILDING)
        if kept:
            self._kept.add(jail)
        try:
            await run_whole(jail.start(ahead=kept))
            await jail.wait_ready()
        except BaseException:
            await run_whole(self.end(jail))
            raise
        self._move(jail, State.READY)
        return jail

    def _wants_more(self) -> bool:
        return len(self._kept) < self._warm and not self._callers_building and not self._pressed

    async def _fill(self) -> None:
        try:
            while self._wants_more():
                await self._build(kept=True)
                self._complained = False
            self._renew_if_due()
        except McpExecError as error:
            if not self._complained:  # it is tried again every second
                get_logger().warning("no jail could be kept ready", reason=str(error))
            self._complained = True

    async def _tend(self) -> None:
        """What no run's beginning or end tells of: scarce memory, age, ready jails that died."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._pressed = self._is_pressed()
            except OSError as error:
                get_logger().warning("how much memory is left could not be read", reason=error.strerror)
            self._renew_if_due()
            self.fill()

    def _renew_if_due(self) -> None:
        if self._serving and self._launchers.due and (self._renewal is None or self._renewal.done()):
            self._renewal = self._spawn(self._renew())

    async def _renew(self) -> None:
        await self._launchers.renew(lambda: self.count(State.RUNNING) + self.count(State.BUILDING) > 0)
        self.fill()


def _is_usable(jail: Jail) -> bool:
    return jail.launcher.alive and not jail.launcher.retired and not jail.has_spoken


def _keep(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
