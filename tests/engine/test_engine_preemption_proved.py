"""Victims are the least where a preemptor asks more than room: subgroups in domains, rules between pods.

Against all subsets of the units on small clusters, each judged by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from test_engine_preemption_groups import NOW_S, Scene

from muster.api.codec import Object
from muster.api.topology import Subgroups, TopologyTerms
from muster.engine.decide import verdict
from muster.engine.model import GroupRequest, Member
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import NoPlan, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.shape import Shape
from muster.engine.topology.layout import Layout
from muster.testing.builders import make_pod

Cost = tuple[int, int, int, int, int, tuple[str, ...]]
ShapeOf = Callable[[str], Shape | None]


def cost(cluster: Cluster, victims: Sequence[Unit]) -> Cost:
    """The whole order: violations, highest priority, pods, run time lost, pods that could run elsewhere, names."""
    movable = 0
    if cluster.shape_of is not None:
        shapes = [cluster.shape_of(pod.key) for unit in victims for pod in unit.evicted]
        rooms = [shape is not None and cluster.profile.count(shape, cluster.snapshot).any() for shape in shapes]
        movable = sum(map(bool, rooms))
    return (
        cluster.budgets.violations(victims),
        max((unit.priority for unit in victims), default=-(2**63)),
        sum(len(unit.evicted) for unit in victims),
        sum(round(unit.age_s(NOW_S)) for unit in victims),
        -movable,
        tuple(sorted(unit.key for unit in victims)),
    )


def all_sets(cluster: Cluster, group: GroupPreemptor) -> list[tuple[Unit, ...]]:
    lower = [unit for unit in cluster.units if unit.priority < group.priority and unit.evicted]
    return [each for size in range(len(lower) + 1) for each in combinations(lower, size)]


def answers(cluster: Cluster, group: GroupPreemptor, victims: Sequence[Unit]) -> bool | None:
    with cluster.snapshot.trial() as trial:
        trial.remove(pod.key for unit in victims for pod in unit.pods)
        return verdict(trial, group.goal(None))


def check(cluster: Cluster, group: GroupPreemptor) -> None:
    """The plan is the least, or says that it may not be; nobody goes in vain."""
    sets = all_sets(cluster, group)
    fits = [answers(cluster, group, each) for each in sets]
    fitting = [cost(cluster, each) for each, answer in zip(sets, fits, strict=True) if answer]
    plan = preempt_group(cluster, group)
    if isinstance(plan, NoPlan):
        assert not fitting
        return
    assert answers(cluster, group, plan.victims)
    if plan.proved:
        assert cost(cluster, plan.victims) == min(fitting)
    else:
        assert None in fits, "all answers of the engine are certain, so the least set is, too"
    assert len(plan.placements) >= group.need


@st.composite
def running(draw: st.DrawFn, nodes: int = 4, most: int = 6) -> Scene:
    """A cluster of nodes in racks of two, and units on it."""
    scene = Scene(*draw(st.lists(st.integers(2, 4), min_size=nodes, max_size=nodes)))
    left = [int(record.allocatable[0][1]) // 1000 for record in scene.state.snapshot().table.records]
    for number in range(draw(st.integers(1, most))):
        size = draw(st.sampled_from([1, 1, 2]))
        for _ in range(size):
            node, cpu = draw(st.integers(0, nodes - 1)), draw(st.integers(1, 2))
            if cpu <= left[node]:
                left[node] -= cpu
                app, age = draw(st.sampled_from(["", "a"])), float(draw(st.integers(1, 3)))
                priority = draw(st.sampled_from([0, 0, 10])) if f"u{number}" not in scene.pods else 0
                priority = scene.priorities.get(f"u{number}", priority)
                scene.run(f"u{number}", node, cpu, priority=priority, age_s=age, app=app, group=size > 1)
    if draw(st.booleans()):
        scene.budget("a", draw(st.integers(0, 1)))
    return scene


@settings(max_examples=30, deadline=None)
@given(running(), st.integers(1, 3), st.integers(2, 5), st.integers(1, 2), st.booleans(), st.booleans())
def test_subgroups_in_racks(scene: Scene, size: int, number: int, cpu: int, need_all: bool, mixed: bool) -> None:
    cpus = [cpu + (mixed and at % 2) for at in range(number)]
    group = scene.gang(*cpus, need=number if need_all else max(1, number - 1))
    layout = Layout(TopologyTerms(subgroups=Subgroups(size, "rack")), tuple(range(number)))
    check(scene.cluster(), structs.replace(group, request=structs.replace(group.request, layout=layout)))


@settings(max_examples=25, deadline=None)
@given(running(), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_the_whole_order_with_victims_that_could_run_elsewhere(
    scene: Scene, cpus: list[int], data: st.DataObject
) -> None:
    shapes = {
        pod.key: scene.state.shape_of(make_pod("x", cpu=str(data.draw(st.sampled_from([1, 9])))))
        for pods in scene.pods.values()
        for pod in pods
    }
    cluster = scene.cluster()
    known = Cluster(cluster.snapshot, cluster.units, NOW_S, cluster.budgets, shape_of=shapes.get)
    group = scene.gang(*cpus)
    check(known, group)
    check(known, structs.replace(group, request=structs.replace(group.request, topology_key="rack")))


def with_rules(scene: Scene, number: int, spec: Object, labels: dict[str, str]) -> GroupPreemptor:
    members = []
    for at in range(number):
        pod = make_pod(f"m{at}", cpu="1", labels=labels)
        pod["spec"].update(spec)
        members.append(Member(f"default/m{at}", scene.state.shape_of(pod)))
    return GroupPreemptor(GroupRequest("default/g", tuple(members), number), 100)


def term(app: str, key: str) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


RULES: dict[str, Object] = {
    "apart from victims": {"podAntiAffinity": [term("a", "rack")]},
    "apart from each other": {"podAntiAffinity": [term("m", "kubernetes.io/hostname")]},
    "near victims": {"podAffinity": [term("a", "rack")]},
    "near each other": {"podAffinity": [term("m", "rack")]},
}


@settings(max_examples=30, deadline=None)
@given(running(most=5), st.sampled_from([*RULES, "spread"]), st.integers(1, 3))
def test_rules_between_pods(scene: Scene, rule: str, number: int) -> None:
    if rule == "spread":
        constraint = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        selector = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}
        spec: Object = {"topologySpreadConstraints": [{**constraint, **selector}]}
    else:
        spec = {"affinity": {name: {REQUIRED: terms} for name, terms in RULES[rule].items()}}
    check(scene.cluster(), with_rules(scene, number, spec, {"app": "m"}))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
