"""Schedules of CronJobs: five fields or a descriptor such as `@hourly`, and the times they name.

Source of the rules: robfig/cron v3 (`parser.go` ParseStandard, `spec.go` Next), which kube-controller-manager uses.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_YEARS_AHEAD = 5
"""A schedule without a time in so many years has none (30 February)."""


class ScheduleError(ValueError):
    """The text is no schedule or no time zone. The message is upstream's. Not retryable."""


class _Field(Struct, frozen=True):
    """The values of one field that match; `is_star`: it was left open."""

    values: frozenset[int]
    is_star: bool


class _Bounds(Struct, frozen=True):
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """The number that a part of a field names."""
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.least
        if text.isascii() and text.isdecimal():
            return int(text)
        if text[:1] == "-" and text[1:].isdecimal():
            raise ScheduleError(f"negative number ({text}) not allowed: {text}")
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')


_MINUTE = _Bounds(0, 59)
_HOUR = _Bounds(0, 23)
_DAY = _Bounds(1, 31)
_MONTH = _Bounds(1, 12, _MONTHS)
_WEEKDAY = _Bounds(0, 6, _DAYS)


def parse_zone(name: str) -> tzinfo:
    """The time zone of that name. Raises ScheduleError."""
    if name.lower() == "local":
        raise ScheduleError("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    if name == "":
        raise ScheduleError("timeZone must be nil or non-empty string")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"unknown time zone {name}") from error


class Schedule(Struct, frozen=True):
    """When something is to happen, in one time zone. `every_s`: at that distance, instead of by the fields."""

    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field
    zone: tzinfo = UTC
    every_s: float | None = None

    def after(self, time_s: float) -> float | None:
        """The first time after `time_s` (seconds since the epoch); None if there is none in the next years."""
        if self.every_s is not None:
            return float(int(time_s) + self.every_s)
        moment = datetime.fromtimestamp(int(time_s) + 1, self.zone)
        if moment.second:
            moment = self._later(moment, 60 - moment.second)
        last_year = moment.year + _YEARS_AHEAD
        while moment.year <= last_year:
            if moment.month not in self.month.values:
                moment = self._midnight(moment.year + moment.month // 12, moment.month % 12 + 1, 1)
            elif not self._is_day(moment):
                following = moment.date() + timedelta(days=1)
                moment = self._midnight(following.year, following.month, following.day)
            elif moment.hour not in self.hour.values:
                moment = self._later(moment, 3600 - moment.minute * 60)
            elif moment.minute not in self.minute.values:
                moment = self._later(moment, 60)
            else:
                return moment.timestamp()
        return None

    def _is_day(self, moment: datetime) -> bool:
        """Both day fields if one is left open, else either."""
        by_day = moment.day in self.day.values
        by_weekday = moment.isoweekday() % 7 in self.weekday.values
        if self.day.is_star or self.weekday.is_star:
            return by_day and by_weekday
        return by_day or by_weekday

    def _later(self, moment: datetime, seconds: int) -> datetime:
        """So many seconds later as they really pass, whatever the clocks on the wall do."""
        return datetime.fromtimestamp(moment.timestamp() + seconds, self.zone)

    def _midnight(self, year: int, month: int, day: int) -> datetime:
        start = datetime(year, month, day, tzinfo=self.zone)
        return datetime.fromtimestamp(start.timestamp(), self.zone)


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """Read a schedule; `TZ=…` before it takes the place of `zone`. Raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        head, _, text = text.partition(" ")
        name = head.partition("=")[2]
        try:
            zone = parse_zone(name)
        except ScheduleError as error:
            raise ScheduleError(f"provided bad location {name}: unknown time zone {name}") from error
        text = text.strip()
    if text.startswith("@"):
        return _descriptor(text, zone)
    parts = text.split()
    if len(parts) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    minute, hour, day, month, weekday = (
        _field(part, bounds) for part, bounds in zip(parts, (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY), strict=True)
    )
    return Schedule(minute, hour, day, month, weekday, zone)


def _descriptor(text: str, zone: tzinfo) -> Schedule:
    if text in _DESCRIPTORS:
        return parse_schedule(_DESCRIPTORS[text], zone)
    if text.startswith("@every "):
        seconds = _duration_s(text.removeprefix("@every "))
        if seconds is None:
            raise ScheduleError(f"failed to parse duration {text}: time: invalid duration")
        star = _Field(frozenset(), is_star=True)
        return Schedule(star, star, star, star, star, zone, float(max(1, int(seconds))))
    raise ScheduleError(f"unrecognized descriptor: {text}")


def _duration_s(text: str) -> float | None:
    """A duration as Go writes it, such as `1h30m`; None if it is none."""
    total, rest = 0.0, text
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        unit = next((unit for unit in sorted(_UNITS_S, key=len, reverse=True) if rest[digits:].startswith(unit)), "")
        if not digits or not unit or rest[:digits].count(".") > 1 or rest[:digits] == ".":
            return None
        total += float(rest[:digits]) * _UNITS_S[unit]
        rest = rest[digits + len(unit) :]
    return total if text else None


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    is_star = False
    for part in text.split(","):
        if part:
            found, star = _range(part, bounds)
            values |= set(found)
            is_star = is_star or star
    return _Field(frozenset(values), is_star)


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """The numbers of `a`, `a-b`, `*`, each perhaps with `/step`, and whether all were meant."""
    span, *steps = text.split("/")
    low, *high = span.split("-")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    is_star = span in ("*", "?")
    if low in ("*", "?"):
        start, end = bounds.least, bounds.most
    else:
        start = bounds.number(low)
        end = start
        if len(high) == 1:
            end = bounds.number(high[0])
        elif high:
            raise ScheduleError(f"too many hyphens: {text}")
        elif steps:
            end = bounds.most
    step = bounds.number(steps[0]) if steps else 1
    if start < bounds.least:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.least}): {text}")
    if end > bounds.most:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.most}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), is_star and step == 1
