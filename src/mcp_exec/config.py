"""[leaf] Configuration from the environment: every value validated at start, an error names the variable."""

from __future__ import annotations

import enum
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mcp_exec.address import Address, parse_address
from mcp_exec.errors import ConfigError

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_SANDBOX_MODULES = ("numpy", "pandas", "matplotlib.pyplot", "PIL.Image", "yaml", "jinja2")
_T = TypeVar("_T")


class Transport(enum.Enum):
    """How clients reach the server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class JailKind(enum.Enum):
    """Which jail to build; AUTO takes the strongest that holds every required invariant."""

    AUTO = "auto"
    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"


class LogLevel(enum.Enum):
    """Least severe message that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Defaults and meanings are those of the README's table; sizes in bytes, times in seconds."""

    transport: Transport
    addr: Address
    stateless: bool
    allowed_hosts: frozenset[str]
    allowed_origins: frozenset[str]
    drain_s: int
    default_timeout_s: int
    max_timeout_s: int
    max_output_bytes: int
    max_stdin_bytes: int
    python: Path
    auth_token: str = field(repr=False)
    memory_bytes: int
    pids: int
    cpus: float
    workspace_bytes: int
    concurrency: int
    queue: int
    warm: int
    launcher_runs: int
    launcher_age_s: int
    preimport: tuple[str, ...]
    jail: JailKind
    require: frozenset[str]
    cgroup: str
    policy: str
    log_level: LogLevel
    unknown: tuple[str, ...]  # variables that look like ours and mean nothing: misspelt, or of another version

    @property
    def fresh_interpreter(self) -> bool:
        """Whether each program gets an interpreter of its own, exec'ed: nothing is prepared that it could share."""
        return not self.warm and not self.preimport

    @property
    def threads(self) -> int:
        """How many threads can work at once within `cpus`."""
        return math.ceil(self.cpus)


def load_config(environ: Mapping[str, str]) -> Config:
    """Raises ConfigError: one line with the variable, its value and what is accepted."""
    reader = _Reader(environ)
    cpus = os.cpu_count() or 1
    config = Config(
        transport=reader.choice("TRANSPORT", Transport, Transport.STDIO),
        addr=reader.address("ADDR", ":8080"),
        stateless=reader.flag("STATELESS"),
        allowed_hosts=reader.words("ALLOWED_HOSTS", _is_host, "hosts as in a Host header, without a scheme"),
        allowed_origins=reader.words("ALLOWED_ORIGINS", _is_origin, "origins such as https://app.example.org"),
        drain_s=reader.integer("DRAIN_S", 30, 0, 86400),
        default_timeout_s=reader.integer("DEFAULT_TIMEOUT_S", 30, 1, 86400),
        max_timeout_s=reader.integer("MAX_TIMEOUT_S", 300, 1, 86400),
        max_output_bytes=reader.size("MAX_OUTPUT_BYTES", _MIB, _KIB, 64 * _MIB),
        max_stdin_bytes=reader.size("MAX_STDIN_BYTES", _MIB, 0, 64 * _MIB),
        python=_find_python(reader.text("PYTHON", "python3")),
        auth_token=reader.secret("AUTH_TOKEN"),
        memory_bytes=reader.size("MEMORY", 512 * _MIB, 64 * _MIB, 1024 * _GIB),
        pids=reader.integer("PIDS", 128, 8, 32768),
        cpus=reader.real("CPUS", 1.0, 0.05, 1024.0),
        workspace_bytes=reader.size("WORKSPACE", 64 * _MIB, _MIB, 64 * _GIB),
        concurrency=reader.integer("CONCURRENCY", cpus, 1, 1024),
        queue=reader.integer("QUEUE", 64, 0, 65536),
        warm=reader.integer("WARM", reader.integer("CONCURRENCY", cpus, 1, 1024), 0, 1024),
        launcher_runs=reader.integer("LAUNCHER_RUNS", 1000, 1, 1_000_000_000),
        launcher_age_s=reader.integer("LAUNCHER_AGE_S", 3600, 1, 31_536_000),
        preimport=reader.names("PREIMPORT", _SANDBOX_MODULES),
        jail=reader.choice("JAIL", JailKind, JailKind.AUTO),
        require=frozenset(reader.names("REQUIRE", (), accepted=("cgroup", "landlock"))),
        cgroup=reader.cgroup("CGROUP"),
        policy=reader.text("POLICY", "default"),
        log_level=reader.choice("LOG_LEVEL", LogLevel, LogLevel.INFO),
        unknown=reader.unknown(),
    )
    if config.default_timeout_s > config.max_timeout_s:
        raise _refusal(
            "DEFAULT_TIMEOUT_S",
            str(config.default_timeout_s),
            f"at most MCP_EXEC_MAX_TIMEOUT_S ({config.max_timeout_s})",
        )
    return config


def _refusal(name: str, value: str, accepted: str) -> ConfigError:
    return ConfigError(f"MCP_EXEC_{name}={value!r} cannot be used: accepted is {accepted}")


@dataclass(frozen=True, slots=True)
class _Reader:
    environ: Mapping[str, str]
    asked: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        self.asked.add(name)
        return self.environ.get(f"MCP_EXEC_{name}")

    def unknown(self) -> tuple[str, ...]:
        ours = {name.removeprefix("MCP_EXEC_") for name in self.environ if name.startswith("MCP_EXEC_")}
        return tuple(f"MCP_EXEC_{name}" for name in sorted(ours - self.asked))

    def text(self, name: str, default: str) -> str:
        text = self.get(name)
        return default if text is None else text

    def _number(self, name: str, default: _T, parse: Callable[[str], _T], ok: Callable[[_T], bool], words: str) -> _T:
        text = (self.get(name) or "").strip()
        if not text:
            return default
        try:
            value = parse(text)
        except (ValueError, KeyError):
            raise _refusal(name, text, words) from None
        if not ok(value):
            raise _refusal(name, text, words)
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        return self._number(name, default, int, lambda v: low <= v <= high, f"a whole number from {low} to {high}")

    def real(self, name: str, default: float, low: float, high: float) -> float:
        return self._number(name, default, float, lambda v: low <= v <= high, f"a number from {low} to {high}")

    def size(self, name: str, default: int, low: int, high: int) -> int:
        words = f"bytes, or a number with k, m or g, from {low} to {high} bytes"
        return self._number(name, default, _parse_size, lambda v: low <= v <= high, words)

    def address(self, name: str, default: str) -> Address:
        words = "host:port, :port for every interface, [IPv6 address]:port"
        return self._number(name, parse_address(default), parse_address, lambda _: True, words)

    def flag(self, name: str) -> bool:
        return self._number(name, False, lambda text: _FLAGS[text.lower()], lambda _: True, "true or false")

    def words(self, name: str, ok: Callable[[str], bool], meaning: str) -> frozenset[str]:
        found = [part.strip().lower() for part in self.text(name, "").split(",")]
        return self._number(
            name,
            frozenset(),
            lambda _: frozenset(filter(None, found)),
            lambda v: all(map(ok, v)),
            f"a list of {meaning}",
        )

    def secret(self, name: str) -> str:
        """Never quoted. A header cannot carry what is refused here, so that no request would match."""
        text = self.text(name, "")
        if text != text.strip() or not text.isprintable():
            raise ConfigError(f"MCP_EXEC_{name} cannot be used: accepted is text without white space at its ends")
        return text

    def choice(self, name: str, kind: type[_E], default: _E) -> _E:
        words = ", ".join(str(member.value) for member in kind)
        return self._number(name, default, lambda text: kind(text.lower()), lambda _: True, words)

    def cgroup(self, name: str) -> str:
        words = "auto, off, or the absolute path of a cgroup v2 directory"
        return self._number(name, "auto", str, lambda v: v in ("auto", "off") or v.startswith("/"), words)

    def names(self, name: str, default: tuple[str, ...], accepted: tuple[str, ...] = ()) -> tuple[str, ...]:
        text = self.get(name)
        if text is None:
            return default
        found = tuple(part.strip() for part in text.split(",") if part.strip())
        if accepted and not set(found) <= set(accepted):
            raise _refusal(name, text, "a comma-separated list of " + ", ".join(accepted))
        if not accepted and not all(part.replace(".", "_").isidentifier() for part in found):
            raise _refusal(name, text, "a comma-separated list of module names")
        return found


_E = TypeVar("_E", bound=enum.Enum)
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _is_host(text: str) -> bool:
    return not any(character in text for character in "/@ *")


def _is_origin(text: str) -> bool:
    scheme, _, authority = text.partition("://")
    return text == "null" or (scheme.isalpha() and bool(authority) and _is_host(authority))


def _parse_size(text: str) -> int:
    number = text.lower().removesuffix("b").removesuffix("i")
    factor = {"k": _KIB, "m": _MIB, "g": _GIB}.get(number[-1:], 1)
    return int(number[:-1] if factor > 1 else number) * factor


def _find_python(name: str) -> Path:
    """A path as given, or a bare name looked for beside the server's own interpreter first, then on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if "/" not in name and os.access(beside, os.X_OK) else shutil.which(name)
    if not name or found is None or not os.path.isfile(found):
        raise _refusal("PYTHON", name, "an executable file, or the name of one on PATH")
    return Path(os.path.abspath(found))  # not resolved: a virtual environment is known by its own path
