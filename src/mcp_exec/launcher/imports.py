"""[launcher] What the launcher imports for the programs to come, and what of the host it forgets afterwards.

A payload is a copy of this process: what a module has remembered of the host's name, home, time zone or folders
would be told to every program, and would be wrong in the jail as well.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence

from mcp_exec.launcher.wire import Prepare

_HOME = "/workspace"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def become_neutral() -> None:
    """Before any import: home and time zone as in the jail, not those of whoever runs the server."""
    os.environ.update(HOME=_HOME, TZ="UTC")
    time.tzset()
    sys.path[0] = _HOME


def borrow_unshare(descriptors: Sequence[int]) -> bool:
    """Whether this interpreter can unshare; on 3.11 through an extension, its own or the server's in a memfd.

    A memfd, since the path of a mapped library is read in /proc/self/maps.
    """
    if sys.version_info >= (3, 12):
        return True
    import importlib.util
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    if importlib.util.find_spec("unshare") is not None:
        return True
    if not descriptors:
        return False
    path = f"/proc/self/fd/{descriptors[0]}"
    loader = ExtensionFileLoader("unshare", path)
    try:
        module = importlib.util.module_from_spec(ModuleSpec("unshare", loader, origin=path))
        loader.exec_module(module)
    except ImportError:  # the server's interpreter is of another version
        return False
    finally:
        os.close(descriptors[0])
    sys.modules["unshare"] = module
    return True


def preimport(prepare: Prepare) -> None:
    """Import what exists, and be left with one thread."""
    import importlib

    os.environ.update(dict.fromkeys(_THREADS, str(prepare.threads)))
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["MPLCONFIGDIR"] = prepare.scratch
    for name in prepare.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _put_threads_away()


def _put_threads_away() -> None:
    """OpenBLAS ends its threads when its process forks (pthread_atfork(3)), and starts new ones when it is used."""
    if len(os.listdir("/proc/self/task")) > 1:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


def forget_host(visible: Sequence[str], environment: Mapping[str, str]) -> None:
    """visible: what the jail shows of the host's folders. environment: the programs'."""
    sys.path[:] = [entry for entry in sys.path if any(f"{entry}/".startswith(f"{place}/") for place in visible)]
    for module in list(sys.modules.values()):
        recalculate = getattr(getattr(module, "__path__", None), "_recalculate", None)
        if recalculate is not None:  # a namespace package remembers the sys.path that it was found on
            recalculate()
    for name in ("platform", "site", "matplotlib"):
        if name in sys.modules:
            _FORGETTERS[name](environment)


def _forget_platform(_environment: Mapping[str, str]) -> None:
    sys.modules["platform"]._uname_cache = None  # type: ignore[attr-defined] # holds the host's name


def _forget_site(_environment: Mapping[str, str]) -> None:
    site = sys.modules["site"]
    site.USER_BASE = site.USER_SITE = None  # type: ignore[attr-defined]
    site.getusersitepackages()


def _forget_matplotlib(environment: Mapping[str, str]) -> None:
    """It remembers its folders for good; the jail has others."""
    for name in ("get_configdir", "get_cachedir"):
        remembered = getattr(sys.modules["matplotlib"], name, None)
        if remembered is not None and hasattr(remembered, "__wrapped__"):
            setattr(sys.modules["matplotlib"], name, remembered.__wrapped__)
    for name in ("matplotlib.style", "matplotlib.style.core"):
        places = getattr(sys.modules.get(name), "USER_LIBRARY_PATHS", None)
        if places is not None:
            places[:] = [os.path.join(environment["MPLCONFIGDIR"], "stylelib")]


_FORGETTERS = {"platform": _forget_platform, "site": _forget_site, "matplotlib": _forget_matplotlib}
