"""What the kubelet of a node may do: its own node, its pods, and what they need. Nothing of other nodes.

Source: kube-apiserver `plugin/pkg/auth/authorizer/node`.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import JSON, Object, Objects
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.rules import Decision, allows
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

PREFIX = "system:node:"
GROUP = "system:nodes"
LEASES = "kube-node-lease"
_READS = ("get", "list", "watch")
_LEASE_VERBS = ("get", "create", "update", "patch", "delete")
_ALLOW = Decision(True)


def decide(store: Store, user: User, attributes: Attributes) -> Decision:
    """Whether a node's kubelet may do something; no opinion about others."""
    if not user.name.startswith(PREFIX) or GROUP not in user.groups:
        return Decision(False)
    node = user.name.removeprefix(PREFIX)
    if not node:
        return Decision(False, f'unknown node for user "{user.name}"')
    if attributes.is_resource:
        match attributes.group, attributes.resource:
            case "", ("secrets" | "configmaps"):
                return _readable(store, node, attributes)
            case ("", ("persistentvolumeclaims" | "persistentvolumes")) if attributes.subresource != "status":
                return _gettable(store, node, attributes)
            case "resource.k8s.io", "resourceclaims":
                return _gettable(store, node, attributes)
            case "", "serviceaccounts":
                return _account_token(store, node, attributes)
            case "coordination.k8s.io", "leases":
                return _lease(node, attributes)
            case "storage.k8s.io", "csinodes":
                return _csi_node(node, attributes)
            case "resource.k8s.io", "resourceslices":
                return _slice(store, node, attributes)
            case "", "nodes":
                decision = _node(node, attributes)
                if decision is not None:
                    return decision
            case "", "pods":
                decision = _pod(store, node, attributes)
                if decision is not None:
                    return decision
    role = store.get("/clusterroles/system:node") or {}
    return Decision(any(allows(rule, attributes) for rule in role.get("rules") or ()))


def _readable(store: Store, node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _READS:
        return Decision(False, "can only read resources of this type")
    if attributes.subresource:
        return Decision(False, "cannot read subresource")
    if not attributes.namespace:
        return Decision(False, "can only read namespaced object of this type")
    return _related(store, node, attributes)


def _gettable(store: Store, node: str, attributes: Attributes) -> Decision:
    if attributes.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    if attributes.subresource:
        return Decision(False, "cannot get subresource")
    return _related(store, node, attributes)


def _account_token(store: Store, node: str, attributes: Attributes) -> Decision:
    if attributes.verb != "create" or attributes.subresource != "token":
        return Decision(False, "can only create tokens for individual service accounts")
    return _related(store, node, attributes)


def _lease(node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _LEASE_VERBS:
        return Decision(False, "can only get, create, update, patch, or delete a node lease")
    if attributes.namespace != LEASES:
        return Decision(False, f'can only access leases in the "{LEASES}" system namespace')
    if attributes.verb != "create" and attributes.name != node:
        return Decision(False, "can only access node lease with the same name as the requesting node")
    return _ALLOW


def _csi_node(node: str, attributes: Attributes) -> Decision:
    if attributes.subresource:
        return Decision(False, "cannot authorize CSINode subresources")
    if attributes.verb not in ("get", "create", "update", "patch", "delete"):
        return Decision(False, "can only get, create, update, patch, or delete a CSINode")
    if attributes.verb != "create" and attributes.name != node:
        return Decision(False, "can only access CSINode with the same name as the requesting node")
    return _ALLOW


def _slice(store: Store, node: str, attributes: Attributes) -> Decision:
    if attributes.subresource:
        return Decision(False, "cannot access subresource")
    match attributes.verb:
        case "create":
            return _ALLOW  # for which node is seen at admission
        case "get" | "update" | "patch" | "delete":
            found = store.get(f"/resourceslices/{attributes.name}") or {}
            if (found.get("spec") or {}).get("nodeName") == node:
                return _ALLOW
            return Decision(False, f"no relationship found between node '{node}' and this object")
        case "list" | "watch" | "deletecollection":
            if ("spec.nodeName", node) in attributes.fields:
                return _ALLOW
            why = "can only list/watch/deletecollection resourceslices with spec.nodeName field selector"
            return Decision(False, why)
    verbs = "get, watch, list, create, update, patch, delete, deletecollection"
    return Decision(False, f"only the following verbs are allowed for a ResourceSlice: {verbs}")


def _node(node: str, attributes: Attributes) -> Decision | None:
    if attributes.subresource or attributes.verb not in _READS:
        return None
    if attributes.name == node:
        return _ALLOW
    if attributes.verb == "get":
        return Decision(False, f"node '{node}' cannot read '{attributes.name}', only its own Node object")
    return Decision(False, f"node '{node}' cannot read all nodes, only its own Node object")


def _pod(store: Store, node: str, attributes: Attributes) -> Decision | None:
    if attributes.subresource or attributes.verb not in _READS:
        return None
    if attributes.verb == "get":
        return _related(store, node, attributes)
    if ("spec.nodeName", node) in attributes.fields:
        return _ALLOW
    return Decision(False, "can only list/watch pods with spec.nodeName field selector")


def _related(store: Store, node: str, attributes: Attributes) -> Decision:
    if not attributes.name:
        return Decision(False, "No Object name found")
    wanted = (attributes.resource, attributes.namespace, attributes.name)
    prefix = f"/pods/{attributes.namespace}/" if attributes.namespace else "/pods/"
    for pod in store.list(prefix).items:
        if (pod.get("spec") or {}).get("nodeName") == node and wanted in needs_of(store, pod):
            return _ALLOW
    return Decision(False, f"no relationship found between node '{node}' and this object")


def needs_of(store: Store, pod: Object) -> set[tuple[str, str, str]]:
    """What a pod needs its node to read, as (resource, namespace, name): itself and what it names."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    namespace = meta["namespace"]
    found = {("pods", namespace, meta["name"]), ("serviceaccounts", namespace, spec.get("serviceAccountName") or "")}
    found |= {(resource, namespace, name) for resource, name in _references(spec)}
    found |= {("secrets", namespace, one.get("name", "")) for one in spec.get("imagePullSecrets") or ()}
    for resource, _, name in tuple(found):
        if resource == "persistentvolumeclaims":
            claim = store.get(f"/persistentvolumeclaims/{namespace}/{name}")
            found.add(("persistentvolumes", "", ((claim or {}).get("spec") or {}).get("volumeName") or ""))
    statuses: Objects = (pod.get("status") or {}).get("resourceClaimStatuses") or []
    found |= {("resourceclaims", namespace, one.get("resourceClaimName") or "") for one in statuses}
    return found


_NAMED = {
    "secretRef": "secrets",
    "secretKeyRef": "secrets",
    "configMapRef": "configmaps",
    "configMapKeyRef": "configmaps",
}


def _references(value: JSON, key: str = "") -> Iterator[tuple[str, str]]:
    """What a pod's spec refers to, as (resource, name), wherever that stands."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item, key)
    if not isinstance(value, dict):
        return
    if key in _NAMED and value.get("name"):
        yield _NAMED[key], value["name"]
    elif key == "secret" and (value.get("secretName") or value.get("name")):
        yield "secrets", value.get("secretName") or value["name"]
    elif key == "configMap" and value.get("name"):
        yield "configmaps", value["name"]
    elif key == "persistentVolumeClaim" and value.get("claimName"):
        yield "persistentvolumeclaims", value["claimName"]
    elif key == "resourceClaims" and value.get("resourceClaimName"):
        yield "resourceclaims", value["resourceClaimName"]
    for name, item in value.items():
        yield from _references(item, name)
