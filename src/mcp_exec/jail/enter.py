"""[init, payload] The two ordered lists. Read this file first: the order is the security.

`build` runs in init (pid 1 of the run) with the capabilities of the outer user namespace, which it loses in the end.
`confine` runs in the payload and leaves it with nothing. A failing step ends the run; `step` says which it was.
"""

from __future__ import annotations

import os

from mcp_exec.jail import descriptors, landlock, mounts, namespaces, privileges, rlimits, seccomp, share, syscalls
from mcp_exec.jail.spec import JailSpec
from mcp_exec.jail.stage import Stage, Step


def build(spec: JailSpec, step: Step, *, slot: int, outer_ids: tuple[int, int], cgroup: int | None) -> None:
    """List 1, in init. slot: which of the concurrent runs, outer_ids: the launcher's uid and gid."""
    owner = spec.host_uid_base + slot if spec.privileged else spec.inner_id
    step.stage = Stage.CGROUP
    if cgroup is not None:
        os.write(cgroup, b"0")
    step.stage = Stage.SHARE
    share.offer_to_oom_killer()
    if spec.affinities:
        share.stay_on(spec.affinities[slot])
    step.stage = Stage.OUTER_USER_NAMESPACE
    if not spec.privileged:
        namespaces.write_id_map(spec.inner_id, *outer_ids)
    step.stage = Stage.CGROUP_NAMESPACE
    syscalls.unshare(syscalls.CLONE_NEWCGROUP)
    step.stage = Stage.HOSTNAME
    _set_hostname(spec.hostname)
    step.stage = Stage.LOOPBACK
    namespaces.raise_loopback()
    step.stage = Stage.ROOT
    mounts.make_root(spec)
    step.stage = Stage.WORKSPACE
    mounts.mount_workspace(spec, owner)
    step.stage = Stage.BINDS
    mounts.bind_system(spec)
    step.stage = Stage.SYNTHETIC_FILES
    mounts.write_files(spec)
    step.stage = Stage.DEVICES
    mounts.bind_devices(spec)
    step.stage = Stage.PROC
    mounts.mount_proc(spec)
    step.stage = Stage.SEAL_ROOT
    mounts.seal_root()
    step.stage = Stage.HOST_IDS
    if spec.privileged:
        namespaces.leave_host_ids(owner)
    step.stage = Stage.INNER_USER_NAMESPACE
    namespaces.enter_inner_user_namespace(spec)


def confine(spec: JailSpec, step: Step, *, stdin: int, stdout: int, stderr: int, kept: tuple[int, ...]) -> None:
    """List 2, in the payload. kept: the code and status pipes, closed before the program runs."""
    step.stage = Stage.SESSION
    os.setsid()
    os.chdir("/workspace")
    step.stage = Stage.DESCRIPTORS
    descriptors.place_standard(stdin, stdout, stderr)
    descriptors.keep_only(0, 1, 2, *kept)
    step.stage = Stage.PRIVILEGES
    privileges.drop_all()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # else its own /proc/self/fd is closed to it
    step.stage = Stage.RLIMITS
    rlimits.apply(spec)
    step.stage = Stage.LANDLOCK
    landlock.restrict(spec)
    step.stage = Stage.SECCOMP
    seccomp.install(spec)


def _set_hostname(name: str) -> None:
    import socket

    socket.sethostname(name)
