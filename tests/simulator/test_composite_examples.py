"""The examples of trees of groups do what their first lines say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.api.codec import Object
from muster.nodes.spec import parse_node_spec
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of

EXAMPLES = Path(__file__).parents[2] / "examples/composite"


def run(name: str, nodes: str) -> Object:
    objects = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))
    outcome = simulate(
        manifests_of(objects), nodes=[parse_node_spec(nodes)], options=ClusterOptions(node_events=False), until_s=60.0
    )
    assert not outcome.violations
    return report(outcome)


def states(shown: Object) -> dict[str, str]:
    return {group["name"]: group["state"] for group in shown["groups"]}


@pytest.mark.parametrize(("nodes", "want"), [(4, "Succeeded"), (3, "Unschedulable")])
def test_a_job_set_starts_as_one_or_not_at_all(nodes: int, want: str) -> None:
    shown = run("jobset", f"count={nodes},cpu=8,nvidia.com/gpu=4")

    assert set(states(shown).values()) == {want}
    assert {group["scheduled"] for group in shown["groups"]} == ({0} if want == "Unschedulable" else {1, 8})


@pytest.mark.parametrize(("nodes", "replicas"), [(3, 3), (2, 2), (1, 0)])
def test_replicas_of_a_leader_and_workers_start_whole_if_two_of_them_do(nodes: int, replicas: int) -> None:
    shown = run("leaderworkerset", f"count={nodes},cpu=8,nvidia.com/gpu=4")

    running = [name for name, state in states(shown).items() if state == "Running"]
    assert len(running) == 2 * replicas
    assert sum(pod["node"] is not None for pod in shown["pods"]) == 4 * replicas


def test_two_of_three_teams_start_though_the_first_two_do_not_fit_and_the_third_has_its_turn() -> None:
    shown = run("k-of-n", "count=4,cpu=8,racks=2")

    started = {group["name"]: group["first_scheduled_s"] for group in shown["groups"]}
    assert max(started["team-b"], started["team-c"]) < 1
    assert started["team-a"] >= 10  # when the others have ended, and count all the same
    assert {group["name"]: group["scheduled"] for group in shown["groups"]} == {"team-a": 4, "team-b": 2, "team-c": 4}


def test_two_of_three_teams_that_do_not_fit_are_told_what_would_help() -> None:
    shown = run("k-of-n", "count=2,cpu=8,racks=2")

    assert set(states(shown).values()) == {"Unschedulable"}
    assert {change["kind"] for change in shown["groups"][0]["explanation"]["changes"]} >= {"addNodes", "lowerMinCount"}
