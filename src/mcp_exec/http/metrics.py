"""[server] What an operator may count: calls, durations, kills, the queue. Nothing of a caller's."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from mcp_exec import __version__
from mcp_exec.runner import Runner

#: ok and failed: the program ended, with 0 or not. no_jail: a fault of the host's. internal: one of ours.
OUTCOMES = ("ok", "failed", "invalid", "busy", "cancelled", "no_jail", "internal")
LIMITS = ("time", "memory", "pids")
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """A registry of our own, in the Prometheus text format."""

    def __init__(self, runner: Runner) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._calls = Counter("mcp_exec_calls", "Calls of exec that ended.", ["outcome"], registry=self._registry)
        self._limits = Counter(
            "mcp_exec_limit", "Runs that a limit ended or that ran into it.", ["limit"], registry=self._registry
        )
        self._seconds = Histogram(
            "mcp_exec_call_seconds", "From a call to its answer.", buckets=_SECONDS, registry=self._registry
        )
        for outcome in OUTCOMES:  # a series that begins with its first event has no rate for it
            self._calls.labels(outcome)
        for limit in LIMITS:
            self._limits.labels(limit)
        self._gauge("mcp_exec_running", "Runs at work.").set_function(lambda: runner.running)
        self._gauge("mcp_exec_queued", "Calls that wait for a run to end.").set_function(lambda: runner.waiting)
        self._gauge("mcp_exec_warm", "Jails that are ready for a program.").set_function(lambda: runner.ready)
        self._gauge("mcp_exec_draining", "1 while the server is about to end.").set_function(lambda: runner.draining)
        Gauge("mcp_exec_info", "Constant.", ["version"], registry=self._registry).labels(__version__).set(1)
        ProcessCollector(registry=self._registry)

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(name, words, registry=self._registry)

    def observe(self, outcome: str, seconds: float, limit: str) -> None:
        """Count one call that has ended."""
        self._calls.labels(outcome).inc()
        self._seconds.observe(seconds)
        if limit:
            self._limits.labels(limit).inc()

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)
