"""[server] Getting a subtree without the operator having to know how: the first that works, or why none does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from mcp_exec.cgroup import systemd
from mcp_exec.cgroup.locate import Place, find_place
from mcp_exec.cgroup.subtree import NEEDED, SERVER_LEAF, Absence, Subtree, claim, controllers_of
from mcp_exec.errors import ConfigError

_DELEGATED = ("user.delegate", "trusted.delegate")  # extended attributes of systemd; the second is for root to read
_START_DELEGATED = "start the server where a subtree is delegated: systemd-run --user --scope -p Delegate=yes mcp-exec"


def acquire(setting: str) -> Subtree | Absence:
    """setting: auto, off, or the absolute path of a cgroup to use. Before the launcher starts, which is moved with us.

    Raises ConfigError where a path was named that cannot be used.
    """
    if setting == "off":
        return Absence(reason="switched off by MCP_EXEC_CGROUP=off", fix="unset MCP_EXEC_CGROUP")
    place = find_place()
    if setting == "auto":
        return _search(place)
    base = Path(setting)
    found = claim(base, "named by MCP_EXEC_CGROUP", move_self=place is not None and place.own == base)
    if isinstance(found, Absence):
        raise ConfigError(f"MCP_EXEC_CGROUP={setting!r} cannot be used: {found.reason}; {found.fix}")
    return found


def _search(place: Place | None) -> Subtree | Absence:
    if place is None:
        return Absence(
            reason="no cgroup v2 hierarchy is mounted that shows this process",
            fix="boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        )
    lacking = NEEDED - controllers_of(place.mount)
    if lacking:
        return Absence(
            reason=f"{place.mount} has no controller {' and '.join(sorted(lacking))} (they belong to cgroup v1)",
            fix="boot with systemd.unified_cgroup_hierarchy=1; in a container, give it the controllers",
        )
    failures: list[Absence] = []
    for attempt in _attempts(place):
        found = attempt()
        if isinstance(found, Subtree):
            return found
        failures.append(found)
    return Absence(reason="; ".join(dict.fromkeys(each.reason for each in failures)), fix=failures[0].fix)


def _attempts(place: Place) -> Iterator[Callable[[], Subtree | Absence]]:
    """In the order of what the host is least surprised by."""
    own, parent = place.own, place.own.parent
    if _is_ours(own) or (os.geteuid() == 0 and not systemd.is_running()):
        yield lambda: claim(own, "own cgroup", move_self=not _is_host_root(own), move_all=_is_container(place))
    if own != place.mount and (_is_ours(parent) or own.name == SERVER_LEAF):
        yield lambda: claim(parent, "parent of the own cgroup", move_self=False)
    if systemd.is_running() and not place.read_only:
        yield lambda: _ask_systemd(place)
    elif os.geteuid() == 0 and own != place.mount and _is_host_root(place.mount):
        yield lambda: claim(place.mount, "root of the hierarchy", move_self=False)
    yield lambda: Absence(reason=f"{own} is not delegated to uid {os.geteuid()}", fix=_START_DELEGATED)


def _is_ours(folder: Path) -> bool:
    """Whether it was left to us: by systemd's mark; where there is no systemd, by being our user's."""
    if systemd.is_running():
        return any(_attribute(folder, name) == b"1" for name in _DELEGATED)
    with suppress(OSError):
        return os.geteuid() != 0 and (folder / "cgroup.procs").stat().st_uid == os.geteuid()
    return False


def _attribute(folder: Path, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return b""


def _has_limits(folder: Path) -> bool:
    """Of memory or cpu. Of processes systemd sets one on everything."""
    for name in ("memory.max", "cpu.max"):
        with suppress(OSError):  # the root has no such files
            if not (folder / name).read_text().startswith("max"):
                return True
    return False


def _is_host_root(folder: Path) -> bool:
    """The one cgroup that may have processes and children both: it alone has no cgroup.events."""
    return (folder / "cgroup.procs").exists() and not (folder / "cgroup.events").exists()


def _is_container(place: Place) -> bool:
    return place.own == place.mount and not _is_host_root(place.own)


def _ask_systemd(place: Place) -> Subtree | Absence:
    limited = next((folder for folder in place.chain() if _has_limits(folder)), None)
    if limited is not None and not (place.mount / systemd.manager_cgroup()).is_relative_to(limited):
        return Absence(
            reason=f"{limited} has limits, which a scope of systemd's would be outside of",
            fix="Delegate=yes in the unit that it belongs to",
        )
    try:
        scope = systemd.enter_scope()
    except OSError as error:
        return Absence(reason=str(error), fix=_START_DELEGATED)
    inside = find_place()
    if inside is None:
        return Absence(reason=f"the scope {scope} is outside of the cgroup mount seen here", fix=_START_DELEGATED)
    return claim(inside.own, f"systemd's scope {scope}", move_self=True)
