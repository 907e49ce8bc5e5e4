"""What users of other schedulers have reported, as scenarios: each must come out as its user expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import Scenario, faults_of, load_scenarios

SCENARIOS = load_scenarios(Path(__file__).parent)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.about)
def test_report(scenario: Scenario) -> None:
    assert faults_of(scenario) == []


def test_every_scenario_has_a_sentence_and_a_source() -> None:
    names = [scenario.about for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert all(scenario.source.startswith(("https://", "kind: ")) for scenario in SCENARIOS)
