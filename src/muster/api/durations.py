"""Durations as people write them: `30s`, `1h30m`, `250ms`, `2d`, or plain seconds."""

from __future__ import annotations

import re

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """The seconds of a duration. Raises ValueError with a sentence that quotes the text."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 30s, 1h30m or 250ms")
    return sum(float(number) * UNITS_S[unit] for number, unit in _PART.findall(text))


def duration_text(seconds: float) -> str:
    """The duration in the largest unit of which it is a whole number: `90s`, `5m`, `250ms`."""
    for unit, size_s in reversed(UNITS_S.items()):
        number = seconds / size_s
        if number >= 1 and number == int(number):
            return f"{int(number)}{unit}"
    return f"{seconds:g}s"
