"""[server] The files of a cgroup v2 directory, declared on cgroupspy's typed interfaces (which knows only v1).

Source for every name: Documentation/admin-guide/cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cgroupspy.controllers import Controller
from cgroupspy.interfaces import BaseFileInterface, DictFile, FlagFile, IntegerFile, ListFile, MultiLineIntegerFile
from cgroupspy.nodes import Node


class LimitFile(BaseFileInterface):  # type: ignore[misc]  # cgroupspy has no annotations
    """A number of bytes or processes; `max`, here None, is no limit."""

    def sanitize_get(self, value: str) -> int | None:
        """The limit in force."""
        return None if value == "max" else int(value)

    def sanitize_set(self, value: int | None) -> str:
        """The text to write."""
        return "max" if value is None else str(value)


class UnifiedController(Controller):  # type: ignore[misc]
    """What we read and write of core, memory, pids and cpu. A file of a controller that is not enabled is absent."""

    controllers = ListFile("cgroup.controllers")
    subtree_control = ListFile("cgroup.subtree_control")
    procs = MultiLineIntegerFile("cgroup.procs")  # setting it moves processes in
    events = DictFile("cgroup.events", readonly=True)
    kill = FlagFile("cgroup.kill", writeonly=True)
    memory_max: Any = LimitFile("memory.max")
    memory_swap_max: Any = LimitFile("memory.swap.max")
    memory_oom_group = FlagFile("memory.oom.group")
    memory_events = DictFile("memory.events", readonly=True)
    memory_stat = DictFile("memory.stat", readonly=True)
    memory_peak = IntegerFile("memory.peak", readonly=True)
    pids_max: Any = LimitFile("pids.max")
    pids_events = DictFile("pids.events", readonly=True)
    cpu_max = BaseFileInterface("cpu.max")
    cpu_stat = DictFile("cpu.stat", readonly=True)

    def enable(self, controllers: frozenset[str]) -> None:
        """Hand controllers down to the children. EBUSY where processes live here: "no internal processes"."""
        missing = sorted(controllers - set(self.subtree_control))
        if missing:
            self.set_property(b"cgroup.subtree_control", " ".join(f"+{name}" for name in missing))


class UnifiedNode(Node):  # type: ignore[misc]
    """A directory of the unified hierarchy, by its absolute path."""

    controller: UnifiedController

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder

    def _get_controller(self) -> UnifiedController:
        return UnifiedController(self)
