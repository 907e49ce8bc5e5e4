"""Schedules of CronJobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.cron import ScheduleError, parse_schedule, parse_zone
from muster.clock import parse_rfc3339, rfc3339

BASE = parse_rfc3339("2026-01-31T23:59:30Z")


@pytest.mark.parametrize(
    ("text", "start", "want"),
    [
        ("* * * * *", "2026-01-31T23:59:30Z", "2026-02-01T00:00:00Z"),
        ("*/15 3 * * *", "2026-01-31T03:45:00Z", "2026-02-01T03:00:00Z"),
        ("5/20 * * * *", "2026-01-31T03:25:00Z", "2026-01-31T03:45:00Z"),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("0 0 29 feb ?", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 12 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z"),
        ("0 12 */2 * fri", "2026-01-03T00:00:00Z", "2026-01-03T12:00:00Z"),
        ("30 4 1,15 jan-mar sun", "2026-02-15T04:30:00Z", "2026-02-22T04:30:00Z"),
        ("@hourly", "2026-01-31T23:00:00Z", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-01-31T23:00:00Z", "2026-02-01T00:00:00Z"),
        ("@every 1h30m", "2026-01-31T23:00:00Z", "2026-02-01T00:30:00Z"),
        ("TZ=Europe/Berlin 0 8 * * *", "2026-07-01T00:00:00Z", "2026-07-01T06:00:00Z"),
    ],
)
def test_next_time_is_the_first_that_matches(text: str, start: str, want: str) -> None:
    found = parse_schedule(text).after(parse_rfc3339(start))
    assert found is not None and rfc3339(found) == want


def test_schedule_of_a_day_that_never_comes_has_no_next_time() -> None:
    assert parse_schedule("0 0 30 2 *").after(BASE) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "empty spec string"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("9-3 * * * *", "beginning of range (9) beyond end of range (3): 9-3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
    ],
)
def test_what_is_no_schedule_is_refused_in_the_words_of_the_parser(text: str, want: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text)
    assert str(caught.value) == want


def test_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ScheduleError, match="unknown time zone Nowhere/City"):
        parse_zone("Nowhere/City")


def test_time_that_clocks_skip_is_skipped_that_day() -> None:
    schedule = parse_schedule("30 2 * * *", parse_zone("America/New_York"))
    found = schedule.after(parse_rfc3339("2026-03-08T05:00:00Z"))
    assert found is not None and rfc3339(found) == "2026-03-09T06:30:00Z"


def test_time_that_clocks_show_twice_comes_twice() -> None:
    schedule = parse_schedule("30 1 * * *", parse_zone("America/New_York"))
    first = schedule.after(parse_rfc3339("2026-11-01T04:00:00Z"))
    assert first is not None and rfc3339(first) == "2026-11-01T05:30:00Z"
    second = schedule.after(first)
    assert second is not None and rfc3339(second) == "2026-11-01T06:30:00Z"


def _field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.tuples(span, st.integers(1, 9)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    part = st.one_of(number.map(str), span, step, st.just("*"), st.integers(1, 9).map(lambda n: f"*/{n}"))
    return st.lists(part, min_size=1, max_size=2).map(",".join)


SCHEDULES = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 6)).map(" ".join)


def _plain_match(text: str, moment: datetime) -> bool:
    """The rule, field by field, without any skipping."""

    def values(field: str, least: int, most: int) -> tuple[set[int], bool]:
        found: set[int] = set()
        star = False
        for part in field.split(","):
            span, _, step = part.partition("/")
            low, _, high = span.partition("-")
            if span == "*":
                found |= set(range(least, most + 1, int(step or 1)))
                star = star or step in ("", "1")
            else:
                found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
        return found, star

    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    (minute, _), (hour, _), (day, any_day), (month, _), (weekday, any_weekday) = (
        values(field, *bound) for field, bound in zip(text.split(), bounds, strict=True)
    )
    by_day, by_weekday = moment.day in day, moment.isoweekday() % 7 in weekday
    fits = (by_day and by_weekday) if any_day or any_weekday else (by_day or by_weekday)
    return moment.minute in minute and moment.hour in hour and moment.month in month and fits


@settings(deadline=None, max_examples=30)
@given(SCHEDULES, st.integers(0, 4 * 365 * 86400))
def test_next_time_matches_and_none_before_it_does(text: str, offset: int) -> None:
    start = BASE + offset
    found = parse_schedule(text).after(start)
    assert found is not None and found > start and found % 60 == 0
    assert _plain_match(text, datetime.fromtimestamp(found, UTC))
    moment = datetime.fromtimestamp(start, UTC).replace(second=0) + timedelta(minutes=1)
    for _ in range(200):
        if moment.timestamp() >= found:
            break
        assert not _plain_match(text, moment)
        moment += timedelta(minutes=1)


@settings(deadline=None, max_examples=30)
@given(SCHEDULES, st.integers(0, 365 * 86400), st.integers(0, 7 * 86400))
def test_next_time_never_goes_back_as_time_goes_on(text: str, offset: int, later: int) -> None:
    schedule = parse_schedule(text, parse_zone("Australia/Lord_Howe"))
    first, second = schedule.after(BASE + offset), schedule.after(BASE + offset + later)
    assert first is not None and second is not None and first <= second
