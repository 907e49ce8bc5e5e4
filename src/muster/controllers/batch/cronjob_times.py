"""Which of a CronJob's times is due, and how long it is until the next one.

Source of the rules: kube-controller-manager `pkg/controller/cronjob/utils.go` (mostRecentScheduleTime).
"""

from __future__ import annotations

from msgspec import Struct

from muster.api.codec import Object
from muster.api.cron import Schedule
from muster.clock import parse_rfc3339

TOO_MANY = 100
"""From so many missed times on a warning is given."""

MARGIN_S = 0.1
"""A time is looked at so long after it, not to be early."""


class Due(Struct, frozen=True):
    """The last time that was due and not served (None: there is none), and how many were missed, about."""

    time_s: float | None
    missed: int = 0


def due(cron_job: Object, schedule: Schedule, now: float) -> Due:
    """The time to serve now."""
    earliest = _earliest(cron_job, now, with_deadline=True)
    return _most_recent(schedule, earliest, now)


def _earliest(cron_job: Object, now: float, *, with_deadline: bool) -> float:
    """The time after which times have not been served: not before the CronJob was made, nor too long ago."""
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    earliest = parse_rfc3339(last or cron_job["metadata"]["creationTimestamp"])
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if with_deadline and deadline is not None:
        earliest = max(earliest, now - deadline)
    return earliest


def _most_recent(schedule: Schedule, earliest: float, now: float) -> Due:
    first = schedule.after(earliest)
    if first is None or first > now:
        return Due(None)
    second = schedule.after(first)
    if second is None or second > now:
        return Due(first, 1)
    # Times are often far back: those of most of the way are not looked at one by one. Where they are not regular (only
    # on workdays), a long step may end in a gap, and a shorter one is tried.
    period = max(1.0, second - first)
    missed = int((now - first) / period) + 1
    skipped = max(0, missed - 2)
    while skipped and not _is_within(schedule.after(first + skipped * period), now):
        skipped //= 2
    recent = first
    following = schedule.after(first + skipped * period)
    while following is not None and following <= now:
        recent = following
        following = schedule.after(following)
    return Due(recent, missed)


def _is_within(time_s: float | None, now: float) -> bool:
    return time_s is not None and time_s <= now


def until_next_s(cron_job: Object, schedule: Schedule, now: float) -> float | None:
    """Seconds until the next time; None if there is none."""
    following = schedule.after(now)
    return None if following is None else following - now + MARGIN_S
