"""Recorded preemptions of kube-scheduler come out equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_preemption import KIND, row
from run import read_lines

CASES = read_lines(Path(__file__).parent / "data" / "preemption-1.36.jsonl.gz")
ROWS = sorted({row(case) for case in CASES})


@pytest.mark.parametrize("seed", [None, 1], ids=["as recorded", "renamed"])
@pytest.mark.parametrize("name", ROWS)
def test_preemptions_are_those_that_were_recorded(name: str, seed: int | None) -> None:
    outcomes = KIND.run([case for case in CASES if row(case) == name], seed)
    assert {outcome.unit: outcome.differences for outcome in outcomes if outcome.differences} == {}
