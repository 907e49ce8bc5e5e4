"""Times as Go reads them."""

from __future__ import annotations

import pytest

from muster.apiserver.times import MICROSECONDS, SECONDS, WrongTime, canonical_time


@pytest.mark.parametrize(
    ("text", "layout", "want"),
    [
        ("2030-01-01T02:00:00.5+02:00", SECONDS, "2030-01-01T00:00:00Z"),
        ("2030-01-01T00:00:00.123456Z", MICROSECONDS, "2030-01-01T00:00:00.123456Z"),
        ("0001-01-01T00:00:00Z", SECONDS, "0001-01-01T00:00:00Z"),
    ],
)
def test_times_are_stored_in_utc(text: str, layout: str, want: str) -> None:
    assert canonical_time(text, layout) == want


@pytest.mark.parametrize(
    ("text", "layout", "want"),
    [
        ("2030-01-01", SECONDS, 'cannot parse "" as "T"'),
        ("soon", SECONDS, 'cannot parse "soon" as "2006"'),
        ("2030-01-01T00:00:00Z", MICROSECONDS, 'cannot parse "Z" as ".000000"'),
        ("2030-13-01T00:00:00Z", SECONDS, "month out of range"),
        ("0001-01-01T00:00:00+23:00", SECONDS, "out of range"),
        ("2030-01-01T00:00:00Zx", SECONDS, 'extra text: "x"'),
    ],
)
def test_what_is_no_time_is_said_in_gos_words(text: str, layout: str, want: str) -> None:
    with pytest.raises(WrongTime, match=want.replace(".", r"\.")):
        canonical_time(text, layout)
