"""[leaf] Configuration from the environment: every value validated at start, an error names the variable."""

from __future__ import annotations

import enum
import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mcp_exec.address import Address
from mcp_exec.variables import GIB, KIB, MIB, Reader, is_host, is_origin, refusal

#: The sandbox libraries, and what they would import only when a program uses them
_SANDBOX_MODULES = (
    "numpy",
    "pandas",
    "pandas.io.formats.csvs",
    "pandas.io.formats.string",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "PIL.Image",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "yaml",
    "jinja2",
)


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
    reader = Reader(environ)
    cpus = os.cpu_count() or 1
    config = Config(
        transport=reader.choice("TRANSPORT", Transport, Transport.STDIO),
        addr=reader.address("ADDR", ":8080"),
        stateless=reader.flag("STATELESS"),
        allowed_hosts=reader.words("ALLOWED_HOSTS", is_host, "hosts as in a Host header, without a scheme"),
        allowed_origins=reader.words("ALLOWED_ORIGINS", is_origin, "origins such as https://app.example.org"),
        drain_s=reader.integer("DRAIN_S", 30, 0, 86400),
        default_timeout_s=reader.integer("DEFAULT_TIMEOUT_S", 30, 1, 86400),
        max_timeout_s=reader.integer("MAX_TIMEOUT_S", 300, 1, 86400),
        max_output_bytes=reader.size("MAX_OUTPUT_BYTES", MIB, KIB, 64 * MIB),
        max_stdin_bytes=reader.size("MAX_STDIN_BYTES", MIB, 0, 64 * MIB),
        python=_find_python(reader.text("PYTHON", "python3")),
        auth_token=reader.secret("AUTH_TOKEN"),
        memory_bytes=reader.size("MEMORY", 512 * MIB, 64 * MIB, 1024 * GIB),
        pids=reader.integer("PIDS", 128, 8, 32768),
        cpus=reader.real("CPUS", 1.0, 0.05, 1024.0),
        workspace_bytes=reader.size("WORKSPACE", 64 * MIB, MIB, 64 * GIB),
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
        raise refusal(
            "DEFAULT_TIMEOUT_S",
            str(config.default_timeout_s),
            f"at most MCP_EXEC_MAX_TIMEOUT_S ({config.max_timeout_s})",
        )
    return config


def _find_python(name: str) -> Path:
    """A path as given, or a bare name looked for beside the server's own interpreter first, then on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if "/" not in name and os.access(beside, os.X_OK) else shutil.which(name)
    if not name or found is None or not os.path.isfile(found):
        raise refusal("PYTHON", name, "an executable file, or the name of one on PATH")
    return Path(os.path.abspath(found))  # not resolved: a virtual environment is known by its own path
