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
from mcp_exec.launcher.wire import Hello
from mcp_exec.policy_files import load_policy, policies_dir

#: Host ids of the slots of a privileged server; above what distributions give to people and services.
HOST_UID_BASE = 700001
INNER_ID = 65532
_FORBIDDEN = ("/etc", "/root", "/home", "/var", "/run", "/sys", "/proc", "/dev", "/tmp", "/dev/shm", "/workspace")
_SCAFFOLDS = ("/tmp", "/usr")


def compile_seccomp(name: str) -> bytes:
    """The BPF of a policy; one other than the default is refused where it opens what the floor denies."""
    policy = load_policy(name)
    if name != "default":
        check_floor(policy)
    return compile_policy(policy)


def make_spec(config: Config, hello: Hello) -> JailSpec:
    """Raises ConfigError where a policy or the interpreter's place cannot be used."""
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
        workspace_bytes=config.workspace_bytes,
        workspace_inodes=max(1024, config.workspace_bytes // 4096),
        rlimits=_rlimits(config),
        environment=tuple(_environment(config, hello).items()),
        landlock_abi=hello.landlock_abi,
        seccomp=compile_seccomp(config.policy),
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


def _rlimits(config: Config) -> tuple[tuple[int, int, int], ...]:
    # CORE is 1, not 0: only 1 keeps a piped core_pattern helper of the host from running (core(5)).
    # DATA stops a runaway allocation; thread stacks count in it, hence the factor.
    return (
        (resource.RLIMIT_CORE, 1, 1),
        (resource.RLIMIT_NPROC, config.pids, config.pids),
        (resource.RLIMIT_FSIZE, config.workspace_bytes, config.workspace_bytes),
        (resource.RLIMIT_NOFILE, 1024, 4096),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 819200, 819200),
        (resource.RLIMIT_DATA, 4 * config.memory_bytes, 4 * config.memory_bytes),
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
