"""Times as Go reads and writes them: two layouts, seconds and microseconds, always UTC on the wire.

Source: Go's `time.Parse`, apimachinery `meta/v1/{time,micro_time}.go`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

SECONDS = "2006-01-02T15:04:05Z07:00"
MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"

_ELEMENTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_FRACTION = (".000000", r"\.\d{6}")
_PLAIN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")


class WrongTime(ValueError):
    """A text is no time in the layout. The message is Go's."""


@lru_cache(maxsize=4096)
def canonical_time(text: str, layout: str) -> str:
    """The time as it is stored. Within a second nearly all are the same. Raises `WrongTime`."""
    found = _PLAIN.fullmatch(text)
    if found is None or (found[1] is not None) != (layout == MICROSECONDS):
        _check_form(text, layout)
    try:
        moment = datetime.fromisoformat(_six_digits(text)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise WrongTime(f'parsing time "{text}": {_out_of_range(text)} out of range') from error
    whole = moment.isoformat()[:19]
    return f"{whole}.{moment.microsecond:06d}Z" if layout == MICROSECONDS else f"{whole}Z"


def _check_form(text: str, layout: str) -> None:
    """Walk through the layout as Go does, and name the element that does not match."""
    rest = text
    for element, pattern in (*_ELEMENTS, *((_FRACTION,) if layout == MICROSECONDS else ()), _ZONE):
        if element == "Z07:00" and layout == SECONDS:
            rest = re.sub(r"^[.,]\d+", "", rest)
        match = re.match(pattern, rest)
        if match is None:
            raise WrongTime(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"')
        rest = rest[match.end() :]
    if rest:
        raise WrongTime(f'parsing time "{text}": extra text: "{rest}"')


def _six_digits(text: str) -> str:
    """The text with at most the six digits of a fraction that Python reads."""
    return re.sub(r"[.,](\d+)", lambda match: f".{match[1][:6]:0<6}", text)


def _out_of_range(text: str) -> str:
    month, day, hour, minute = (int(text[place : place + 2]) for place in (5, 8, 11, 14))
    if not 1 <= month <= 12:
        return "month"
    if not 1 <= day <= 31:
        return "day"
    if hour > 23:
        return "hour"
    return "minute" if minute > 59 else "second" if int(text[17:19]) > 59 else "day"
