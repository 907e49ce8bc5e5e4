"""How long `muster up` takes from the start of the process until it is ready, and how much memory it needs then."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from muster.api.codec import Objects
from muster.cli.bench.server import running

SIZES = (10, 1000, 5000)
REPEATS = 5
SETTLES_S = 3.0
"""When memory is read after the last start: by then all components hold their copies."""


def run(progress: Callable[[str], None]) -> Objects:
    """A row a cluster size: the median and the worst of five starts, the median processor time, and the peak memory."""
    rows: Objects = []
    for nodes in SIZES:
        times_s: list[float] = []
        cpu_s: list[float] = []
        peak_mb = 0
        for repeat in range(REPEATS):
            progress(f"{nodes} nodes, start {repeat + 1} of {REPEATS}")
            with running(["--nodes", str(nodes)]) as server:
                times_s.append(server.ready_s)
                cpu_s.append(server.cpu_s())
                if repeat == REPEATS - 1:
                    time.sleep(SETTLES_S)
                peak_mb = max(peak_mb, server.peak_mb())
        rows.append(
            {
                "nodes": nodes,
                "ready_s": round(statistics.median(times_s), 2),
                "worst_s": round(max(times_s), 2),
                "cpu_s": round(statistics.median(cpu_s), 2),
                "peak_mb": peak_mb,
            }
        )
    return rows
