from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.controllers.batch.job_indexes import read_indexes, write_indexes


@pytest.mark.parametrize(
    ("indexes", "want"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0,1"),
        ([0, 1, 2], "0-2"),
        ([5, 1, 3, 4], "1,3-5"),
        ([0, 1, 3, 4, 6], "0,1,3,4,6"),
    ],
)
def test_neighbours_become_intervals_from_three_on(indexes: list[int], want: str) -> None:
    assert write_indexes(indexes) == want


@given(st.frozensets(st.integers(0, 200)))
def test_text_gives_back_the_indexes(indexes: frozenset[int]) -> None:
    assert read_indexes(write_indexes(indexes), 201) == indexes


@given(st.frozensets(st.integers(0, 60)), st.integers(0, 60))
def test_indexes_beyond_completions_are_left_out(indexes: frozenset[int], completions: int) -> None:
    assert read_indexes(write_indexes(indexes), completions) == {i for i in indexes if i < completions}


@given(st.text(alphabet="0123456789-, x", max_size=20))
def test_malformed_text_is_no_error(text: str) -> None:
    assert all(0 <= index < 100 for index in read_indexes(text, 100))
