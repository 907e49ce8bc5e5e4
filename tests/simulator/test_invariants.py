from __future__ import annotations

from muster.api.codec import Object, Objects, copy_object
from muster.nodes.spec import NodeSpec
from muster.simulator.history import History
from muster.simulator.invariants import InvariantChecker
from muster.simulator.options import ClusterOptions
from muster.simulator.run import simulate
from muster.simulator.steps import read_step
from muster.simulator.world import manifests_of
from muster.testing.builders import make_group, make_node, make_pod


class _Writes:
    """Writes objects as a store would, watched by a history and a checker."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.history = History()
        self.checker = InvariantChecker(ClusterOptions())
        self.time_s = 0.0

    def put(self, key: str, obj: Object) -> None:
        obj = copy_object(obj)
        obj["metadata"].setdefault("uid", f"uid of {key}")
        before, self.objects[key] = self.objects.get(key), obj
        self._tell(key, obj, before)

    def delete(self, key: str) -> None:
        self._tell(key, None, self.objects.pop(key))

    def pod(self, name: str, **fields: object) -> None:
        self.put(f"/pods/default/{name}", make_pod(name, **fields))  # type: ignore[arg-type]  # passed on as they are

    def bind(self, name: str, node: str) -> None:
        pod = copy_object(self.objects[f"/pods/default/{name}"])
        pod["spec"]["nodeName"] = node
        self.put(f"/pods/default/{name}", pod)

    def end(self, name: str) -> None:
        pod = copy_object(self.objects[f"/pods/default/{name}"])
        pod["status"]["phase"] = "Succeeded"
        self.put(f"/pods/default/{name}", pod)

    def violations(self, *, rest: bool = False) -> list[tuple[str, str]]:
        if rest:
            self.checker.check_rest(
                {plural: self._all(plural) for plural in ("pods", "podgroups", "workloads")}, self.history, 1.0
            )
        return [(each.invariant, each.object) for each in self.checker.violations]

    def _all(self, plural: str) -> Objects:
        return [obj for key, obj in sorted(self.objects.items()) if key.startswith(f"/{plural}/")]

    def _tell(self, key: str, value: Object | None, before: Object | None) -> None:
        self.time_s += 1
        self.history.observe(key, value, before, self.time_s)
        self.checker.observe(key, value, before, self.time_s)


def _world() -> _Writes:
    writes = _Writes()
    writes.put("/nodes/n", make_node("n", cpu="2", pods=3))
    return writes


def test_binding_beyond_what_a_node_has_is_a_violation() -> None:
    writes = _world()
    for name in ("a", "b", "c"):
        writes.pod(name, cpu="1")
        writes.bind(name, "n")

    assert writes.violations() == [("no-overcommit", "Node n")]


def test_pod_that_ended_gives_its_room_back() -> None:
    writes = _world()
    for name in ("a", "b", "c"):
        writes.pod(name, cpu="2")
        writes.bind(name, "n")
        writes.end(name)

    assert writes.violations() == []


def test_pod_that_was_deleted_gives_its_room_back() -> None:
    writes = _world()
    for name in ("a", "b"):
        writes.pod(name, cpu="2")
        writes.bind(name, "n")
        writes.delete(f"/pods/default/{name}")

    assert writes.violations() == []


def test_pods_created_with_a_node_are_not_our_decision() -> None:
    writes = _world()
    for name in ("a", "b"):
        writes.pod(name, cpu="2", node="n")

    assert writes.violations() == []


def test_host_port_used_twice_is_a_violation() -> None:
    writes = _world()
    container = {"name": "main", "image": "busybox", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for name in ("a", "b"):
        writes.pod(name, spec={"containers": [container]})
        writes.bind(name, "n")

    assert writes.violations() == [("no-overcommit", "Node n")]


def test_binding_to_a_node_that_does_not_exist_is_a_violation() -> None:
    writes = _world()
    writes.pod("a")
    writes.bind("a", "elsewhere")

    assert writes.violations() == [("no-overcommit", "Pod default/a")]


def test_part_of_a_gang_at_rest_is_a_violation() -> None:
    writes = _world()
    writes.put("/podgroups/default/g", make_group("g", min_count=2))
    for name in ("a", "b"):
        writes.pod(name, group="g")
    writes.bind("a", "n")

    assert ("whole-gangs", "PodGroup default/g") in writes.violations(rest=True)


def test_gang_whose_members_ended_was_whole() -> None:
    writes = _world()
    writes.put("/podgroups/default/g", make_group("g", min_count=2))
    for name in ("a", "b"):
        writes.pod(name, group="g")
        writes.bind(name, "n")
    writes.delete("/pods/default/a")

    assert writes.violations(rest=True) == []


def test_pod_that_waits_without_a_reason_is_lost() -> None:
    writes = _world()
    writes.pod("a")

    assert writes.violations(rest=True) == [("nothing-lost", "Pod default/a")]


def test_pod_of_another_scheduler_is_not_our_business() -> None:
    writes = _world()
    writes.pod("a", spec={"schedulerName": "theirs"})

    assert writes.violations(rest=True) == []


def test_min_count_raised_while_a_gang_runs_is_no_violation() -> None:
    writes = _world()
    writes.put("/podgroups/default/g", make_group("g", min_count=1))
    writes.pod("a", group="g")
    writes.bind("a", "n")
    writes.put("/podgroups/default/g", make_group("g", min_count=5))

    assert "whole-gangs" not in dict(writes.violations(rest=True))


def test_min_count_lowered_afterwards_does_not_hide_a_violation_of_before() -> None:
    writes = _world()
    writes.put("/podgroups/default/g", make_group("g", min_count=2))
    writes.pod("a", group="g")
    writes.bind("a", "n")
    writes.put("/podgroups/default/g", make_group("g", min_count=1))

    assert "whole-gangs" in dict(writes.violations(rest=True))


def test_members_that_came_with_their_node_are_nobodys_decision() -> None:
    writes = _world()
    writes.put("/podgroups/default/g", make_group("g", min_count=2))
    writes.pod("a", group="g", node="n")

    assert "whole-gangs" not in dict(writes.violations(rest=True))


def test_a_binding_on_its_way_to_a_node_that_is_just_deleted_violates_nothing() -> None:
    gang = [make_group("g", min_count=6), *(make_pod(f"g-{at}", group="g", cpu="1") for at in range(6))]
    for at_s in (0.03, 0.06, 0.09):
        outcome = simulate(
            manifests_of(gang),
            nodes=[NodeSpec(3, capacity={"cpu": "2", "pods": "110"})],
            timed=[(at_s, read_step("delete node/node-2"))],
        )
        assert outcome.violations == ()
