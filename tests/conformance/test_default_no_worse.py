"""In the runs of groups recorded with kube-scheduler, our own way of deciding does no worse.

Every pod that upstream placed is placed (of members that are alike, as many), and where both place the same, no victim
set is worse, by: evictions beyond disruption budgets, highest priority of a victim, evicted pods, run time lost.

The same holds with other names and in another order of creation, so that no luck with names is behind it.

Left out is where 1.36 does what 1.37 does not do any more, and neither do we: it goes on without a member that a
scheduling gate holds, and evicts single members of a group that is only to be evicted as a whole.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from group_states import Played
from group_varying import vary
from kind_groups import KIND, NAMESPACE, PRIORITIES, play
from run import read_lines

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.clock import parse_rfc3339
from muster.engine.preemption.budgets import Budgets, parse_budget
from muster.engine.preemption.model import RunningPod, Unit

HERE = Path(__file__).parent
LINES = {release: read_lines(HERE / "data" / f"groups-{release}.jsonl.gz") for release in ("1.36", "1.37")}
FAMILIES = [(release, row) for release, lines in LINES.items() for row in sorted(set(map(KIND.row, lines)))]

Cost = tuple[int, int, int, float]


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(("release", "family"), FAMILIES)
def test_the_default_places_what_upstream_placed_and_evicts_nothing_worse(
    release: str, family: str, seed: int | None
) -> None:
    for line in (line for line in LINES[release] if KIND.row(line) == family):
        scenario = line if seed is None else vary(line, seed)
        faults = worse(scenario, play(scenario, placement="exact"))
        assert faults == [], scenario["id"]


def worse(scenario: Object, played: Played) -> list[str]:
    """In what ours is worse, step by step."""
    found = []
    for number, (recorded, ours) in enumerate(zip(scenario["results"], played.states, strict=True), 1):
        want, got = placed(scenario, recorded), placed(scenario, ours)
        for group in gated(scenario, recorded):
            del want[group], got[group]
        missing = want - got
        if missing.total() > 0 and got.total() < want.total():
            found.append(f"step {number}: not placed: {dict(missing)}")
        if (
            want == got
            and not splits_a_unit(scenario, recorded["evicted"])
            and cost(scenario, ours["evicted"]) > cost(scenario, recorded["evicted"])
        ):
            theirs, own = (cost(scenario, each["evicted"]) for each in (recorded, ours))
            found.append(f"step {number}: evicts {ours['evicted']} {own}, upstream {recorded['evicted']} {theirs}")
    return found


def placed(scenario: Object, state: Object) -> Counter[str]:
    """How many pods of each group have a node; a plain pod counts for itself."""
    groups = _groups(scenario)
    return Counter(groups[pod] for pod, each in state["pods"].items() if each.get("nodeName"))


def gated(scenario: Object, state: Object) -> list[str]:
    """The groups with a member that a scheduling gate holds."""
    held = {
        pod for pod, each in state["pods"].items() if (each.get("condition") or {}).get("reason") == "SchedulingGated"
    }
    return sorted({group for pod, group in _groups(scenario).items() if pod in held})


def splits_a_unit(scenario: Object, evicted: list[str]) -> bool:
    """Whether a part of a group goes that is only to go as a whole."""
    objects = [obj for step in scenario["steps"] for obj in step if "kind" in obj]
    units = {
        name_of(obj)
        for obj in objects
        if obj["kind"] == "PodGroup" and obj["spec"].get("disruptionMode") in ("PodGroup", {"all": {}})
    }
    running = {name_of(obj) for obj in objects if obj["kind"] == "Pod" and obj["spec"].get("nodeName")}
    groups = _groups(scenario)
    return any(
        0 < sum(pod in evicted for pod in running if groups[pod] == unit) < sum(groups[pod] == unit for pod in running)
        for unit in units
    )


def cost(scenario: Object, evicted: list[str]) -> Cost:
    """What the eviction of these pods is worth, the worse the greater."""
    objects = [obj for step in scenario["steps"] for obj in step if "kind" in obj]
    pods = {name_of(obj): obj for obj in objects if obj["kind"] == "Pod"}
    victims = [Unit(name, _priority(objects, pods[name]), (_running(pods[name]),)) for name in evicted]
    parsed = (parse_budget(_complete(obj)) for obj in objects if obj["kind"] == "PodDisruptionBudget")
    budgets = Budgets(budget for budget in parsed if budget is not None)
    return (
        budgets.violations(victims),
        max((victim.priority for victim in victims), default=-(2**31)),
        len(victims),
        sum(-(victim.pods[0].started_s or 0.0) for victim in victims),
    )


def _groups(scenario: Object) -> dict[str, str]:
    """The group of each pod; a plain pod is its own."""
    return {
        name_of(obj): (obj["spec"].get("schedulingGroup") or {}).get("podGroupName") or name_of(obj)
        for step in scenario["steps"]
        for obj in step
        if obj.get("kind") == "Pod"
    }


def _priority(objects: list[Object], pod: Object) -> int:
    """That of its PodGroup, if it has one."""
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    owner = next((obj for obj in objects if obj["kind"] == "PodGroup" and name_of(obj) == group), pod)
    return PRIORITIES.get(owner["spec"].get("priorityClassName") or "", 0)


def _running(pod: Object) -> RunningPod:
    started = (pod.get("status") or {}).get("startTime")
    return RunningPod(
        f"{NAMESPACE}/{name_of(pod)}",
        pod["spec"]["nodeName"],
        parse_rfc3339(started) if started else None,
        pod["metadata"].get("labels") or {},
    )


def _complete(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}}
