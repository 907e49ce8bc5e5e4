"""Every change that is told works when it is made, and a minimal one is not undercut: against trying all placements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.engine.decide import decide
from muster.engine.explanation.explain import explain
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

RACK = "topology.example/rack"


@dataclass(frozen=True)
class SmallNode:
    name: str
    cpu: float
    gpu: int
    rack: str = "r0"
    disk: str = "hdd"
    tainted: bool = False


@dataclass(frozen=True)
class SmallPod:
    cpu: float
    gpu: int = 0
    disk: str = ""
    tolerates: bool = False


@dataclass(frozen=True)
class Small:
    """A cluster, what runs on it (group, pod, node), and a group that wants to run in one rack, or anywhere."""

    nodes: tuple[SmallNode, ...]
    pods: tuple[SmallPod, ...]
    min_count: int
    in_one_rack: bool = False
    running: tuple[tuple[str, SmallPod, str], ...] = field(default=())

    def fits(self) -> bool:
        """Whether at least min_count pods fit: by trying all ways (a pod may stay without a node)."""
        choices = [None, *range(len(self.nodes))]
        return any(self._holds(places) for places in product(choices, repeat=len(self.pods)))

    def _holds(self, places: tuple[int | None, ...]) -> bool:
        used: list[list[float]] = [[0, 0] for _ in self.nodes]
        index = {node.name: at for at, node in enumerate(self.nodes)}
        for _, pod, on in self.running:
            used[index[on]][0] += pod.cpu
            used[index[on]][1] += pod.gpu
        placed = [(self.pods[at], place) for at, place in enumerate(places) if place is not None]
        for pod, place in placed:
            node = self.nodes[place]
            if (pod.disk and node.disk != pod.disk) or (node.tainted and not pod.tolerates):
                return False
            used[place][0] += pod.cpu
            used[place][1] += pod.gpu
        within = all(u[0] <= node.cpu and u[1] <= node.gpu for u, node in zip(used, self.nodes, strict=True))
        racks = {self.nodes[place].rack for _, place in placed}
        return within and len(placed) >= self.min_count and (not self.in_one_rack or len(racks) < 2)

    def explained(self) -> Object:
        state = ClusterState()
        for node in self.nodes:
            state.set_node(node_object(node))
        groups: dict[str, list[str]] = {}
        for at, (group, pod, on) in enumerate(self.running):
            state.add_pod(f"default/run{at}", pod_object(pod), on)
            groups.setdefault(group, []).append(f"default/run{at}")
        members = tuple(Member(f"default/p{at}", state.shape_of(pod_object(pod))) for at, pod in enumerate(self.pods))
        key = RACK if self.in_one_rack else None
        request = GroupRequest("default/g", members, self.min_count, topology_key=key)
        snapshot = state.snapshot()
        decision = decide(snapshot, request)
        assert isinstance(decision, Placed) == self.fits()
        return explain(snapshot, request, decision, groups=sorted(groups.items()))


def node_object(node: SmallNode) -> Object:
    taints: list[Object] = [{"key": "spot", "effect": "NoSchedule"}] if node.tainted else []
    labels = {RACK: node.rack, "disk": node.disk}
    return make_node(node.name, cpu=str(node.cpu), gpu=node.gpu, labels=labels, taints=taints)


def pod_object(pod: SmallPod) -> Object:
    spec: Object = {"nodeSelector": {"disk": pod.disk}} if pod.disk else {}
    if pod.tolerates:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    return make_pod(cpu=str(pod.cpu), spec=spec, gpu=pod.gpu) if pod.gpu else make_pod(cpu=str(pod.cpu), spec=spec)


def shape_of(pod: SmallPod) -> str:
    return f"{pod.gpu} nvidia.com/gpu and {pod.cpu} cpu" if pod.gpu else f"{pod.cpu} cpu"


def with_nodes(small: Small, change: Object, number: int) -> Small:
    like = next(node for node in small.nodes if node.name == change["like"])
    return replace(small, nodes=small.nodes + tuple(replace(like, name=f"extra{at}") for at in range(number)))


def with_request(small: Small, change: Object, to_units: int) -> Small:
    """The pods of the shape, of one kind here, with another request (cpu in millicores)."""

    def changed(pod: SmallPod) -> SmallPod:
        if shape_of(pod) != change["shape"]:
            return pod
        return replace(pod, cpu=to_units / 1000) if change["resource"] == "cpu" else replace(pod, gpu=to_units)

    return replace(small, pods=tuple(changed(pod) for pod in small.pods))


def units(change: Object) -> int:
    text = str(change["to"])
    if change["resource"] != "cpu":
        return int(text)
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def without(small: Small, groups: Iterable[str]) -> Small:
    gone = set(groups)
    return replace(small, running=tuple(each for each in small.running if each[0] not in gone))


def applied(small: Small, change: Object) -> list[Small]:
    """The world with the change, as a person would make it."""
    kind = change["kind"]
    if kind == "addNodes":
        return [with_nodes(small, change, change["nodes"])]
    if kind == "lowerRequest":
        return [with_request(small, change, units(change))]
    if kind == "lowerMinCount":
        return [replace(small, min_count=change["to"])]
    if kind == "changeTopology":
        assert change["to"] is None
        return [replace(small, in_one_rack=False)]
    if kind == "endGroups":
        return [without(small, change["groups"])]
    if kind == "dropRule":
        return [replace(small, pods=tuple(replace(pod, disk="") for pod in small.pods))]
    meant = [pod for pod in small.pods if change["shape"] in ("all pods", shape_of(pod))]
    return [replace(small, pods=tuple(replace(pod, tolerates=True) if pod in meant else pod for pod in small.pods))]


def one_smaller(small: Small, change: Object) -> list[Small]:
    kind = change["kind"]
    if kind == "addNodes":
        return [with_nodes(small, change, change["nodes"] - 1)]
    if kind == "lowerRequest":
        return [with_request(small, change, units(change) + 1)]
    if kind == "lowerMinCount":
        return [replace(small, min_count=change["to"] + 1)]
    if kind == "endGroups":
        names = {name for name, _, _ in small.running}
        sets = product([False, True], repeat=len(names))
        chosen = [[name for name, on in zip(sorted(names), each, strict=True) if on] for each in sets]
        return [without(small, each) for each in chosen if len(each) < len(change["groups"])]
    return [small]


@st.composite
def small_worlds(draw: st.DrawFn) -> Small:
    count = draw(st.integers(1, 3))
    nodes = tuple(
        SmallNode(
            f"n{at}",
            draw(st.integers(1, 4)),
            draw(st.integers(0, 2)),
            draw(st.sampled_from(("r0", "r1"))),
            draw(st.sampled_from(("hdd", "ssd"))),
            draw(st.booleans()),
        )
        for at in range(count)
    )
    kinds = draw(
        st.lists(
            st.builds(SmallPod, st.integers(1, 4), st.integers(0, 2), st.sampled_from(("", "", "ssd")), st.booleans()),
            min_size=1,
            max_size=2,
            unique_by=lambda pod: (pod.cpu, pod.gpu),
        )
    )
    pods = tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3)))
    running = tuple(
        (f"default/{name}", SmallPod(cpu), node.name)
        for node in nodes
        for name, cpu in draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2)), max_size=2))
    )
    used = {node.name: sum(pod.cpu for _, pod, on in running if on == node.name) for node in nodes}
    nodes = tuple(replace(node, cpu=max(node.cpu, used[node.name])) for node in nodes)
    return Small(nodes, pods, draw(st.integers(1, len(pods))), draw(st.booleans()), running)


@settings(max_examples=30, deadline=None)
@given(small_worlds())
def test_every_change_works_and_a_minimal_one_is_not_undercut(small: Small) -> None:
    if small.fits():
        return
    for change in small.explained()["changes"]:
        assert all(world.fits() for world in applied(small, change)), change
        if change["minimal"]:
            assert not any(world.fits() for world in one_smaller(small, change)), change


def test_mixed_group_is_told_what_each_kind_of_pod_could_do() -> None:
    nodes = (SmallNode("n0", 4, 2), SmallNode("n1", 4, 0))
    small = Small(nodes, (SmallPod(2, 2), SmallPod(3), SmallPod(3)), 3)

    found = {(change["kind"], change.get("shape")): change for change in small.explained()["changes"]}

    assert found["addNodes", None]["nodes"] == 1
    assert found["lowerRequest", "2 nvidia.com/gpu and 2 cpu"]["to"] == "1"
    assert found["lowerRequest", "3 cpu"]["to"] == "2"
    assert found["lowerMinCount", None]["to"] == 2
    assert all(change["minimal"] for change in found.values())


def test_rule_of_a_pod_that_is_in_the_way_is_named() -> None:
    small = Small((SmallNode("n0", 4, 0),), (SmallPod(1, disk="ssd"), SmallPod(2)), 2)

    found = {change["kind"]: change for change in small.explained()["changes"]}

    assert found["dropRule"]["text"] == "drop the node selector disk=ssd"
    assert "lowerRequest" not in found


def test_fewest_groups_are_named_though_more_smaller_ones_would_do() -> None:
    running = tuple((f"default/{name}", SmallPod(size), "n0") for name, size in (("a", 1), ("b", 1), ("c", 2)))
    small = Small((SmallNode("n0", 4, 0),), (SmallPod(2),), 1, running=running)

    (change,) = [change for change in small.explained()["changes"] if change["kind"] == "endGroups"]

    assert (change["groups"], change["minimal"]) == (["default/c"], True)
