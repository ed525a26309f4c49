"""[server] Where the unified hierarchy is mounted, and where in it this process stands: cgroups(7), proc(5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """mount: where cgroup2 is mounted. own: our cgroup's directory, below it. read_only: the mount's or the view's."""

    mount: Path
    own: Path
    read_only: bool

    def chain(self) -> Iterator[Path]:
        """Our own cgroup and those around it, innermost first, as far as they are seen here."""
        folder = self.own
        while folder != self.mount:
            yield folder
            folder = folder.parent
        yield folder


def find_place() -> Place | None:
    """None where no cgroup2 is mounted that shows our own cgroup."""
    mountinfo = Path("/proc/self/mountinfo").read_text()
    return parse_place(mountinfo, Path("/proc/self/cgroup").read_text())


def parse_place(mountinfo: str, membership: str) -> Place | None:
    """mountinfo, membership: the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    inside = next((line.removeprefix("0::") for line in membership.splitlines() if line.startswith("0::/")), None)
    if inside is None or inside.startswith("/.."):  # outside of our cgroup namespace's root
        return None
    found = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")  # proc_pid_mountinfo(5): fields, kind, source, options
        fields, (kind, _, super_options) = left.split(" "), right.split(" ")
        if kind != "cgroup2":
            continue
        root, point, options = _unescape(fields[3]), _unescape(fields[4]), fields[5].split(",")
        if root != "/" and not f"{inside}/".startswith(f"{root}/"):
            continue  # a bind of some other part of the tree
        below = inside.removeprefix(root) if root != "/" else inside
        found = Place(
            mount=Path(point),
            own=Path(point + below.rstrip("/")),
            read_only="ro" in (*options, *super_options.split(",")),
        )
    return found  # the last one mounted covers the others


def _unescape(text: str) -> str:
    """mountinfo writes blanks and backslashes in octal."""
    return os.fsdecode(text.encode().decode("unicode_escape").encode("latin-1"))
