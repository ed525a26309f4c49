"""What is read from the kernel's texts, how limits are fitted to it, and who is blamed for what: without a jail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mcp_exec.cgroup.locate import Place, parse_place
from mcp_exec.config import load_config
from mcp_exec.errors import ConfigError, LauncherDied
from mcp_exec.jail.stage import Kind
from mcp_exec.jail_handle import Record
from mcp_exec.limits import LimitFacts, Limits, fit
from mcp_exec.model import ExecRequest, ExecResult
from mcp_exec.outcome import join
from mcp_exec.output import Output

MIB = 1 << 20
REST = "25 1 0:22 / /proc rw,relatime - proc proc rw\n"


def mounted(root: str, point: str, options: str = "rw,nosuid", super_options: str = "rw,nsdelegate") -> str:
    return f"30 25 0:26 {root} {point} {options} shared:4 - cgroup2 cgroup2 {super_options}\n"


@pytest.mark.parametrize(
    ("mounts", "membership", "expected"),
    [
        (mounted("/", "/sys/fs/cgroup"), "0::/user.slice/a.scope\n", ("/sys/fs/cgroup", "/user.slice/a.scope", False)),
        (mounted("/", "/sys/fs/cgroup"), "0::/\n", ("/sys/fs/cgroup", "", False)),
        (mounted("/", "/sys/fs/cgroup", "ro,nosuid"), "0::/\n", ("/sys/fs/cgroup", "", True)),
        (mounted("/", "/sys/fs/cgroup", super_options="ro"), "0::/\n", ("/sys/fs/cgroup", "", True)),
        (mounted("/", "/sys/fs/cgroup/unified"), "4:memory:/x\n0::/y\n", ("/sys/fs/cgroup/unified", "/y", False)),
        (mounted("/pod", "/sys/fs/cgroup"), "0::/pod/c\n", ("/sys/fs/cgroup", "/c", False)),
        (mounted("/pod", "/sys/fs/cgroup"), "0::/pod\n", ("/sys/fs/cgroup", "", False)),
        (mounted("/pod", "/sys/fs/cgroup"), "0::/podium\n", None),
        (mounted("/other", "/mnt") + mounted("/", "/cg"), "0::/a\n", ("/cg", "/a", False)),
        (mounted("/", "/a") + mounted("/", "/b"), "0::/\n", ("/b", "", False)),
        (mounted("/", "/with\\040blank"), "0::/a\n", ("/with blank", "/a", False)),
        (mounted("/", "/sys/fs/cgroup"), "0::/../..\n", None),
        (mounted("/", "/sys/fs/cgroup"), "1:name=systemd:/\n", None),
        ("", "0::/\n", None),
    ],
)
def test_our_place_is_found(mounts: str, membership: str, expected: tuple[str, str, bool] | None) -> None:
    found = parse_place(REST + mounts + REST, membership)
    if expected is None:
        assert found is None
    else:
        mount, below, read_only = expected
        assert found == Place(mount=Path(mount), own=Path(mount + below), read_only=read_only)


CONFIG = replace(load_config({}), memory_bytes=512 * MIB, workspace_bytes=64 * MIB, warm=2)


@pytest.mark.parametrize(
    ("left_mib", "memory_mib", "together_mib", "workspace_mib"),
    [(None, 512, None, 64), (4096, 512, 4080, 64), (136, 112, 120, 56), (32, 16, 16, 8)],
)
def test_limits_fit_what_is_left(
    left_mib: int | None, memory_mib: int, together_mib: int | None, workspace_mib: int
) -> None:
    limits = fit(CONFIG, None if left_mib is None else left_mib * MIB)
    assert limits.memory_bytes == memory_mib * MIB
    assert limits.together_bytes == (None if together_mib is None else together_mib * MIB)
    assert limits.workspace_bytes == workspace_mib * MIB


@pytest.mark.parametrize(
    ("left_mib", "memory_mib", "asked", "warm", "fetch_ahead", "given_mib"),
    [
        (None, 512, 64, 64, True, 512),
        (None, 128, 2, 2, False, 128),  # pages that few programs touch would be a large part of it
        (None, 512, 0, 0, False, 512),
        (528, 512, 2, 2, True, 448),
        (400, 512, 2, 2, False, 368),
        (144, 512, 8, 2, False, 112),
        (64, 512, 8, 0, False, 48),
    ],
)
def test_ready_jails_take_a_small_part_of_what_is_left(
    left_mib: int | None, memory_mib: int, asked: int, warm: int, fetch_ahead: bool, given_mib: int
) -> None:
    config = replace(CONFIG, memory_bytes=memory_mib * MIB, warm=asked)
    limits = fit(config, None if left_mib is None else left_mib * MIB)
    assert (limits.warm, limits.fetch_ahead, limits.memory_bytes) == (warm, fetch_ahead, given_mib * MIB)


@pytest.mark.parametrize("left", [31 * MIB, 0, -5 * MIB])
def test_where_no_run_fits_the_server_does_not_start(left: int) -> None:
    with pytest.raises(ConfigError, match="MiB of memory are left"):
        fit(CONFIG, left)


LIMITS = Limits(
    memory_bytes=64 * MIB, together_bytes=None, pids=9, cpus=1.0, workspace_bytes=MIB, warm=0, fetch_ahead=False
)
OUT_OF_MEMORY = LimitFacts(memory_limit_bytes=64 * MIB)
OUT_OF_PIDS = LimitFacts(out_of_pids=True)
KILLED, FAILED, FINE = 9, 1 << 8, 0


def judged(facts: LimitFacts, status: int | None, *, timed_out: bool = False, stderr: bytes = b"") -> ExecResult:
    output = Output(1000)
    output.streams[1].extend(stderr)
    record = None if status is None else Record(Kind.EXITED, 0, status, 5, 7)
    return join(ExecRequest(code="1", timeout_s=3), output, record, facts, LIMITS, duration_ms=1, timed_out=timed_out)


MEMORY_LINE = "mcp-exec: the memory limit of 64 MiB ended the run\n"
TIME_LINE = "mcp-exec: the time limit of 3 s ended the run\n"


@pytest.mark.parametrize(
    ("facts", "status", "timed_out", "code", "line"),
    [
        (LimitFacts(), FINE, False, 0, ""),
        (LimitFacts(), KILLED, False, 137, ""),
        (OUT_OF_MEMORY, KILLED, False, 137, MEMORY_LINE),
        (OUT_OF_MEMORY, None, False, 137, MEMORY_LINE),
        (OUT_OF_MEMORY, None, True, -1, TIME_LINE),
        (OUT_OF_PIDS, FAILED, False, 1, "mcp-exec: the limit of 9 processes and threads was reached\n"),
        (OUT_OF_PIDS, FINE, False, 0, ""),
        (OUT_OF_PIDS, None, True, -1, TIME_LINE),
    ],
)
def test_who_is_blamed(facts: LimitFacts, status: int | None, timed_out: bool, code: int, line: str) -> None:
    result = judged(facts, status, timed_out=timed_out)
    assert (result.exit_code, result.stderr, result.timed_out) == (code, line, timed_out)


def test_the_blame_is_a_line_of_its_own() -> None:
    assert judged(OUT_OF_MEMORY, KILLED, stderr=b"half a line").stderr == "half a line\n" + MEMORY_LINE


def test_a_jail_that_ends_without_a_reason_is_no_result() -> None:
    with pytest.raises(LauncherDied):
        judged(LimitFacts(), None)


def test_the_counters_of_the_cgroup_go_before_those_of_init() -> None:
    usage = judged(LimitFacts(peak_memory_bytes=3, cpu_time_ms=4), FINE).usage
    assert (usage.peak_memory_bytes, usage.cpu_time_ms) == (3, 4)
    usage = judged(LimitFacts(), FINE).usage
    assert (usage.peak_memory_bytes, usage.cpu_time_ms) == (7 * 1024, 5)
