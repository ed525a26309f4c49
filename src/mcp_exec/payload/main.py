"""[payload] Reads the code, becomes `python main.py`, runs it, ends as CPython would.

Every wall stands already. Nothing here is trusted by anybody: the exit code is read by init from waitpid.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
import signal
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader

from mcp_exec.jail import syscalls
from mcp_exec.jail.spec import JailSpec, Page

_PATH = "/workspace/main.py"


def prepare_payload(spec: JailSpec, pages: Sequence[Page]) -> None:
    """All that needs no code, so that a ready jail has done it."""
    _make_environment(spec)
    _open_standard_streams()
    _reseed()
    _forget_modules()
    gc.freeze()
    _fetch(pages)


def run_payload(spec: JailSpec, code: int) -> None:
    """Blocks until the code has arrived whole, then runs it; never returns."""
    source = _read_all(code)
    os.close(code)
    with open(_PATH, "wb") as file:
        file.write(source)
    if spec.interpreter:  # -u: what was printed before a timeout must have left
        os.execv(spec.interpreter, [spec.interpreter, "-u", os.path.basename(_PATH)])  # noqa: S606 - no shell is wanted
    module = _make_main_module()
    os._exit(_end(module, _run(module, source)))


def _fetch(pages: Sequence[Page]) -> None:
    """In an older kernel, or where memory has been unmapped since, they come when they are touched."""
    for start, length, write in pages:
        with contextlib.suppress(OSError):
            syscalls.populate(start, length, write=write)


def _make_environment(spec: JailSpec) -> None:
    os.environ.clear()
    os.environ.update(spec.environment)


def _open_standard_streams() -> None:
    """Fresh objects: those of the launcher remember facts about other files. Lines leave as they are printed.

    Error handlers are those that CPython chooses in a C.UTF-8 locale (PEP 538).
    """
    for descriptor, name, errors in (
        (0, "stdin", "surrogateescape"),
        (1, "stdout", "surrogateescape"),
        (2, "stderr", "backslashreplace"),
    ):
        raw = io.FileIO(descriptor, "r" if descriptor == 0 else "w", closefd=False)
        raw.name = f"<{name}>"
        buffer = io.BufferedReader(raw) if descriptor == 0 else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, line_buffering=descriptor != 0)
        stream.mode = "r" if descriptor == 0 else "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _read_all(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def _reseed() -> None:
    """What the launcher's imports have used up: `random` reseeds itself after a fork, these do not."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._counter = itertools.count(1).__next__  # type: ignore[attr-defined]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp_exec", "unshare")]:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def _make_main_module() -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=_PATH, __cached__=None, __annotations__={}, __builtins__=sys.modules["builtins"])
    module.__loader__ = SourceFileLoader("__main__", _PATH)
    sys.modules["__main__"] = module
    return module


def _run(module: types.ModuleType, source: bytes) -> int:
    try:
        exec(compile(source, _PATH, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the product's purpose
    except SystemExit as stop:
        return _exit_status(stop)
    except BaseException as error:
        raised = error
    else:
        return 0
    return _show(raised)  # outside of the handler, or what a hook raises would be shown as its consequence


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> int:
    traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frame
    error.__traceback__ = traceback
    try:
        sys.excepthook(type(error), error, traceback)
    except SystemExit as stop:
        return _exit_status(stop)
    except BaseException as failure:
        print("Error in sys.excepthook:", file=sys.stderr)
        failure.__traceback__ = failure.__traceback__ and failure.__traceback__.tb_next
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, traceback)
    if isinstance(error, KeyboardInterrupt):
        return -signal.SIGINT
    return 1


def _end(module: types.ModuleType, status: int) -> int:
    """In CPython's order: threads, atexit, globals, streams. `Py_FinalizeEx` costs 20 ms more and adds nothing."""
    try:
        import atexit

        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        sys.modules.pop("__main__", None)
        module.__dict__.clear()
        gc.collect()
    except SystemExit as stop:
        status = _exit_status(stop)
    except BaseException as error:
        _show(error)  # of a signal handler: it may run at any moment
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # it may be an object of the program's
            status = status or (120 if stream is sys.stdout and stream is not None else 0)
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status
