"""[server] Policies + Config + what the launcher found -> one JailSpec. All decisions of a jail are taken here."""

from __future__ import annotations

import os
import resource
import tomllib
from typing import Any

from mcp_exec.bpf import compile_policy
from mcp_exec.config import Config
from mcp_exec.errors import ConfigError
from mcp_exec.floor import check_floor
from mcp_exec.jail.spec import JailSpec
from mcp_exec.kernel import kernel_release
from mcp_exec.launcher.wire import Hello
from mcp_exec.limits import Limits
from mcp_exec.policy_files import load_policy, policies_dir

#: Host ids of the slots of a privileged server; above what distributions give to people and services.
HOST_UID_BASE = 700001
INNER_ID = 65532
_FORBIDDEN = ("/etc", "/root", "/home", "/var", "/run", "/sys", "/proc", "/dev", "/tmp", "/dev/shm", "/workspace")
_SCAFFOLDS = ("/tmp", "/usr")
_DATA_FACTOR = 4
#: RLIMIT_NPROC above pids.max, so that the cgroup counts the refusal: a run is told why only by pids.events
_PIDS_SLACK = 16
#: From Linux 5.14 on RLIMIT_NPROC counts per user namespace; before, all that the host's user runs
_COUNTS_PER_NAMESPACE = (5, 14)


def compile_seccomp(name: str, *, cgroup: bool) -> tuple[bytes, ...]:
    """The programs to install, in this order. A policy of the operator's own comes last and on top of the default:
    it can deny more, and not open what the default denies; one that means to is refused by name.
    """
    policy = load_policy(name)
    names = [*(() if cgroup else ("without-cgroup",)), "default"]
    if name == "default":
        return tuple(compile_policy(load_policy(each)) for each in names)
    check_floor(policy)
    return (*(compile_policy(load_policy(each)) for each in names), compile_policy(policy))


def make_spec(config: Config, hello: Hello, limits: Limits, *, cgroup: bool) -> JailSpec:
    """cgroup: whether each run has one. Raises ConfigError where a policy or the interpreter's place cannot be used."""
    rootfs = _load_rootfs()
    binds, links = _resolve_binds(rootfs["binds"], hello.prefixes)
    return JailSpec(
        privileged=hello.privileged,
        host_uid_base=HOST_UID_BASE,
        inner_id=INNER_ID,
        hostname="mcp-exec",
        scaffold=next(path for path in _SCAFFOLDS if os.path.isdir(path)),
        binds=binds,
        links=links,
        files=_synthetic_files(),
        devices=tuple(path for path in rootfs["devices"] if os.path.exists(path)),
        masks=tuple(rootfs["masks"]),
        workspace_bytes=limits.workspace_bytes,
        workspace_inodes=max(1024, limits.workspace_bytes // 4096),
        rlimits=_rlimits(config, hello, limits, cgroup=cgroup),
        affinities=() if cgroup else _affinities(config),
        fetch_ahead=limits.fetch_ahead,
        interpreter=hello.executable if config.fresh_interpreter else "",
        environment=tuple(_environment(config, hello).items()),
        landlock_abi=hello.landlock_abi,
        seccomp=compile_seccomp(config.policy, cgroup=cgroup),
    )


def _load_rootfs() -> dict[str, Any]:
    return tomllib.loads(policies_dir().joinpath("rootfs.toml").read_text("utf-8"))


def _resolve_binds(system: list[str], prefixes: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Directories to bind, shortest first, none below another; and symlinks to recreate."""
    links = tuple((path, os.readlink(path)) for path in system if os.path.islink(path))
    wanted = {path for path in system if os.path.isdir(path) and not os.path.islink(path)}
    for prefix in prefixes:
        if prefix in ("/", *_FORBIDDEN) or not os.path.isdir(prefix):
            raise ConfigError(
                f"MCP_EXEC_PYTHON: its prefix {prefix} cannot be shown to a jail; use a virtual environment"
            )
        if prefix != "/usr":  # its bin and lib are listed already; the rest is no business of the jail
            wanted.update((prefix, os.path.realpath(prefix)))
    return tuple(sorted(path for path in wanted if not any(path.startswith(f"{other}/") for other in wanted))), links


def _synthetic_files() -> tuple[tuple[str, str], ...]:
    user = f"sandbox:x:{INNER_ID}:{INNER_ID}:sandbox:/workspace:/bin/sh\n"
    return (
        ("/etc/passwd", user),
        ("/etc/group", f"sandbox:x:{INNER_ID}:\n"),
        ("/etc/hosts", "127.0.0.1 localhost mcp-exec\n::1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("/etc/timezone", "Etc/UTC\n"),
    )


def _rlimits(config: Config, hello: Hello, limits: Limits, *, cgroup: bool) -> tuple[tuple[int, int, int], ...]:
    # CORE is 1, not 0: only 1 keeps a piped core_pattern helper of the host from running (core(5)).
    # CPU is a backstop behind the deadline: no process can use more in a whole run.
    # DATA stops a runaway allocation; thread stacks count in it, hence the factor.
    cpu_s = config.max_timeout_s * config.threads + 1
    both = {
        resource.RLIMIT_CORE: 1,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: limits.workspace_bytes,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 819200,
        resource.RLIMIT_DATA: _DATA_FACTOR * limits.memory_bytes,
    }
    if hello.privileged or kernel_release() >= _COUNTS_PER_NAMESPACE:
        both[resource.RLIMIT_NPROC] = limits.pids + (_PIDS_SLACK if cgroup else 0)
    return ((resource.RLIMIT_NOFILE, 1024, 4096), *((number, value, value) for number, value in both.items()))


def _affinities(config: Config) -> tuple[tuple[int, ...], ...]:
    """For each slot as many processors as the limit, rounded up, allows; neighbours get different ones.

    Slot n and slot n + concurrency get the same: the pool hands out those with other remainders first.
    """
    ours = sorted(os.sched_getaffinity(0))
    width = min(config.threads, len(ours))
    return tuple(
        tuple(sorted(ours[(slot % config.concurrency * width + each) % len(ours)] for each in range(width)))
        for slot in range(config.concurrency + config.warm)
    )


def _environment(config: Config, hello: Hello) -> dict[str, str]:
    threads = str(config.threads)
    home = "/workspace"
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": f"{home}/.config/matplotlib",
        "PATH": f"{os.path.dirname(hello.executable)}:/usr/local/bin:/usr/bin:/bin",
        "PYTHON_CPU_COUNT": threads,
        "TMPDIR": "/tmp",
        "TZ": "UTC",
        "USER": "sandbox",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), threads),
    }
