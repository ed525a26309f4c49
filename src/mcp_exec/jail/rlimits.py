"""[payload] Resource limits of each process: setrlimit(2). The values are the spec's."""

from __future__ import annotations

import resource

from mcp_exec.jail.spec import JailSpec


def apply(spec: JailSpec) -> None:
    """Lower each limit; never raise one above what the host gave us."""
    for number, soft, hard in spec.rlimits:
        _, ceiling = resource.getrlimit(number)
        bound = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(number, (min(soft, bound), bound))
