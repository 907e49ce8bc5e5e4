"""The natural order of names: numbers in them by value."""

from __future__ import annotations

import re


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts `worker-2` before `worker-10`."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)
