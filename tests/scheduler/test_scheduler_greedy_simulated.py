"""Whole clusters in virtual time with groups decided by upstream's rules: storms, racks, restarts. Invariants hold."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_scheduler_preemption_simulated import CLASSES, OPTIONS, gang, job, states

from muster.api.codec import Object, Objects
from muster.nodes.spec import parse_node_spec
from muster.scheduler.options import PlacementMode
from muster.simulator.faults import ComponentFault, RequestFaults
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import Outcome, manifests_of

MODES: tuple[PlacementMode, ...] = ("upstream-1.36", "upstream-1.37")
RACK = "topology.kubernetes.io/rack"


def run(mode: PlacementMode, objects: Objects, later: Objects, nodes: str, faults: Faults | None = None) -> Outcome:
    return simulate(
        manifests_of([*CLASSES, *objects]),
        timed=[(60.0, manifests_of(later))],
        nodes=[parse_node_spec(nodes)],
        options=replace(OPTIONS, placement=mode),
        until_s=7200.0,
        faults=faults or Faults(),
    )


def racked(name: str, size: int, level: str) -> list[Object]:
    return gang(name, size, "4", level, schedulingConstraints={"topology": [{"key": RACK}]})


@pytest.mark.parametrize("mode", MODES)
def test_storm_of_gangs_over_a_full_cluster(mode: PlacementMode) -> None:
    old = [thing for number in range(8) for thing in gang(f"old-{number}", 4, "4", "low")]
    storm = [thing for number in range(4) for thing in gang(f"high-{number}", 4, "8", "high")]

    outcome = run(mode, old, storm, "count=16,cpu=8")

    assert not outcome.violations
    assert all(states(outcome)[f"high-{number}"] == "Running" for number in range(4))


@pytest.mark.parametrize("mode", MODES)
def test_jobs_that_make_their_pods_anew_do_not_keep_a_gang_out(mode: PlacementMode) -> None:
    outcome = run(mode, [job("low", 8, "4", "low")], gang("high", 4, "8", "high"), "count=4,cpu=8")

    assert not outcome.violations
    assert states(outcome)["high"] == "Running"


@pytest.mark.parametrize(("mode", "want_evictions"), [("upstream-1.36", 0), ("upstream-1.37", 4)])
def test_only_1_37_preempts_for_a_group_with_topology(mode: PlacementMode, want_evictions: int) -> None:
    outcome = run(mode, gang("old", 8, "4", "low"), racked("new", 4, "high"), "count=4,cpu=8,racks=2")

    assert not outcome.violations
    assert len(report(outcome)["evictions"]) == want_evictions
    assert (states(outcome)["new"] == "Running") == (want_evictions > 0)


@pytest.mark.parametrize("mode", MODES)
def test_faults_and_restarts_do_not_break_the_rules(mode: PlacementMode) -> None:
    faults = Faults(
        requests=RequestFaults(rate=0.2, until_s=300.0), components=(ComponentFault("scheduler", at_s=60.2),)
    )
    old = [thing for number in range(4) for thing in gang(f"old-{number}", 2, "4", "low", disruptionMode={"all": {}})]

    outcome = run(mode, old, gang("new", 3, "8", "high"), "count=4,cpu=8", faults)

    assert not outcome.violations
    assert states(outcome)["new"] == "Running"


@pytest.mark.parametrize("mode", MODES)
def test_equal_runs_come_out_equal(mode: PlacementMode) -> None:
    old = [thing for number in range(4) for thing in gang(f"old-{number}", 3, "2", "low")]
    first, second = (run(mode, old, racked("new", 3, "high"), "count=6,cpu=8,racks=3") for _ in range(2))

    assert report(first) == report(second)
