"""Recorded decisions of kube-scheduler come out equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_decisions import KIND, row
from run import read_lines

from muster.api.codec import Object

CASES = read_lines(Path(__file__).parent / "data" / "decisions-1.36.jsonl.gz")
ROWS = sorted({row(case) for case in CASES})


@pytest.mark.parametrize("name", ROWS)
def test_decisions_are_those_that_were_recorded(name: str) -> None:
    cases = [case for case in CASES if row(case) == name]
    assert _unequal(cases) == {}


def _unequal(cases: list[Object]) -> Object:
    outcomes = KIND.run(cases, None)
    return {
        outcome.unit: [(each.path, each.want, each.got) for each in outcome.differences]
        for outcome in outcomes
        if outcome.differences
    }
