"""How long `muster up` takes from the start of the process until it is ready, and how much memory it needs then."""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.api.codec import Objects
from muster.cli.bench.server import running

SIZES = (10, 1000, 5000)
REPEATS = 3
SETTLES_S = 3.0
"""When memory is read after the last start: by then all components hold their copies."""


def run(progress: Callable[[str], None]) -> Objects:
    """A row a cluster size: the best and the worst of three starts, in seconds, and the peak memory in MB."""
    rows: Objects = []
    for nodes in SIZES:
        times_s: list[float] = []
        peak_mb = 0
        for repeat in range(REPEATS):
            progress(f"{nodes} nodes, start {repeat + 1} of {REPEATS}")
            with running(["--nodes", str(nodes)]) as server:
                times_s.append(server.ready_s)
                if repeat == REPEATS - 1:
                    time.sleep(SETTLES_S)
                peak_mb = max(peak_mb, server.peak_mb())
        rows.append(
            {"nodes": nodes, "ready_s": round(min(times_s), 2), "worst_s": round(max(times_s), 2), "peak_mb": peak_mb}
        )
    return rows
