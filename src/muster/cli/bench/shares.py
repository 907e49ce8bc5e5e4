"""What a `muster up` spends its processor time on: `python -m muster.cli.bench.shares FILE up …` runs it and says so.

Every few milliseconds of processor time a signal looks which part of Muster is at work; the shares are written to the
file as JSON when the server has stopped. It takes two or three parts in a hundred of what is measured.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from muster.api.codec import dumps

SAMPLE_S = 0.002
"""Processor seconds between two looks."""
LOOP = "loop and sockets"

Place: TypeAlias = tuple[str, str]
"""The module and the function of a frame."""

_JSON = {
    "muster.api.codec": frozenset({"loads", "dumps", "canonical"}),
    "muster.api.lean_pods": frozenset({"loads_lean"}),
}
_PARTS = (
    ("muster.engine", "engine"),
    ("muster.scheduler", "scheduler"),
    ("muster.apiserver.store", "store"),
    ("muster.apiserver.http", "HTTP"),
    ("aiohttp", "HTTP"),
    ("muster.apiserver", "API server"),
    ("muster.controllers", "controllers"),
    ("muster.nodes", "nodes"),
    ("muster.client.events", "events"),
    ("muster.client", "informers"),
)
"""By the beginning of a module's name; the first that fits."""


def part_of(places: Iterable[Place]) -> str:
    """The part of Muster that works, from the frames of a stack, the innermost first.

    Helpers that all parts use count for their callers. `LOOP` if nobody in particular works.
    """
    for module, function in places:
        if function in _JSON.get(module, ()):
            return "JSON"
        for prefix, part in _PARTS:
            if module == prefix or module.startswith(f"{prefix}."):
                return part
    return LOOP


def percentages(samples: Counter[str]) -> dict[str, float]:
    """The share of each part in percent, the largest first."""
    total = sum(samples.values())
    ordered = sorted(samples.items(), key=lambda entry: (-entry[1], entry[0]))
    return {part: round(100 * number / total, 1) for part, number in ordered}


def _places(frame: FrameType | None) -> Iterator[Place]:
    while frame is not None:
        yield frame.f_globals.get("__name__", ""), frame.f_code.co_name
        frame = frame.f_back


def _main(path: Path, arguments: list[str]) -> int:
    from muster.cli.main import main

    samples: Counter[str] = Counter()

    def look(number: int, frame: FrameType | None) -> None:
        samples[part_of(_places(frame))] += 1

    def begin(number: int, frame: FrameType | None) -> None:
        samples.clear()

    signal.signal(signal.SIGPROF, look)
    signal.signal(signal.SIGUSR1, begin)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
    try:
        return main(arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        path.write_bytes(dumps(percentages(samples)))


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
