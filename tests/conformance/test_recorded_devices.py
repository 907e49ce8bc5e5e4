"""Recorded decisions about pods with claims come out equal, devices and all."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_decisions import row
from kind_devices import KIND
from run import read_lines

from muster.api.codec import Object

CASES = read_lines(Path(__file__).parent / "data" / "dra-1.36.jsonl.gz")
ROWS = sorted({row(case) for case in CASES})


@pytest.mark.parametrize("name", ROWS)
def test_devices_are_those_that_were_recorded(name: str) -> None:
    cases = [case for case in CASES if row(case) == name]
    assert _unequal(cases, None) == {}


def test_devices_do_not_hang_on_names_of_nodes_or_the_order_of_objects() -> None:
    assert _unequal(CASES, 7) == {}


def _unequal(cases: list[Object], seed: int | None) -> Object:
    return {
        outcome.unit: [(each.path, each.want, each.got) for each in outcome.differences]
        for outcome in KIND.run(cases, seed)
        if outcome.differences
    }
