"""The demo's simulations without their pauses: simulated seconds for each second."""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.api.codec import Objects
from muster.cli.demo import ACTS, find_examples, play

REPEATS = 5


def run(progress: Callable[[str], None]) -> Objects:
    """A row an act: simulated seconds, the best wall time of five runs, and their quotient."""
    examples = find_examples()
    rows: Objects = []
    for act in ACTS:
        progress(act.name)
        walls_s: list[float] = []
        simulated_s = 0.0
        for _ in range(REPEATS):
            start = time.perf_counter()
            simulated_s = float(play(act, examples, seed=0)["time_s"])
            walls_s.append(time.perf_counter() - start)
        wall_s = min(walls_s)
        rows.append(
            {
                "act": act.name,
                "simulated_s": round(simulated_s, 1),
                "wall_s": round(wall_s, 3),
                "simulated_per_wall": round(simulated_s / wall_s),
            }
        )
    return rows
