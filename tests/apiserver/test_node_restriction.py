"""What kubelets may write where they are restricted. The cases were put to kube-apiserver 1.36 with NodeRestriction."""

from __future__ import annotations

from typing import cast

import pytest
from serving import NODES, PODS, Api, finish

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest, User
from muster.client.transport import MERGE_PATCH

KUBELET = User("system:node:n1", ("system:nodes", "system:authenticated"))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TOKENS = "/api/v1/namespaces/default/serviceaccounts/robot/token"


@pytest.fixture
def api() -> Api:
    """A server with two nodes and a pod on each."""
    api = Api(ServerOptions(emulate="1.36", restricts_nodes=True))
    for name in ("n1", "n2"):
        api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        api.create(PODS, pod(name=f"on-{name}", node=name, mirror=False, owner=None))
    api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    return api


def ask(api: Api, method: str, path: str, body: JSON = None, user: User = KUBELET) -> str:
    """The answer's message, without what it is about; "": it was done."""
    headers = {"content-type": MERGE_PATCH} if method == "PATCH" else {}
    answer = finish(api.server.handle(ApiRequest(method, path, (), headers, body, user=user)))
    if answer.status < 400:
        return ""
    return str(cast(Object, answer.body)["message"]).partition(" is forbidden: ")[2] or f"{answer.status}"


def uid_of(api: Api, path: str) -> str:
    return str(api.get(path)["metadata"]["uid"])


def pod(
    name: str = "mirror", node: str = "n1", *, mirror: bool = True, owner: Object | None = None, **spec: JSON
) -> Object:
    meta: Object = {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"} if mirror else {}}
    meta["ownerReferences"] = [owner] if owner is not None else []
    containers = [{"name": "c", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "containers": containers, **spec},
    }


def own(api: Api, **changes: JSON) -> Object:
    """The reference of a mirror pod to its node."""
    of = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid_of(api, f"{NODES}/n1"), "controller": True}
    return {**of, **changes}


@pytest.mark.parametrize(
    ("path", "change", "want"),
    [
        ("n1", {"metadata": {"labels": {"x": "y", "kubernetes.io/hostname": "n1", "node.kubernetes.io/q": "w"}}}, ""),
        (
            "n1",
            {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "y", "foo.kubernetes.io/b": "1"}}},
            "is not allowed to modify labels: foo.kubernetes.io/b, node-restriction.kubernetes.io/a",
        ),
        ("n1/status", {"metadata": {"labels": {"a.k8s.io/b": "1"}}}, "is not allowed to modify labels: a.k8s.io/b"),
        (
            "n1",
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
            'node "n1" is not allowed to modify taints',
        ),
        (
            "n1",
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}},
            'node "n1" is not allowed to modify ownerReferences',
        ),
        ("n2", {"metadata": {"labels": {"x": "y"}}}, 'node "n1" is not allowed to modify node "n2"'),
        ("n2/status", {"status": {"phase": "Running"}}, 'node "n1" is not allowed to modify node "n2"'),
    ],
)
def test_a_kubelet_changes_its_own_node_but_not_what_keeps_pods_off_it(
    api: Api, path: str, change: Object, want: str
) -> None:
    assert ask(api, "PATCH", f"{NODES}/{path}", change) == want


def test_a_new_node_has_no_labels_that_kubelets_may_not_set(api: Api) -> None:
    api.delete(f"{NODES}/n1")
    labels = {"node-role.kubernetes.io/x": "", "kubelet.kubernetes.io/z": "1", "x": "y"}
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    why = 'node "n1" is not allowed to set the following labels: node-role.kubernetes.io/x'
    assert ask(api, "POST", NODES, node) == why


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, ""),
        ({"uid": "zz"}, "node n1 UID mismatch: expected zz got "),
        ({"controller": False}, 'node "n1" can only create pods with a controller owner reference set to itself'),
        ({"name": "n2"}, 'node "n1" can only create pods with an owner reference set to itself'),
        ({"kind": "Pod"}, 'node "n1" can only create pods with an owner reference set to itself'),
        ({"blockOwnerDeletion": True}, 'node "n1" must not set blockOwnerDeletion on an owner reference'),
    ],
)
def test_mirror_pods_belong_to_their_node(api: Api, changes: Object, want: str) -> None:
    assert ask(api, "POST", PODS, pod(owner=own(api, **changes))).startswith(want)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"serviceAccountName": "robot"}, "serviceaccounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "s"}}]}, "configmaps"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "s"}}]}, "persistentvolumeclaims"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "serviceaccounts (via projected volumes)",
        ),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "csidrivers (via CSI volumes)"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        (
            {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "s"}}]}]},
            "configmaps",
        ),
        ({"resourceClaims": [{"name": "s", "resourceClaimName": "x"}]}, "resourceclaims"),
    ],
)
def test_mirror_pods_refer_to_nothing(api: Api, spec: Object, want: str) -> None:
    why = f'node "n1" can not create pods that reference {want}'
    assert ask(api, "POST", PODS, pod(owner=own(api), **spec)) == why


def test_a_kubelet_makes_no_other_pods(api: Api) -> None:
    only = 'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods'
    assert ask(api, "POST", PODS, pod(mirror=False, owner=own(api))) == only
    elsewhere = 'node "n1" can only create pods with spec.nodeName set to itself'
    assert ask(api, "POST", PODS, pod(node="n2", owner=own(api))) == elsewhere


@pytest.mark.parametrize(
    ("name", "change", "want"),
    [
        ("on-n1", {"status": {"phase": "Running"}}, ""),
        (
            "on-n2",
            {"status": {"phase": "Running"}},
            'node "n1" can only update pod status for pods with spec.nodeName set to itself',
        ),
        (
            "on-n1",
            {"metadata": {"labels": {"a": "b"}}},
            'node "n1" cannot update labels through pod status',
        ),
        (
            "on-n1",
            {"status": {"resourceClaimStatuses": [{"name": "a"}]}},
            'node "n1" cannot update resource claim statues',
        ),
    ],
)
def test_a_kubelet_tells_how_its_pods_are(api: Api, name: str, change: Object, want: str) -> None:
    assert ask(api, "PATCH", f"{PODS}/{name}/status", change) == want


def test_a_kubelet_ends_its_own_pods_only(api: Api) -> None:
    assert ask(api, "DELETE", f"{PODS}/on-n2") == 'node "n1" can only delete pods with spec.nodeName set to itself'
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "on-n2"}}
    why = "node n1 can only evict pods with spec.nodeName set to itself"
    assert ask(api, "POST", f"{PODS}/on-n2/eviction", eviction) == why
    assert ask(api, "DELETE", f"{PODS}/on-n1") == ""


@pytest.mark.parametrize(
    ("path", "name", "want"),
    [
        (LEASES, "n1", ""),
        (LEASES, "n2", "can only access node lease with the same name as the requesting node"),
        (CSI_NODES, "n1", ""),
        (CSI_NODES, "n2", "can only access CSINode with the same name as the requesting node"),
    ],
)
def test_what_is_named_as_a_node_is_that_nodes(api: Api, path: str, name: str, want: str) -> None:
    if path == LEASES and ask(api, "GET", "/api/v1/namespaces/kube-node-lease", user=User("admin")):
        api.create("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    assert ask(api, "POST", path, {"metadata": {"name": name}, "spec": {"drivers": []}}) == want


def test_a_kubelet_publishes_its_own_devices(api: Api) -> None:
    def made(node: str) -> str:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        spec: Object = {"driver": "d", "nodeName": node, "pool": pool, "devices": []}
        return ask(api, "POST", SLICES, {"metadata": {"name": f"of-{node}"}, "spec": spec})

    assert made("n1") == ""
    assert made("n2") == "can only create ResourceSlice with the same NodeName as the requesting node"


@pytest.mark.parametrize(
    ("name", "uid", "want"),
    [
        ("", "", "node requested token not bound to a pod"),
        ("on-n1", "", "node requested token with a pod binding without a uid"),
        ("on-n1", "zz", "the UID in the bound object reference (zz) does not match the UID in record."),
        ("on-n2", "own", "node requested token bound to a pod scheduled on a different node"),
        ("missing", "zz", "404"),
    ],
)
def test_a_kubelet_gets_tokens_for_its_pods_only(api: Api, name: str, uid: str, want: str) -> None:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name}
    bound["uid"] = uid_of(api, f"{PODS}/{name}") if uid == "own" else uid
    request: Object = {"spec": {"boundObjectRef": bound} if name else {}}
    assert ask(api, "POST", TOKENS, request).startswith(want)


def test_tokens_are_for_those_that_volumes_of_the_pod_name(api: Api) -> None:
    source = {"serviceAccountToken": {"path": "t", "audience": "vault"}}
    volumes = [{"name": "v", "projected": {"sources": [source]}}]
    api.create(PODS, pod(name="reader", mirror=False, volumes=volumes, serviceAccountName="robot"))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "reader", "uid": uid_of(api, f"{PODS}/reader")}
    refusing = Api(ServerOptions(emulate="1.36", restricts_nodes=True, authorization_modes=("Node", "RBAC")), api.store)

    def asked(audience: str) -> str:
        return ask(refusing, "POST", TOKENS, {"spec": {"boundObjectRef": bound, "audiences": [audience]}})

    assert asked("vault") == ""
    why = "system:node:n1 is not authorized to request tokens for this audience"
    assert asked("other") == f'audience "other" not found in pod spec volume, {why}'


def test_others_and_kubelets_that_are_not_restricted_write_as_before(api: Api) -> None:
    change: Object = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert ask(api, "PATCH", f"{NODES}/n1", change, user=User("jane")) == ""
    assert ask(Api(ServerOptions(), api.store), "PATCH", f"{NODES}/n2", change) == ""
