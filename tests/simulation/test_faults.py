"""Under faults drawn by seed the invariants hold, and once they stop everything that can run has run."""

from __future__ import annotations

import pytest

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition
from muster.nodes.spec import parse_node_spec
from muster.simulator.faults import ComponentFault, NodeFault, RequestFaults
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import Outcome, manifests_of
from muster.testing.builders import make_group, make_job, make_pod

PREFIX = "sim.muster-k8s.dev/"
NODES = [parse_node_spec("count=3,nvidia.com/gpu=2")]


def _job(name: str, workers: int, *, gpu: int = 1) -> Object:
    marks = {PREFIX + "barrier": f"{name}/{workers}", PREFIX + "run-seconds": "30"}
    return make_job(name, parallelism=workers, indexed=True, pod=make_pod(gpu=gpu, annotations=marks))


def _jobs() -> Objects:
    return [_job("red", 4), _job("blue", 4), _job("green", 6), _job("small", 2)]


def _complete(outcome: Outcome) -> list[str]:
    return [job["metadata"]["name"] for job in outcome.objects["jobs"] if has_condition(job, "Complete")]


@pytest.mark.parametrize("seed", range(8))
def test_requests_that_fail_delay_the_jobs_only(seed: int) -> None:
    faults = Faults(requests=RequestFaults(rate=0.1, until_s=60))

    outcome = simulate(manifests_of(_jobs()), nodes=NODES, seed=seed, faults=faults)

    assert outcome.is_quiet
    assert _complete(outcome) == ["blue", "green", "red", "small"]
    assert outcome.violations == ()


@pytest.mark.parametrize("seed", range(4))
def test_restarted_components_go_on_where_they_were(seed: int) -> None:
    restarts = [ComponentFault(name, at_s) for at_s in (0.03, 0.2, 31.5) for name in ("scheduler", "controllers")]
    faults = Faults(components=tuple(restarts))

    outcome = simulate(manifests_of(_jobs()), nodes=NODES, seed=seed, faults=faults)

    assert _complete(outcome) == ["blue", "green", "red", "small"]
    assert outcome.violations == ()


def test_gang_on_a_node_that_dies_is_replaced_and_completes() -> None:
    faults = Faults(nodes=(NodeFault("node-0", at_s=5.0, back_s=30.0),))

    outcome = simulate(manifests_of([_job("red", 4)]), nodes=NODES, faults=faults)

    assert _complete(outcome) == ["red"]
    assert outcome.violations == ()


def test_pods_of_a_node_that_stays_dead_are_evicted() -> None:
    faults = Faults(nodes=(NodeFault("node-0", at_s=5.0),))
    objects = [make_group("g", min_count=1), make_pod("p", group="g", gpu=1)]

    result = report(simulate(manifests_of(objects), nodes=NODES, faults=faults, until_s=900))

    (eviction,) = result["evictions"]
    assert (eviction["pod"], eviction["group"]) == ("default/p", "default/g")
    assert 300 < eviction["time_s"] < 420


def test_faults_draw_the_same_for_the_same_seed() -> None:
    faults = Faults(requests=RequestFaults(rate=0.2, until_s=60), nodes=(NodeFault("node-1", 4.0, 50.0),))

    first, second = (report(simulate(manifests_of(_jobs()), nodes=NODES, seed=5, faults=faults)) for _ in range(2))

    assert first == second


def test_cluster_without_job_controller_leaves_jobs_alone() -> None:
    options = ClusterOptions(without=frozenset({"job-controller"}))

    assert simulate(manifests_of(_jobs()), nodes=NODES, options=options).objects["pods"] == []
