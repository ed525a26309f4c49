"""[launcher] One single-threaded CPython, exec'ed by the server with an empty environment; forks an init per run.

It imports what programs commonly need, so that a jail starts with it. It never sees code, stdin or output: only
descriptors pass through. Started as the script `main.py`, with the control socket as standard input and nothing in
argv or environment: the payload can read both in /proc/self.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # the sandbox interpreter need not have this package: borrow its folder for the imports
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import functools
import gc
import select
import signal
import socket
from collections.abc import Sequence

from mcp_exec.jail import init, namespaces, syscalls
from mcp_exec.jail.spec import JailSpec, Page
from mcp_exec.jail.stage import Stage
from mcp_exec.launcher import imports, pages, wire
from mcp_exec.payload.main import prepare_payload, run_payload

_CAP_SYS_ADMIN = 21
_MAX_SPEC_BYTES = 4 << 20


def main() -> None:
    """Greet, take the spec, then serve until the server closes the socket."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    control = _take_control()
    imports.become_neutral()
    data, descriptors, _, _ = socket.recv_fds(control, wire.MAX_MESSAGE_BYTES, 1)
    prepare = wire.Prepare.decode(data)
    can_unshare = imports.borrow_unshare(descriptors)
    imports.preimport(prepare)
    control.send(_greet(can_unshare=can_unshare).encode())
    _, descriptors, _, _ = socket.recv_fds(control, 16, 1)
    spec = JailSpec.decode(os.pread(descriptors[0], _MAX_SPEC_BYTES, 0))
    os.close(descriptors[0])
    imports.forget_host((*spec.binds, "/workspace"), dict(spec.environment))
    _reset_signals()
    gc.collect()
    gc.freeze()  # the collector must not touch, and so copy, what was loaded before the fork
    touched = pages.learn(prepare.modules) if spec.fetch_ahead else ()
    gc.freeze()
    _serve(control, spec, touched)


def _take_control() -> socket.socket:
    """The control socket, moved away from standard input, where /dev/null takes its place."""
    control = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return control


def _greet(*, can_unshare: bool) -> wire.Hello:
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    return wire.Hello(
        version=".".join(map(str, sys.version_info[:3])),
        implementation=sys.implementation.name,
        executable=sys.executable,
        prefixes=tuple(dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))),
        privileged=bool(effective >> _CAP_SYS_ADMIN & 1),
        landlock_abi=syscalls.landlock_abi(),
        can_unshare=can_unshare,
    )


def _reset_signals() -> None:
    """As CPython leaves them at start: two ignored, SIGINT a KeyboardInterrupt, the rest at their defaults."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT}:
        ignored = number in (signal.SIGPIPE, signal.SIGXFSZ)  # so that they are errors: EPIPE, EFBIG
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _serve(control: socket.socket, spec: JailSpec, touched: Sequence[Page]) -> None:
    lifeline, held = os.pipe()
    children: dict[int, int] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == control.fileno():
                if not _one_request(control, spec, touched, (lifeline, held), children, poller):
                    return
            else:
                poller.unregister(descriptor)
                os.waitpid(children.pop(descriptor), 0)
                os.close(descriptor)


def _one_request(
    control: socket.socket,
    spec: JailSpec,
    touched: Sequence[Page],
    life: tuple[int, int],
    children: dict[int, int],
    poller: select.poll,
) -> bool:
    data, received, _, _ = socket.recv_fds(control, wire.MAX_MESSAGE_BYTES, wire.MAX_DESCRIPTORS)
    if not data:
        return False
    slot, ahead = wire.decode_run(data)
    code, stdin, stdout, stderr, status, *rest = received
    pipes = init.RunPipes(
        code=code, stdin=stdin, stdout=stdout, stderr=stderr, status=status, cgroup=rest[0] if rest else None
    )
    try:
        _prove_one_thread()
        ids = (os.geteuid(), os.getegid())
        pid = syscalls.clone(namespaces.clone_flags(spec))
    except OSError as error:
        control.send(wire.encode_refused(Stage.FORK, error.errno or 0))
    else:
        if pid == 0:
            control.close()
            os.close(life[1])
            children.clear()  # host pids, which a program could find in this frame
            init.run_init(
                spec,
                pipes,
                slot=slot,
                outer_ids=ids,
                lifeline=life[0],
                prepare=functools.partial(prepare_payload, pages=touched if ahead else ()),
                payload=run_payload,
            )
        handle = os.pidfd_open(pid)
        children[handle] = pid
        poller.register(handle, select.POLLIN)
        socket.send_fds(control, [wire.encode_started(pid)], [handle])
    for descriptor in received:
        os.close(descriptor)
    return True


def _prove_one_thread() -> None:
    if len(os.listdir("/proc/self/task")) != 1:
        raise BlockingIOError(11, "the launcher has more than one thread")


if __name__ == "__main__":
    main()
