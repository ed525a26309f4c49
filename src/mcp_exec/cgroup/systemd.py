"""[server] Asking systemd for a subtree: a transient scope with Delegate= around this process.

org.freedesktop.systemd1(5), StartTransientUnit: what `systemd-run --scope -p Delegate=yes` does. As an ordinary user
the user's own manager is asked; MCP clients strip the environment, so its bus is looked for where it always is.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_ANSWER_S = 5.0
_POLL_S = 0.01
_MEMBERSHIP = Path("/proc/self/cgroup")


def is_running() -> bool:
    """Whether systemd manages this host, or container: sd_booted(3)."""
    return Path("/run/systemd/system").is_dir()


def manager_cgroup() -> str:
    """The cgroup below which the manager that we would ask makes its units, from the root: systemd.special(7)."""
    uid = os.geteuid()
    return "system.slice" if uid == 0 else f"user.slice/user-{uid}.slice/user@{uid}.service"


def enter_scope() -> str:
    """The name of the scope that we are in now, with all controllers that its manager has. Raises OSError, in words."""
    from jeepney.io.blocking import open_dbus_connection
    from jeepney.wrappers import DBusErrorResponse, unwrap_msg

    scope = f"mcp-exec-{os.getpid()}.scope"
    try:
        with open_dbus_connection(_bus()) as connection:
            unwrap_msg(connection.send_and_get_reply(_start_transient(scope), timeout=_ANSWER_S))
    except DBusErrorResponse as error:
        raise OSError(f"systemd refused a scope: {error}") from error
    except (OSError, EOFError, ValueError) as error:  # no socket, no right to it, or a time-out
        raise OSError(f"systemd cannot be reached over D-Bus: {error}") from error
    deadline = time.monotonic() + _ANSWER_S
    while f"/{scope}" not in _MEMBERSHIP.read_text():
        if time.monotonic() > deadline:
            raise OSError(f"systemd promised the scope {scope}, but did not move this process into it")
        time.sleep(_POLL_S)
    return scope


def _start_transient(scope: str) -> object:
    from jeepney import DBusAddress, new_method_call

    manager = DBusAddress(
        "/org/freedesktop/systemd1", bus_name="org.freedesktop.systemd1", interface="org.freedesktop.systemd1.Manager"
    )
    properties = [
        ("Description", ("s", "mcp-exec and its runs")),
        ("PIDs", ("au", [os.getpid()])),
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
    ]
    return new_method_call(manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", (scope, "fail", properties, []))


def _bus() -> str:
    if os.geteuid() == 0:
        return "SYSTEM"
    return os.environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path=/run/user/{os.geteuid()}/bus"
