"""The story of the project: jobs whose workers wait for each other, on fewer GPUs than all of them want.

Scheduled pod by pod they can deadlock, each job holding some GPUs and none running; as gangs they never do.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import pytest

from muster.api.codec import Objects
from muster.api.meta import has_condition
from muster.controllers.registry import CONTROLLERS
from muster.nodes.spec import parse_node_spec
from muster.simulator.options import ClusterOptions
from muster.simulator.run import simulate
from muster.simulator.world import Outcome, manifests_of
from muster.testing.builders import make_job, make_pod

SEEDS = range(100)
# Only what the story needs: a hundred worlds a size are built.
OTHERS = frozenset(CONTROLLERS) - {"job-controller"}
RUN_S = 600


@dataclass(frozen=True)
class Case:
    """So many jobs of so many workers with a GPU each, on nodes with so many GPUs in all."""

    jobs: int
    workers: int
    nodes: int
    gpus_a_node: int

    def run(self, seed: int, *, pod_by_pod: bool) -> Outcome:
        options = ClusterOptions(without=OTHERS, pod_by_pod=pod_by_pod, node_events=False)
        spec = parse_node_spec(f"count={self.nodes},nvidia.com/gpu={self.gpus_a_node}")
        return simulate(manifests_of(self._jobs()), nodes=[spec], seed=seed, options=options)

    def _jobs(self) -> Objects:
        return [self._job(f"job-{number}") for number in range(self.jobs)]

    def _job(self, name: str) -> dict[str, object]:
        prefix = "sim.muster-k8s.dev/"
        marks = {prefix + "barrier": f"{name}/{self.workers}", prefix + "run-seconds": str(RUN_S)}
        return make_job(name, parallelism=self.workers, indexed=True, pod=make_pod(gpu=1, annotations=marks))


CASES = {
    "two jobs of 2 on 2 GPUs": Case(2, 2, 1, 2),
    "two jobs of 4 on 4 GPUs": Case(2, 4, 2, 2),
    "three jobs of 3 on 4 GPUs": Case(3, 3, 2, 2),
}


def _end(outcome: Outcome) -> str:
    """`done` if all jobs are complete, `deadlock` if none is and nothing will ever happen again."""
    jobs = outcome.objects["jobs"]
    complete = sum(1 for job in jobs if has_condition(job, "Complete"))
    if complete == len(jobs):
        return "done"
    return "deadlock" if outcome.is_quiet else "not over"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pods_alone_deadlock_in_some_worlds(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    ends = Counter(_end(case.run(seed, pod_by_pod=True)) for seed in SEEDS)

    with capsys.disabled():
        sys.stdout.write(f"\n{case}: pods alone deadlock in {ends['deadlock']} of {len(SEEDS)} worlds")
    assert ends["deadlock"] > 0
    assert ends["deadlock"] + ends["done"] == len(SEEDS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gangs_never_deadlock(case: Case) -> None:
    for seed in SEEDS:
        outcome = case.run(seed, pod_by_pod=False)

        assert _end(outcome) == "done", seed
        assert outcome.violations == (), seed
        assert outcome.time_s < case.jobs * (RUN_S + 5), seed


def test_barrier_of_a_deadlocked_job_never_opens() -> None:
    case = CASES["two jobs of 4 on 4 GPUs"]
    outcome = next(each for seed in SEEDS if _end(each := case.run(seed, pod_by_pod=True)) == "deadlock")

    phases = Counter((pod["status"]["phase"]) for pod in outcome.objects["pods"])
    assert phases == {"Running": 4, "Pending": 4}
    assert outcome.time_s < RUN_S
