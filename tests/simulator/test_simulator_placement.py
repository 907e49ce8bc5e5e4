"""`--placement`: groups decided by the rules of a release of kube-scheduler, and how that is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.manifests import load
from muster.scheduler.options import PlacementMode
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "upstream" / "mixed-gang.yaml"


@pytest.mark.parametrize(
    ("placement", "state", "words"),
    [
        ("exact", "Running", ""),
        ("upstream-1.36", "Unschedulable", "first placement status: pod group is unschedulable"),
        ("upstream-1.37", "Unschedulable", "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"),
    ],
)
def test_a_mixed_gang_runs_by_default_and_waits_for_ever_by_the_rules_of_a_release(
    placement: PlacementMode, state: str, words: str
) -> None:
    outcome = simulate(load(EXAMPLE), options=ClusterOptions(placement=placement))

    [group] = report(outcome)["groups"]
    assert group["state"] == state
    assert words in group["message"]
    assert outcome.is_quiet and not outcome.violations
