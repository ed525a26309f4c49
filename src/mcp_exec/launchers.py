"""[server] Which launcher makes the jails: replaced when it dies, and on a budget of runs and age.

All programs of one launcher share its address layout and hash seed; a replacement bounds for how long what one of
them learned is of use to another. The old launcher lives until the last of its jails has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mcp_exec.bounds import Bounds
from mcp_exec.config import Config
from mcp_exec.errors import LauncherDied, McpExecError
from mcp_exec.jail.spec import JailSpec
from mcp_exec.launcher.client import LauncherClient
from mcp_exec.logs import get_logger
from mcp_exec.policy import make_spec

_RETRY_S = 60.0


class Launchers:
    """The launcher at work, and those that still have a run to finish."""

    def __init__(self, config: Config, bounds: Bounds, loading: asyncio.Task[None] | None) -> None:
        """loading: what must be in memory before it is divided; it ends while the first launcher starts."""
        self._config = config
        self._loading = loading
        self._bounds = bounds
        self._current: LauncherClient | None = None
        self._spec: JailSpec | None = None
        self._all: set[LauncherClient] = set()
        self._starting = asyncio.Lock()
        self._not_before = 0.0
        self._waits_for_idle: LauncherClient | None = None

    @property
    def spec(self) -> JailSpec:
        """What the jails are made of now."""
        if self._spec is None:
            raise LauncherDied("the launcher has not started")
        return self._spec

    async def current(self) -> LauncherClient:
        """The launcher for the next jail. Raises ConfigError where the interpreter or a policy cannot be used."""
        async with self._starting:
            if self._current is None or not self._current.alive:
                if self._current is not None:
                    self._current.close()
                self._current = await self._start()
            return self._current

    @property
    def due(self) -> bool:
        """Whether the one at work has served its time. One that no program has seen has not."""
        one, now = self._current, time.monotonic()
        if self._config.fresh_interpreter or one is None or not one.runs or now < self._not_before:
            return False
        return one.runs >= self._config.launcher_runs or now - one.born >= self._config.launcher_age_s

    async def renew(self, is_busy: Callable[[], bool]) -> None:
        """Put a new launcher to work; the old one serves until then, and ends with the last of its jails.

        Where memory has no room for both, it waits until no jail is at work or being built (`is_busy`), and calls wait
        for the new one. What fails is logged, and tried again later.
        """
        self._not_before = time.monotonic() + _RETRY_S
        old = self._current
        try:
            if old is None or self._bounds.has_room_for(old.pid):
                await self._put_to_work(await self._start())
            elif is_busy():
                self._wait_for_idle(old)
                return
            else:
                async with self._starting:
                    old.close()
                    self._current = await self._start()
        except McpExecError as error:
            get_logger().warning("the launcher could not be replaced; tried again", reason=str(error))
            return
        self._not_before = 0.0
        get_logger().info("launcher replaced", runs=old.runs if old is not None else 0)

    def _wait_for_idle(self, old: LauncherClient) -> None:
        self._not_before = 0.0  # it is looked at whenever a run has ended
        if self._waits_for_idle is not old:
            get_logger().warning("the launcher is due, but memory has no room for a second one: when no run is at work")
        self._waits_for_idle = old

    async def _put_to_work(self, launcher: LauncherClient) -> None:
        async with self._starting:
            old, self._current = self._current, launcher
            if old is not None:
                old.retire()

    async def _start(self) -> LauncherClient:
        self._all = {each for each in self._all if not each.failed}
        launcher = LauncherClient.spawn(self._config)
        self._all.add(launcher)
        try:
            hello = await launcher.greet()
            if self._loading is not None:
                await self._loading
            cgroup = self._bounds.subtree is not None
            self._spec = make_spec(self._config, hello, self._bounds.limits, cgroup=cgroup)
            launcher.configure(self._spec)
        except BaseException:
            launcher.close()
            raise
        return launcher

    def close(self) -> None:
        """Kill them all, and with them every jail."""
        for launcher in self._all:
            launcher.close()
