"""Our own decisions are no worse than those of kube-scheduler's greedy cycle, on random small clusters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.preemption.budgets import Budgets, parse_budget
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy
from muster.engine.upstream.cycle import Cycle
from muster.engine.upstream.model import PodGroup, Release
from muster.engine.upstream.preemption import Preemptor, preempt
from muster.testing import make_node, make_pod

RACK = "rack"
NOW_S = 1_000.0

releases = st.sampled_from(["1.36", "1.37"])
nodes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=5)
sizes = st.lists(st.integers(1, 3), min_size=1, max_size=5)
victims = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.booleans()), max_size=8)


def cluster(listed: list[tuple[int, int]]) -> ClusterState:
    state = ClusterState()
    for at, (cpu, rack) in enumerate(listed):
        state.set_node(make_node(f"n{at}", cpu=str(cpu), labels={RACK: f"r{rack}"}))
    return state


def asked(state: ClusterState, cpus: list[int], min_count: int, topology: bool) -> GroupRequest:
    members = tuple(Member(f"default/p{at}", state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(cpus))
    return GroupRequest("default/g", members, min_count, topology_key=RACK if topology else None)


@settings(max_examples=40, deadline=None)
@given(releases, nodes, sizes, st.integers(1, 5), st.booleans())
def test_what_the_greedy_cycle_places_is_placed(
    release: Release, listed: list[tuple[int, int]], cpus: list[int], min_count: int, topology: bool
) -> None:
    state = cluster(listed)
    request = asked(state, cpus, min(min_count, len(cpus)), topology)

    theirs, ours = greedy(state.snapshot(), request, release=release), decide(state.snapshot(), request)

    if theirs.placed:
        assert isinstance(ours, Placed)
        assert len(ours.placements) >= len(theirs.placements)


@settings(max_examples=30, deadline=None)
@given(releases, nodes, victims, sizes, st.booleans())
def test_no_victim_set_is_worse(
    release: Release,
    listed: list[tuple[int, int]],
    running: list[tuple[int, int, bool, bool]],
    cpus: list[int],
    topology: bool,
) -> None:
    state = cluster(listed)
    units = _running(state, len(listed), running)
    request = asked(state, cpus, len(cpus), topology)
    if isinstance(decide(state.snapshot(), request), Placed):
        return
    budget = parse_budget(
        {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "kept"}}},
            "status": {"disruptionsAllowed": 1},
        }
    )
    assert budget is not None
    found = Cluster(state.snapshot(), units, NOW_S, Budgets([budget]))

    group = PodGroup(request.key, request.members, request.min_count, topology_key=request.topology_key)
    theirs = preempt(found, Preemptor(group, 10), Cycle(DEFAULT_PROFILE, release))
    ours = preempt_group(found, GroupPreemptor(request, 10))

    if isinstance(theirs, Plan):
        assert isinstance(ours, Plan)
        assert _cost(ours) <= _cost(theirs)


def _running(state: ClusterState, number: int, pods: list[tuple[int, int, bool, bool]]) -> list[Unit]:
    """Pods of one cpu on nodes that have room; neighbours in the list of which both say so go together."""
    units: list[Unit] = []
    for at, (priority, node, kept, together) in enumerate(pods):
        name = f"n{node % number}"
        row = state.snapshot().table.index[name]
        if state.snapshot().free()[row, state.snapshot().axis.columns["cpu"]] < 1000:
            continue
        labels = {"app": "kept"} if kept else {}
        state.add_pod(f"default/v{at}", make_pod(f"v{at}", node=name, cpu="1", labels=labels), name)
        pod = RunningPod(f"default/v{at}", name, 10.0 * at, labels)
        if together and units and units[-1].is_group:
            units[-1] = Unit(units[-1].key, units[-1].priority, (*units[-1].pods, pod), is_group=True)
        else:
            units.append(Unit(f"u{at}", priority, (pod,), is_group=together))
    return units


def _cost(plan: Plan) -> tuple[int, int, int]:
    highest = max((unit.priority for unit in plan.victims), default=-1)
    return plan.violations, highest, len(plan.evicted)
