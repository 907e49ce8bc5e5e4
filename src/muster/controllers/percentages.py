"""Numbers that people may write as a part of another one, such as `maxSurge: 25%`.

Source of the rules: apimachinery `pkg/util/intstr` (GetScaledValueFromIntOrPercent).
"""

from __future__ import annotations

from muster.api.codec import JSON


def scaled(value: JSON, total: int, *, up: bool) -> int:
    """`value` as a number: itself, or that percentage of `total`, rounded up or down. What is no number counts as 0."""
    if isinstance(value, int):
        return value
    text = str(value or "")
    if not text.endswith("%") or not text[:-1].isdecimal():
        return 0
    product = int(text[:-1]) * total
    return -(-product // 100) if up else product // 100
