"""[server] The table of invariants for the host at hand, found by building a jail and looking around inside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import click

from mcp_exec.bounds import Bounds
from mcp_exec.config import Config, JailKind
from mcp_exec.errors import CannotJail, ConfigError
from mcp_exec.jail.spec import JailSpec
from mcp_exec.model import ExecRequest, SandboxFacts
from mcp_exec.runner import Runner

_PROBE_S = 30
_NO_CAPABILITY = "0000000000000000"
_UNSEEN = (
    "the processes of a run cannot be counted: mount /proc without hidepid, on a kernel with CONFIG_PROC_CHILDREN;"
    " or give the server a cgroup v2 subtree"
)
_BUG = "a wall that was built does not hold: please report this, with the output of `mcp-exec doctor --json`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """One invariant on this host. fix: what to do where it does not hold; empty where it does."""

    id: str
    invariant: str
    required: bool
    holds: bool
    mechanism: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found on this host."""

    walls: tuple[Wall, ...]
    facts: SandboxFacts


async def examine(config: Config, runner: Runner) -> Report:
    """A full dry run. Raises CannotJail where no jail can be built, ConfigError where another kind is asked for."""
    if config.jail is JailKind.LANDLOCK:
        raise ConfigError(
            "MCP_EXEC_JAIL='landlock' cannot be used: accepted is auto, namespaces; landlock is not built yet"
        )
    code = resources.files("mcp_exec").joinpath("jail/probe.py").read_text("utf-8")
    result = await runner.run(ExecRequest(code=code, timeout_s=_PROBE_S))
    try:
        seen = json.loads(result.stdout)
    except ValueError:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise CannotJail(
            f"the probe of the jail failed (exit status {result.exit_code}): {last}; is {config.python} a CPython?"
        ) from None
    walls = _judge(config, runner, seen)
    facts = SandboxFacts(
        python_version=str(seen["version"]),
        libraries=tuple((str(name), str(version)) for name, version in seen["libraries"]),
        walls=_summary(runner.spec),
        limits=_limits_in_words(runner.bounds),
        workspace_bytes=runner.bounds.limits.workspace_bytes,
    )
    return Report(walls=walls, facts=facts)


def require(report: Report) -> None:
    """Raises CannotJail, naming the first invariant that must hold and does not."""
    for wall in report.walls:
        if wall.required and not wall.holds:
            raise CannotJail(
                f"{wall.id} ({wall.invariant}) does not hold on this host: {wall.mechanism}; the fix: {wall.fix}"
            )


def _summary(spec: JailSpec) -> str:
    landlock = ", Landlock" if spec.landlock_abi else ""
    return f"own user, mount, pid, net, ipc, uts and cgroup namespaces, seccomp{landlock}, no capabilities"


def _judge(config: Config, runner: Runner, seen: Mapping[str, Any]) -> tuple[Wall, ...]:
    """Each invariant from the probe's observations; an observation that is missing counts as a breach."""
    spec = runner.spec
    scopes = "; Landlock scopes" if spec.landlock_abi >= 6 else ""
    owner = "a host uid of its own" if spec.privileged else "the server's own uid outside"
    checks: list[tuple[str, str, Callable[[], bool], str]] = [
        ("I1", "no network", lambda: _no_network(seen), "empty network namespace; allowlist of socket families"),
        ("I2", "unprivileged", lambda: _unprivileged(spec, seen), f"inner user namespace; no capabilities; {owner}"),
        ("I3", "host files invisible or read-only", lambda: _files_sealed(seen), "private root, recursively read-only"
         + ("; Landlock" if spec.landlock_abi else "")),
        ("I4", "ephemeral workspace", lambda: _workspace_fresh(seen), "tmpfs of the run, gone with its namespace"),
        ("I5", "alone: nothing else seen or reached, nothing survives", lambda: _alone(seen),
         f"pid and ipc namespaces; everything dies with init{scopes}"),
        ("I6", "reduced kernel surface", lambda: _reduced(seen), f"seccomp policy {config.policy!r}"),
        ("I8", "output, stdin, time and disk bounded", lambda: _bounded(spec, seen),
         "caps, deadline, size and inodes of the tmpfs"),
    ]  # fmt: skip
    walls = [
        Wall(
            id=name,
            invariant=words,
            required=True,
            holds=(held := _held(check)),
            mechanism=mechanism,
            fix="" if held else _BUG,
        )
        for name, words, check, mechanism in checks
    ]
    walls.append(_limits(config, runner.bounds))
    if "landlock" in config.require:
        walls.append(_requested_landlock(spec))
    walls.append(
        Wall(id="I9", invariant="caller data never stored, never logged", required=True, holds=True,
             mechanism="by construction; the server is non-dumpable", fix="")
    )  # fmt: skip
    return tuple(sorted(walls, key=lambda wall: wall.id))


def _held(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (KeyError, TypeError, ValueError):
        return False


def _no_network(seen: Mapping[str, Any]) -> bool:
    return set(seen["interfaces"]) <= {"lo"} and seen["connect"] is not None and seen["raw_socket"] is not None


def _unprivileged(spec: JailSpec, seen: Mapping[str, Any]) -> bool:
    if not seen["proc"]:  # nothing to read it from; the call that would need a capability stands for it
        return bool(seen["uid"] == spec.inner_id and seen["unshare"] is not None)
    return bool(
        seen["uid"] == spec.inner_id and seen["no_new_privs"] == "1" and set(seen["capabilities"]) == {_NO_CAPABILITY}
    )


def _files_sealed(seen: Mapping[str, Any]) -> bool:
    return None not in seen["write"].values() and not seen["present"]


def _workspace_fresh(seen: Mapping[str, Any]) -> bool:
    return set(seen["scratch"].values()) == {None} and not seen["leftovers"]


def _alone(seen: Mapping[str, Any]) -> bool:
    return bool(seen["parent"] == 1 and seen["processes"] == (2 if seen["proc"] else 0))


def _reduced(seen: Mapping[str, Any]) -> bool:
    return seen["keyctl"] is not None and seen["unshare"] is not None and seen["seccomp"] in ("2", None)


def _bounded(spec: JailSpec, seen: Mapping[str, Any]) -> bool:
    return bool(seen["workspace_bytes"] <= spec.workspace_bytes + 4096)


def _limits(config: Config, bounds: Bounds) -> Wall:
    """Missing where a mechanism was found not to work; "partly" where it is the fallback's."""
    absence = bounds.absence
    fix = absence.fix if absence is not None else ""
    if fix and "cgroup" in config.require:
        fix += "; or do not ask for it with MCP_EXEC_REQUIRE"
    return Wall(
        id="I7",
        invariant="memory, pids and cpu limits per run",
        required="cgroup" in config.require or not bounds.works,
        holds=absence is None and bounds.works,
        mechanism=bounds.mechanism,
        fix=fix if bounds.works else _UNSEEN,
    )


def _limits_in_words(bounds: Bounds) -> str:
    """For the model that reads the tool's description."""
    limits = bounds.limits
    how = "cgroup v2" if bounds.subtree is not None else "rlimits and a watchdog, no cgroup"
    return f"{limits.memory_bytes >> 20} MiB of memory and {limits.cpus:g} CPU in all (held by {how})"


def _requested_landlock(spec: JailSpec) -> Wall:
    return Wall(
        id="I3+",
        invariant="Landlock, by MCP_EXEC_REQUIRE",
        required=True,
        holds=bool(spec.landlock_abi),
        mechanism=f"Landlock ABI {spec.landlock_abi}",
        fix="" if spec.landlock_abi else "boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in its lsm= list",
    )


def run_doctor(config: Config, *, as_json: bool) -> int:
    """Print the table; 1 where a required invariant does not hold or no jail can be built."""
    try:
        report = asyncio.run(_examine_once(config))
    except CannotJail as error:
        click.echo(json.dumps({"ok": False, "error": str(error), "walls": []}) if as_json else f"no jail: {error}")
        return 1
    ok = all(wall.holds for wall in report.walls if wall.required)
    if as_json:
        click.echo(json.dumps({"ok": ok, "error": "", **asdict(report)}, indent=2))
    else:
        _print_table(report, ok=ok)
    return 0 if ok else 1


async def _examine_once(config: Config) -> Report:
    async with Runner(config) as runner:
        return await examine(config, runner)


def _print_table(report: Report, *, ok: bool) -> None:
    click.echo(f"sandbox: CPython {report.facts.python_version}, {len(report.facts.libraries)} distributions\n")
    for wall in report.walls:
        state = "holds" if wall.holds else "MISSING" if wall.required else "partly"
        click.echo(f"{wall.id}{'*' if wall.required else ' ':<3} {state:<8} {wall.invariant}: {wall.mechanism}")
        if wall.fix:
            click.echo(f"{'':14}fix: {wall.fix}")
    click.echo(f"\n{'The server starts here' if ok else 'The server refuses to start here'} (* must hold).")
