"""Completion indexes as text: `0,1`, `0-2`, `1,3-5,9` and sets of integers.

Source of the format: batch/v1 `JobStatus.completedIndexes`; kube-controller-manager
`pkg/controller/job/indexed_job_utils.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

Indexes = frozenset[int]


def write_indexes(indexes: Collection[int]) -> str:
    """Sorted intervals; two neighbours are written `a,b`, more `a-c`."""
    return ",".join(_write(first, last) for first, last in _intervals(sorted(indexes)))


def _intervals(ordered: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for position in range(1, len(ordered) + 1):
        if position == len(ordered) or ordered[position] != ordered[position - 1] + 1:
            yield ordered[start], ordered[position - 1]
            start = position


def _write(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def read_indexes(text: str, completions: int) -> Indexes:
    """The indexes below `completions` in a text; parts that are no intervals are passed over."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            continue
        found.update(range(int(first), min(int(last) if dash else int(first), completions - 1) + 1))
    return frozenset(found)
