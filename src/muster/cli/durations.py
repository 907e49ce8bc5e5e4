"""Durations on the command line and in tables."""

from __future__ import annotations

from muster.api.durations import parse_duration

__all__ = ["format_duration", "parse_duration"]


def format_duration(seconds: float) -> str:
    """A duration for people, to three digits or so: `0 s`, `0.25 s`, `90 s`, `10 min`, `2 h 5 min`."""
    if seconds < 10:
        return f"{round(seconds, 2):g} s"
    whole = round(seconds)
    if whole <= 100:
        return f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
