"""Recorded runs of groups with claims for devices come out equal by the rules of their release."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_device_groups import KIND
from outcome import is_accepted, load_accepted
from run import read_lines

HERE = Path(__file__).parent
RECORDINGS = {release: read_lines(HERE / "data" / f"dra-groups-{release}.jsonl.gz") for release in ("1.36", "1.37")}
FAMILIES = [(release, KIND.row(line)) for release, lines in RECORDINGS.items() for line in lines]
RULES = load_accepted(HERE / "accepted.yaml")


@pytest.mark.parametrize(("release", "family"), FAMILIES)
def test_groups_with_claims_are_scheduled_as_the_release_did(release: str, family: str) -> None:
    lines = [line for line in RECORDINGS[release] if KIND.row(line) == family]
    outcomes = [outcome for outcome in KIND.run(lines, None) if outcome.differences]
    assert {outcome.unit: outcome.differences for outcome in outcomes if not is_accepted(outcome, RULES)} == {}
