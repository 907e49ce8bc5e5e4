"""The victims of a group are the least there are: against all subsets of the units on small clusters."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from muster.api.codec import Object
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.api.topology import Subgroups, TopologyTerms
from muster.engine.decide import verdict
from muster.engine.model import GroupRequest, Member
from muster.engine.preemption.budgets import Budget, Budgets
from muster.engine.preemption.groups import CANNOT_HELP, NO_VICTIMS, GroupPreemptor, preempt_group
from muster.engine.preemption.model import Nomination, NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import NEVER, Cluster
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.testing.builders import make_node, make_pod

NOW_S = 1_000_000.0


def container(cpu: int, ports: tuple[int, ...]) -> Object:
    """A pod spec with one container."""
    wanted = [{"hostPort": port, "containerPort": port} for port in ports]
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, "ports": wanted}]}


class Scene:
    """A cluster of nodes and units, built pod by pod."""

    def __init__(self, *nodes: int) -> None:
        self.state = ClusterState()
        for place, cpu in enumerate(nodes):
            self.state.set_node(make_node(f"n{place}", cpu=str(cpu), labels={"rack": f"r{place // 2}"}))
        self.pods: dict[str, list[RunningPod]] = {}
        self.priorities: dict[str, int] = {}
        self.groups: set[str] = set()
        self.budgets: list[Budget] = []
        self.nominations: list[Nomination] = []

    def run(
        self,
        unit: str,
        node: int,
        cpu: int,
        *,
        priority: int = 0,
        age_s: float = 60.0,
        app: str = "",
        group: bool = False,
        leaving: bool = False,
        ports: tuple[int, ...] = (),
    ) -> Scene:
        name = f"{unit}-{len(self.pods.get(unit, ()))}"
        container = {
            "name": "c",
            "resources": {"requests": {"cpu": str(cpu)}},
            "ports": [{"hostPort": p} for p in ports],
        }
        labels = {"app": app} if app else {}
        pod = make_pod(name, spec={"containers": [container]}, node=f"n{node}", priority=priority, labels=labels)
        self.state.add_pod(f"default/{name}", pod, f"n{node}")
        running = RunningPod(f"default/{name}", f"n{node}", NOW_S - age_s, labels, leaving=leaving, preempted=leaving)
        self.pods.setdefault(unit, []).append(running)
        self.priorities[unit] = priority
        if group:
            self.groups.add(unit)
        return self

    def budget(self, app: str, allowed: int) -> Scene:
        selector = LabelSelector((Requirement("app", Operator.IN, (app,)),))
        self.budgets.append(Budget(f"default/{app}", "default", selector, allowed))
        return self

    def cluster(self) -> Cluster:
        units = [
            Unit(key, self.priorities[key], tuple(pods), is_group=key in self.groups) for key, pods in self.pods.items()
        ]
        budgets = Budgets(self.budgets)
        return Cluster(self.state.snapshot(), units, NOW_S, budgets, tuple(self.nominations))

    def gang(
        self, *cpus: int, need: int | None = None, priority: int = 100, ports: tuple[int, ...] = ()
    ) -> GroupPreemptor:
        members = []
        for place, cpu in enumerate(cpus):
            container = {
                "name": "c",
                "resources": {"requests": {"cpu": str(cpu)}},
                "ports": [{"hostPort": p} for p in ports],
            }
            pod = make_pod(f"m{place}", spec={"containers": [container]})
            members.append(Member(f"default/m{place}", self.state.shape_of(pod)))
        return GroupPreemptor(GroupRequest("default/g", tuple(members), need or len(cpus)), priority)


def fits(cluster: Cluster, group: GroupPreemptor, victims: tuple[Unit, ...]) -> bool:
    with cluster.snapshot.trial() as trial:
        lower = [unit for unit in cluster.units if unit.priority < group.priority]
        trial.remove(pod.key for unit in lower for pod in unit.pods if pod.leaving)
        trial.remove(pod.key for unit in victims for pod in unit.pods)
        return verdict(trial, group.goal(None)) is True


def cost(cluster: Cluster, victims: tuple[Unit, ...]) -> tuple[int, int, int, float, tuple[str, ...]]:
    return (
        cluster.budgets.violations(victims),
        max((unit.priority for unit in victims), default=-(2**63)),
        sum(len(unit.evicted) for unit in victims),
        sum(round(unit.age_s(NOW_S)) for unit in victims),
        tuple(sorted(unit.key for unit in victims)),
    )


def by_brute_force(cluster: Cluster, group: GroupPreemptor) -> tuple[object, ...] | None:
    lower = [unit for unit in cluster.units if unit.priority < group.priority and unit.evicted]
    sets = [each for size in range(len(lower) + 1) for each in combinations(lower, size)]
    return min((cost(cluster, each) for each in sets if fits(cluster, group, each)), default=None)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Scene, GroupPreemptor]:
    scene = Scene(*draw(st.lists(st.integers(2, 6), min_size=1, max_size=4)))
    nodes = len(scene.state.snapshot())
    left = [int(record.allocatable[0][1]) // 1000 for record in scene.state.snapshot().table.records]
    for unit in range(draw(st.integers(0, 7))):
        priority, app = draw(st.sampled_from([0, 0, 10, 200])), draw(st.sampled_from(["", "a", "b"]))
        size = draw(st.sampled_from([1, 1, 1, 2, 3]))
        for _ in range(size):
            node, cpu = draw(st.integers(0, nodes - 1)), draw(st.integers(1, 3))
            if cpu <= left[node]:
                left[node] -= cpu
                age = float(draw(st.integers(1, 4)))
                ports = draw(st.sampled_from([(), (), (8080,), (9090,)]))
                scene.run(
                    f"u{unit}",
                    node,
                    cpu,
                    priority=priority,
                    age_s=age,
                    app=app,
                    group=size > 1,
                    leaving=draw(st.integers(0, 9)) == 0,
                    ports=ports,
                )
    for app in ("a", "b"):
        if draw(st.booleans()):
            scene.budget(app, draw(st.integers(0, 2)))
    ports = (8080,) if draw(st.booleans()) else ()
    cpus = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=4))
    if draw(st.booleans()):
        cpus = [cpus[0]] * len(cpus)
    return scene, scene.gang(*cpus, need=draw(st.integers(1, len(cpus))), ports=ports)


@settings(max_examples=160, deadline=None)
@given(scenes(), st.booleans())
def test_plan_is_the_least_of_all_sets(drawn: tuple[Scene, GroupPreemptor], in_rack: bool) -> None:
    scene, group = drawn
    cluster, group = scene.cluster(), in_racks(group) if in_rack else group
    want = by_brute_force(cluster, group)
    plan = preempt_group(cluster, group)
    if want is None:
        assert isinstance(plan, NoPlan)
        return
    if isinstance(plan, NoPlan):
        assert plan.text == NO_VICTIMS
        assert all(unit.priority >= group.priority for unit in cluster.units)
        return
    assert fits(cluster, group, plan.victims)
    assert plan.violations == cluster.budgets.violations(plan.victims)
    assert cost(cluster, plan.victims) == want
    assert plan.proved
    assert len(plan.placements) >= group.need


def test_reasons_for_no_plan_are_told_apart() -> None:
    full = Scene(4).run("a", 0, 4, priority=100)
    assert preempt_group(full.cluster(), full.gang(1)) == NoPlan(NO_VICTIMS)
    small = Scene(2).run("a", 0, 2)
    assert preempt_group(small.cluster(), small.gang(1, 2)) == NoPlan(CANNOT_HELP)
    polite = GroupPreemptor(small.gang(1).request, 100, may_preempt=False)
    assert preempt_group(small.cluster(), polite) == NoPlan(NEVER)


def test_pods_that_leave_already_are_waited_for_and_nobody_else_goes() -> None:
    scene = Scene(2, 2).run("dying", 0, 2, leaving=True).run("well", 1, 2)
    plan = preempt_group(scene.cluster(), scene.gang(2))
    assert isinstance(plan, Plan)
    assert (plan.victims, plan.waits_for) == ((), ("default/dying-0",))


def test_room_kept_for_others_is_not_planned_with() -> None:
    scene = Scene(2, 2).run("a", 0, 2).run("b", 1, 2, priority=10)
    shape = scene.gang(2).request.members[0].shape
    scene.nominations.append(Nomination("default/x", "n0", 100, shape, "other"))
    plan = preempt_group(scene.cluster(), scene.gang(2))
    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["b"]


def in_racks(gang: GroupPreemptor, layout: Layout | None = None) -> GroupPreemptor:
    return structs.replace(gang, request=structs.replace(gang.request, topology_key="rack", layout=layout))


def test_a_pinned_domain_is_the_only_one() -> None:
    scene = Scene(4, 4, 4, 4).run("a", 0, 3).run("b", 1, 3).run("c", 2, 4).run("d", 3, 1)
    gang = scene.gang(4, 2)
    plan = preempt_group(
        scene.cluster(), structs.replace(gang, request=structs.replace(in_racks(gang).request, topology_domain="r0"))
    )
    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["a", "b"]


def test_subgroups_of_a_preemptor_are_kept_together() -> None:
    # Two pods of 2 fit beside each other in r0 without b, and in r1 without c and d; one here and one there would
    # cost less, but a subgroup is not torn apart.
    scene = Scene(2, 2, 2, 2).run("b", 0, 2).run("c", 2, 2).run("d", 3, 2, priority=5)
    layout = Layout(TopologyTerms(subgroups=Subgroups(2, "rack")), (0, 1))
    plain, gang = scene.gang(2, 2), scene.gang(2, 2)
    torn = preempt_group(scene.cluster(), structs.replace(plain, request=structs.replace(plain.request, min_count=2)))
    kept = preempt_group(scene.cluster(), structs.replace(gang, request=structs.replace(gang.request, layout=layout)))
    assert isinstance(torn, Plan)
    assert isinstance(kept, Plan)
    assert [unit.key for unit in kept.victims] == ["b"]
    assert {placement.node for placement in kept.placements} == {"n0", "n1"}


def test_domains_are_compared_by_their_victims() -> None:
    scene = Scene(4, 4, 4, 4).run("a", 0, 3).run("b", 1, 3).run("c", 2, 4).run("d", 3, 1)
    plan = preempt_group(scene.cluster(), in_racks(scene.gang(4, 3)))
    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["c"]
    assert {placement.node for placement in plan.placements} == {"n2", "n3"}
    assert plan.proved


def test_of_equal_victims_those_go_that_could_run_elsewhere() -> None:
    one = Scene(2)
    one.run("x", 0, 1).run("y", 0, 1)
    alike = one.cluster()
    plan = preempt_group(replace(alike, shape_of=lambda key: None), one.gang(1))
    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["x"]
    one.state.set_node(make_node("spare", cpu="1", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    tolerant = make_pod("t", cpu="1", spec={**container(1, ()), "tolerations": [{"operator": "Exists"}]})
    shape = one.state.shape_of(tolerant)
    known = {"default/y-0": shape}
    plan = preempt_group(replace(one.cluster(), shape_of=known.get), one.gang(1))
    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["y"]
