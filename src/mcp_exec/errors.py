"""[leaf] Errors, split by blame. A user program that fails is a value (`ExecResult`), never one of these."""

from __future__ import annotations


class McpExecError(Exception):
    """Base of all errors that are worded for a person; `str()` is one line."""


class InvalidInput(McpExecError):
    """The caller's fault: blank code, stdin over its cap, wrong types. Becomes a tool error."""


class ConfigError(McpExecError):
    """The operator's fault: a variable, a policy or a file that cannot be used. Exit status 2."""


class Busy(McpExecError):
    """Nobody's fault: the queue is full or the server is shutting down. Becomes a tool error."""


class CannotJail(McpExecError):
    """The host's fault: a wall cannot be built. Names the stage, the errno, the likely cause and the fix."""


class LauncherDied(McpExecError):
    """The launcher ended during the call (killed, out of memory). The next call gets a new one."""


class Unhealthy(McpExecError):
    """A server did not answer a probe, or answered that it is not ready."""
