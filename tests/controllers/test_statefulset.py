"""StatefulSets: order, revisions, claims."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from workload_objects import LABELS, NOW, pod_of, stored

from muster.api.codec import Object, copy_object
from muster.api.meta import is_deleting, name_of
from muster.api.resource import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from muster.controllers.action import Action, Create, Delete, Result, Update
from muster.controllers.apps.statefulset import StatefulSetController
from muster.controllers.apps.statefulset_pods import REVISION_LABEL, Spec, claim_owners, is_stale
from muster.testing.controller_state import ControllerState

KEY = "default/web"
RETAIN = {"whenDeleted": "Retain", "whenScaled": "Retain"}


def stateful_set(replicas: int = 3, *, ordered: bool = True, claims: bool = False, **spec: object) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    more: Object = {"podManagementPolicy": "OrderedReady" if ordered else "Parallel", "updateStrategy": rolling}
    if claims:
        more["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    return stored("StatefulSet", replicas=replicas, serviceName="web", **{**more, **spec})


class Cluster:
    """A StatefulSet, and kubelets that do one thing at a time."""

    def __init__(self, owner: Object) -> None:
        self.state = ControllerState(STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS)
        self.made = 0
        self.state.put(STATEFUL_SETS, owner)

    @property
    def owner(self) -> Object:
        owner = self.state[STATEFUL_SETS].get(KEY)
        assert owner is not None
        return owner

    @property
    def pods(self) -> list[Object]:
        return sorted(self.state[PODS].all(), key=name_of)

    def names(self) -> list[str]:
        return [name_of(pod) for pod in self.pods if not is_deleting(pod)]

    def reconcile(self) -> Result:
        result = StatefulSetController().reconcile(KEY, self.state, NOW)
        for action in result.actions:
            self._execute(action)
        return result

    def _execute(self, action: Action) -> None:
        if isinstance(action, Create):
            self.made += 1
            made = copy_object(action.object)
            made["metadata"] |= {"uid": f"uid-{self.made}", "creationTimestamp": "2026-01-01T00:00:00Z"}
            if action.resource == PODS:
                made["status"] = {"phase": "Pending"}
            self.state.put(action.resource, made)
        elif isinstance(action, Update):
            self.state.put(action.resource, action.object)
        elif isinstance(action, Delete) and action.resource == CONTROLLER_REVISIONS:
            revision = self.state[CONTROLLER_REVISIONS].get(f"default/{action.name}")
            assert revision is not None
            self.state.remove(CONTROLLER_REVISIONS, revision)
        elif isinstance(action, Delete):
            found = self.state[PODS].get(f"default/{action.name}")
            assert found is not None
            pod = copy_object(found)
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.state.put(PODS, pod)

    def settle(self) -> None:
        while self.reconcile().actions:
            pass

    def kubelet(self) -> bool:
        """Run one pod, or finish the deletion of one; whether there was something to do."""
        for pod in self.pods:
            if is_deleting(pod):
                self.state.remove(PODS, pod)
                return True
            if pod["status"]["phase"] == "Pending":
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                self.state.put(PODS, {**pod, "status": {"phase": "Running", "conditions": [ready]}})
                return True
        return False

    def run(self) -> None:
        self.settle()
        while self.kubelet():
            self.settle()

    def change(self, **spec: object) -> None:
        owner = copy_object(self.owner)
        owner["spec"] |= spec
        owner["metadata"]["generation"] += 1
        self.state.put(STATEFUL_SETS, owner)

    def set_image(self, image: str) -> None:
        template = copy_object(self.owner["spec"]["template"])
        template["spec"]["containers"][0]["image"] = image
        self.change(template=template)

    def images(self) -> list[str]:
        return [pod["spec"]["containers"][0]["image"] for pod in self.pods]


def test_ordered_pods_come_one_after_the_other() -> None:
    cluster = Cluster(stateful_set(3))
    cluster.settle()
    assert cluster.names() == ["web-0"]
    cluster.kubelet()
    cluster.settle()
    assert cluster.names() == ["web-0", "web-1"]


def test_parallel_pods_come_and_go_at_once() -> None:
    cluster = Cluster(stateful_set(3, ordered=False, ordinals={"start": 7}))
    cluster.settle()
    assert cluster.names() == ["web-7", "web-8", "web-9"]
    cluster.run()
    cluster.change(replicas=1)
    cluster.settle()
    assert cluster.names() == ["web-7"]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 5), st.integers(0, 5), st.booleans(), st.integers(0, 6))
def test_sizes_and_updates_are_reached_and_the_partition_kept(
    before: int, after: int, ordered: bool, partition: int
) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    cluster = Cluster(stateful_set(before, ordered=ordered, updateStrategy=rolling))
    cluster.run()
    assert len(cluster.pods) == before
    cluster.change(replicas=after)
    cluster.run()
    cluster.set_image("app:2")
    cluster.run()
    assert cluster.names() == [f"web-{ordinal}" for ordinal in range(after)]
    assert cluster.images() == ["app:1" if ordinal < partition else "app:2" for ordinal in range(after)]
    status = cluster.owner["status"]
    assert status["replicas"] == after and (status.get("readyReplicas") or 0) == after


def test_rolling_update_takes_one_pod_at_a_time_from_the_top() -> None:
    cluster = Cluster(stateful_set(3, ordered=False))
    cluster.run()
    cluster.set_image("app:2")
    cluster.settle()
    assert cluster.names() == ["web-0", "web-1"]


def test_rolling_update_may_take_more_pods_at_a_time() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 2}}
    cluster = Cluster(stateful_set(4, ordered=False, updateStrategy=rolling))
    cluster.run()
    cluster.set_image("app:2")
    cluster.settle()
    assert cluster.names() == ["web-0", "web-1"]


def test_old_template_gets_a_new_number_and_no_new_revision() -> None:
    cluster = Cluster(stateful_set(1))
    for image in ("app:1", "app:2", "app:1"):
        cluster.set_image(image)
        cluster.run()
    assert sorted(entry["revision"] for entry in cluster.state[CONTROLLER_REVISIONS].all()) == [2, 3]


def test_history_of_revisions_is_limited() -> None:
    cluster = Cluster(stateful_set(1, revisionHistoryLimit=1))
    for number in range(4):
        cluster.set_image(f"app:{number}")
        cluster.run()
    revisions = list(cluster.state[CONTROLLER_REVISIONS].all())
    assert sorted(entry["revision"] for entry in revisions) == [3, 4]
    assert cluster.owner["status"]["currentRevision"] in map(name_of, revisions)


def test_every_pod_gets_claims_that_stay_when_it_goes() -> None:
    cluster = Cluster(stateful_set(2, claims=True, persistentVolumeClaimRetentionPolicy=RETAIN))
    cluster.run()
    cluster.change(replicas=1)
    cluster.run()
    claims = list(cluster.state[PERSISTENT_VOLUME_CLAIMS].all())
    assert [name_of(claim) for claim in claims] == ["data-web-0", "data-web-1"]
    assert all(claim["metadata"]["labels"] == LABELS and "ownerReferences" not in claim["metadata"] for claim in claims)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
    assert cluster.pods[0]["spec"]["volumes"] == [volume]


def test_claim_goes_with_its_pod_or_with_the_set_as_the_policy_says() -> None:
    claim: Object = {"metadata": {"name": "data-web-1", "ownerReferences": [{"kind": "ConfigMap", "name": "c"}]}}
    for deleted, scaled, condemned, want in (
        ("Retain", "Retain", True, []),
        ("Delete", "Retain", True, ["StatefulSet"]),
        ("Delete", "Delete", False, ["StatefulSet"]),
        ("Delete", "Delete", True, ["Pod"]),
        ("Retain", "Delete", False, []),
        ("Retain", "Delete", True, ["Pod"]),
    ):
        policy = {"whenDeleted": deleted, "whenScaled": scaled}
        owner = stateful_set(1, persistentVolumeClaimRetentionPolicy=policy)
        owners = claim_owners(owner, Spec.of(owner), claim, pod_of(owner, "web-1"), is_condemned=condemned)
        assert [entry["kind"] for entry in owners] == ["ConfigMap", *want]


def test_pod_waits_until_the_claim_of_its_predecessor_is_gone() -> None:
    owner = stateful_set(1)
    claim: Object = {"metadata": {"ownerReferences": [{"kind": "Pod", "name": "web-0", "uid": "before"}]}}
    assert is_stale(claim, "web-0", None)
    assert not is_stale(claim, "web-0", {"metadata": {"uid": "before"}})
    cluster = Cluster(stateful_set(1, claims=True))
    claim["metadata"] |= {"name": "data-web-0", "namespace": "default", "uid": "c"}
    cluster.state.put(PERSISTENT_VOLUME_CLAIMS, claim)
    cluster.settle()
    assert cluster.names() == [] and owner


def test_pod_of_another_name_is_not_adopted() -> None:
    cluster = Cluster(stateful_set(0))
    stray = pod_of(cluster.owner, "stray")
    del stray["metadata"]["ownerReferences"]
    cluster.state.put(PODS, stray)
    cluster.settle()
    assert cluster.names() == ["stray"] and REVISION_LABEL not in stray["metadata"]["labels"]
