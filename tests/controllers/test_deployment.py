"""Deployments: sizes of ReplicaSets, revisions, and a model of whole rollouts."""

from __future__ import annotations

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from workload_objects import NOW, stored

from muster.api.codec import Object, copy_object
from muster.api.meta import name_of, uid_of
from muster.api.resource import DEPLOYMENTS, PODS, REPLICA_SETS
from muster.controllers.action import Create, Delete, Result, Update
from muster.controllers.apps.deployment import DeploymentController
from muster.controllers.apps.deployment_sets import annotated, sets_of
from muster.controllers.apps.deployment_sizes import (
    limits,
    max_surge,
    max_unavailable,
    proportional_sizes,
    replicas_of,
    total_replicas,
)
from muster.controllers.apps.deployment_status import deadline_left_s
from muster.controllers.percentages import scaled
from muster.testing.controller_state import ControllerState

KEY = "default/web"
NUMBERS = st.one_of(st.integers(0, 10), st.integers(0, 100).map(lambda part: f"{part}%"))


def deployment(replicas: int = 3, *, surge: object = 1, unavailable: object = 0, **spec: object) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    return stored("Deployment", replicas=replicas, strategy=strategy, **cast("Object", spec))


class Cluster:
    """A Deployment and its ReplicaSets, whose pods get ready and end at once when `step` says so."""

    def __init__(self, obj: Object) -> None:
        self.state = ControllerState(DEPLOYMENTS, REPLICA_SETS, PODS)
        self.controller = DeploymentController()
        self.made = 0
        self.state.put(DEPLOYMENTS, obj)

    @property
    def deployment(self) -> Object:
        found = self.state[DEPLOYMENTS].get(KEY)
        assert found is not None
        return found

    @property
    def sets(self) -> list[Object]:
        return list(self.state[REPLICA_SETS].all())

    def reconcile(self) -> Result:
        result = self.controller.reconcile(KEY, self.state, NOW)
        for action in result.actions:
            if isinstance(action, Create):
                self.made += 1
                made = copy_object(action.object)
                made["metadata"] |= {"uid": f"rs-{self.made}", "generation": 1}
                made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{self.made:02}Z"
                self.state.put(REPLICA_SETS, {**made, "status": {"replicas": 0}})
            elif isinstance(action, Update):
                self.state.put(action.resource, action.object)
            elif isinstance(action, Delete):
                self.state.remove(REPLICA_SETS, *[found for found in self.sets if name_of(found) == action.name])
        return result

    def pods_follow(self, found: Object) -> None:
        """The pods of a ReplicaSet are as many as it asks for, all available."""
        size = replicas_of(found)
        status = {"replicas": size, "readyReplicas": size, "availableReplicas": size, "terminatingReplicas": 0}
        status["observedGeneration"] = found["metadata"]["generation"]
        self.state.put(REPLICA_SETS, {**found, "status": status})

    def roll_out(self, check: bool = True) -> None:
        """Until nothing changes any more."""
        for _ in range(300):
            acted = bool(self.reconcile().actions)
            lagging = [
                found for found in self.sets if (found.get("status") or {}).get("replicas") != replicas_of(found)
            ]
            if check:
                self.check()
            if lagging:
                self.pods_follow(lagging[0])
            elif not acted:
                return
        raise AssertionError("the rollout never ends")

    def check(self) -> None:
        """Never too many pods are asked for, and never too few available ones are left."""
        obj = self.deployment
        assert total_replicas(self.sets) <= replicas_of(obj) + max_surge(obj)
        kept = sum(min(replicas_of(found), found["status"].get("availableReplicas") or 0) for found in self.sets)
        assert kept >= replicas_of(obj) - max_unavailable(obj)

    def change(self, **spec: object) -> None:
        obj = copy_object(self.deployment)
        obj["spec"] |= spec
        obj["metadata"]["generation"] += 1
        self.state.put(DEPLOYMENTS, obj)

    def set_image(self, image: str) -> None:
        template = copy_object(self.deployment["spec"]["template"])
        template["spec"]["containers"][0]["image"] = image
        self.change(template=template)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 12), NUMBERS, NUMBERS)
def test_rollout_keeps_within_its_limits_and_ends_with_new_pods_only(
    replicas: int, surge: object, unavailable: object
) -> None:
    cluster = Cluster(deployment(replicas, surge=surge, unavailable=unavailable))
    cluster.roll_out(check=False)
    cluster.set_image("app:2")
    cluster.roll_out()
    sizes = {found["spec"]["template"]["spec"]["containers"][0]["image"]: replicas_of(found) for found in cluster.sets}
    assert sizes == {"app:1": 0, "app:2": replicas}
    assert cluster.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 6))
def test_scaling_in_the_middle_of_a_rollout_reaches_the_allowed_size(before: int, after: int, surge: int) -> None:
    cluster = Cluster(deployment(before, surge=surge, unavailable=1))
    cluster.roll_out(check=False)
    cluster.set_image("app:2")
    for _ in range(3):
        cluster.reconcile()
    cluster.change(replicas=after)
    cluster.reconcile()
    sizes = total_replicas(cluster.sets)
    assert sizes <= max(after + surge, 0) or sizes == before
    cluster.roll_out(check=False)
    assert total_replicas(cluster.sets) == after


@given(st.integers(0, 50), st.lists(st.integers(1, 30), min_size=2, max_size=5), st.integers(0, 5))
def test_proportional_sizes_add_up_to_what_is_allowed(wanted: int, sizes: list[int], surge: int) -> None:
    obj = deployment(wanted, surge=surge, unavailable=1)
    before = str(sum(sizes))
    sets = [
        {
            **stored("ReplicaSet", f"rs-{number}", replicas=size),
            "metadata": {"name": f"rs-{number}", "annotations": {"deployment.kubernetes.io/max-replicas": before}},
        }
        for number, size in enumerate(sizes)
    ]
    found = proportional_sizes(obj, sets)
    allowed = wanted + surge if wanted else 0
    assert all(size >= 0 for size in found.values())
    assert sum(found.values()) == allowed
    assert proportional_sizes(obj, list(reversed(sets))) == found


def test_limits_that_are_both_zero_let_one_pod_go() -> None:
    assert limits(deployment(3, surge=0, unavailable="10%")) == (0, 1)
    assert max_unavailable(deployment(2, surge=0, unavailable=9)) == 2


@given(st.integers(0, 100), st.integers(0, 1000))
def test_percentages_round_as_asked(part: int, total: int) -> None:
    down, up = scaled(f"{part}%", total, up=False), scaled(f"{part}%", total, up=True)
    assert down * 100 <= part * total <= up * 100 and up - down <= 1


def test_going_back_gives_the_old_replica_set_a_new_revision() -> None:
    cluster = Cluster(deployment(2))
    cluster.roll_out(check=False)
    for image in ("app:2", "app:1"):
        cluster.set_image(image)
        cluster.roll_out()
    annotations = {found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for found in cluster.sets}
    assert annotations == {"2", "3"} and cluster.made == 2


def test_history_of_revisions_gives_up_the_oldest() -> None:
    found = stored("ReplicaSet")
    history = ",".join(str(number) for number in range(100, 600))
    found["metadata"]["annotations"] = {
        "deployment.kubernetes.io/revision": "600",
        "deployment.kubernetes.io/revision-history": history,
    }
    written = annotated(deployment(), found, 601, exists=True)["deployment.kubernetes.io/revision-history"]
    assert len(written) <= 2000 and written.endswith(",599,600") and not written.startswith("100,")


def test_replica_set_of_another_owner_with_the_same_name_changes_the_hash() -> None:
    cluster = Cluster(deployment(1))
    (create, *_) = cluster.controller.reconcile(KEY, cluster.state, NOW).actions
    assert isinstance(create, Create)
    stranger = copy_object(create.object)
    stranger["metadata"]["ownerReferences"][0] |= {"uid": "another", "name": "another"}
    cluster.state.put(REPLICA_SETS, stranger)
    cluster.reconcile()
    assert cluster.deployment["status"]["collisionCount"] == 1
    (create, *_) = cluster.controller.reconcile(KEY, cluster.state, NOW).actions
    assert isinstance(create, Create) and name_of(create.object) != name_of(stranger)


def test_rollout_without_a_deadline_never_times_out() -> None:
    obj = deployment(1, progressDeadlineSeconds=2**31 - 1)
    condition = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
    condition["lastUpdateTime"] = "2020-01-01T00:00:00Z"
    assert deadline_left_s(obj, {"conditions": [condition]}, NOW) is None


def test_new_replica_set_is_the_one_with_the_template_whatever_its_hash() -> None:
    obj = deployment()
    found = stored("ReplicaSet", "old")
    found["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = "x"
    sets = sets_of(obj, [stored("ReplicaSet", "other", image="app:9"), found])
    assert sets.new is not None and uid_of(sets.new) == "uid-of-old"
