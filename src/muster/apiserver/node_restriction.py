"""What kubelets may write, beyond what authorization says: their own node, mirror pods, and what is theirs.

Source: upstream's admission plugin NodeRestriction (`plugin/pkg/admission/noderestriction`), and answers of
kube-apiserver 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from muster.api.codec import JSON, Object
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.authorization.nodes import GROUP, LEASES, PREFIX
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden, not_found
from muster.apiserver.resources import Served

Operation = Literal["create", "update", "delete"]
MIRROR = "kubernetes.io/config.mirror"
_KUBELET_LABELS = frozenset(
    ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/os")
    + ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "kubernetes.io/arch")
    + ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os")
    + ("beta.kubernetes.io/arch",)
)
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
_RESTRICTED = ("node-restriction.kubernetes.io",)


def restrict(
    ctx: Context, served: Served, operation: Operation, name: str, new: Object | None, old: Object | None
) -> None:
    """Refuse what the kubelet who asks may not write. Raises StatusError (403)."""
    node = node_of(ctx)
    if node is None:
        return
    why = _refusal(ctx, served, operation, name, node, new, old)
    if why:
        raise forbidden(Qualified(served.resource.group, served.resource.plural), name, why)


def node_of(ctx: Context) -> str | None:
    """The node whose kubelet asks; None for others, and where kubelets are not restricted."""
    user = ctx.user
    if not ctx.options.restricts_nodes or not user.name.startswith(PREFIX) or GROUP not in user.groups:
        return None
    return user.name.removeprefix(PREFIX)


def _refusal(
    ctx: Context, served: Served, operation: Operation, name: str, node: str, new: Object | None, old: Object | None
) -> str:
    match served.resource.group, served.resource.plural:
        case "", "pods":
            return _pod(ctx, operation, node, new, old)
        case "", "nodes":
            return _node(operation, name, node, new, old)
        case "coordination.k8s.io", "leases":
            if ((new or old or {}).get("metadata") or {}).get("namespace") != LEASES:
                return f'can only access leases in the "{LEASES}" system namespace'
            return "" if name == node else "can only access node lease with the same name as the requesting node"
        case "storage.k8s.io", "csinodes":
            return "" if name == node else "can only access CSINode with the same name as the requesting node"
        case "resource.k8s.io", "resourceslices":
            return _slice(operation, node, new, old)
    return ""


def _slice(operation: Operation, node: str, new: Object | None, old: Object | None) -> str:
    of = new if operation == "create" else old
    if operation == "update" or ((of or {}).get("spec") or {}).get("nodeName") == node:
        return ""  # the node's name does not change
    return f"can only {operation} ResourceSlice with the same NodeName as the requesting node"


# --- nodes ---


def _node(operation: Operation, name: str, node: str, new: Object | None, old: Object | None) -> str:
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if new is None:
        return ""
    labels = new["metadata"].get("labels") or {}
    if old is None:
        wrong = sorted(key for key in labels if not _is_of_kubelet(key))
        return f'node "{node}" is not allowed to set the following labels: {", ".join(wrong)}' if wrong else ""
    if "spec" in new and _taints(new) != _taints(old):  # a patch of the status comes without what it cannot change
        return f'node "{node}" is not allowed to modify taints'
    before = old["metadata"].get("labels") or {}
    changed = {key for key in labels.keys() | before.keys() if labels.get(key) != before.get(key)}
    wrong = sorted(key for key in changed if not _is_of_kubelet(key))
    if wrong:
        return f"is not allowed to modify labels: {', '.join(wrong)}"
    if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
        return f'node "{node}" is not allowed to modify ownerReferences'
    return ""


def _taints(node: Object) -> JSON:
    return (node.get("spec") or {}).get("taints") or []


def _is_of_kubelet(key: str) -> bool:
    """Whether a kubelet may set a label of its node."""
    domain, slash, _ = key.partition("/")
    if not slash:
        return True
    if _is_in(domain, _RESTRICTED):
        return False
    return key in _KUBELET_LABELS or _is_in(domain, _KUBELET_DOMAINS) or not _is_in(domain, _KUBERNETES_DOMAINS)


def _is_in(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


# --- pods ---


def _pod(ctx: Context, operation: Operation, node: str, new: Object | None, old: Object | None) -> str:
    if ctx.subresource == "status" and new is not None and old is not None:
        return _pod_status(node, new, old)
    if ctx.subresource == "eviction" and old is not None:
        return "" if _runs_on(old, node) else f"node {node} can only evict pods with spec.nodeName set to itself"
    if operation == "create" and new is not None:
        return _mirror_pod(ctx, node, new)
    if operation == "delete" and old is not None:
        return "" if _runs_on(old, node) else f'node "{node}" can only delete pods with spec.nodeName set to itself'
    return f'unexpected operation "{operation.upper()}", node "{node}" can only create and delete mirror pods'


def _runs_on(pod: Object, node: str) -> bool:
    return (pod.get("spec") or {}).get("nodeName") == node


def _pod_status(node: str, new: Object, old: Object) -> str:
    if not _runs_on(old, node):
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    after, before = new.get("status") or {}, old.get("status") or {}
    if (after.get("resourceClaimStatuses") or []) != (before.get("resourceClaimStatuses") or []):
        return f'node "{node}" cannot update resource claim statues'
    if after.get("extendedResourceClaimStatus") != before.get("extendedResourceClaimStatus"):
        return f'node "{node}" cannot update extended resource claim status'
    return ""


def _mirror_pod(ctx: Context, node: str, pod: Object) -> str:
    meta = pod["metadata"]
    if MIRROR not in (meta.get("annotations") or {}):
        return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
    if not _runs_on(pod, node):
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = meta.get("ownerReferences") or []
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    found = ctx.read("nodes", "", node)
    if found is None:
        raise not_found(Qualified("", "nodes"), node)
    if owner.get("uid") != found["metadata"]["uid"]:
        return f"node {node} UID mismatch: expected {owner.get('uid')} got {found['metadata']['uid']}"
    named = next(_references(pod.get("spec") or {}), "")
    return f'node "{node}" can not create pods that reference {named}' if named else ""


_SOURCES = {
    "secret": "secrets",
    "configMap": "configmaps",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "csi": "csidrivers (via CSI volumes)",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
}
_PROJECTED = {
    "secret": "secrets (via projected volumes)",
    "configMap": "configmaps (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles (via projected volumes)",
}


def _references(spec: Object) -> Iterator[str]:
    """What a mirror pod may not refer to, as messages name it."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts"
    containers = [each for kind in ("containers", "initContainers") for each in spec.get(kind) or ()]
    sources = [source for each in containers for source in each.get("envFrom") or ()]
    values = [env.get("valueFrom") or {} for each in containers for env in each.get("env") or ()]
    if spec.get("imagePullSecrets") or any(each.get("secretRef") for each in sources):
        yield "secrets"
    if any(each.get("secretKeyRef") for each in values):
        yield "secrets"
    if any(each.get("configMapRef") for each in sources) or any(each.get("configMapKeyRef") for each in values):
        yield "configmaps"
    for volume in spec.get("volumes") or ():
        yield from (words for key, words in _SOURCES.items() if volume.get(key) is not None)
        projected = (volume.get("projected") or {}).get("sources") or ()
        yield from (words for each in projected for key, words in _PROJECTED.items() if each.get(key) is not None)
    if spec.get("resourceClaims"):
        yield "resourceclaims"


# --- tokens ---


def restrict_token(ctx: Context, namespace: str, account: str, request: Object) -> None:
    """Kubelets ask for tokens of the pods of their node only. Raises StatusError (403, 404)."""
    node = node_of(ctx)
    if node is None:
        return
    why = _token_refusal(ctx, node, namespace, account, request.get("spec") or {})
    if why:
        raise forbidden(Qualified("", "serviceaccounts"), account, why)


def _token_refusal(ctx: Context, node: str, namespace: str, account: str, spec: Object) -> str:
    bound = spec.get("boundObjectRef") or {}
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
        return "node requested token not bound to a pod"
    uid = bound.get("uid")
    if not uid:
        return "node requested token with a pod binding without a uid"
    pod = ctx.read("pods", namespace, bound["name"])
    if pod is None:
        raise not_found(Qualified("", "pod"), bound["name"])
    if uid != pod["metadata"]["uid"]:
        why = "does not match the UID in record. The object might have been deleted and then recreated"
        return f"the UID in the bound object reference ({uid}) {why}"
    if not _runs_on(pod, node):
        return "node requested token bound to a pod scheduled on a different node"
    audience = (spec.get("audiences") or [""])[0]
    if len(spec.get("audiences") or ()) > 1:
        return "node may only request 0 or 1 audiences"
    if audience in _audiences(ctx, pod) or _may_ask_for(ctx, namespace, account, audience):
        return ""
    why = f"{PREFIX}{node} is not authorized to request tokens for this audience"
    return f'audience "{audience}" not found in pod spec volume, {why}'


def _audiences(ctx: Context, pod: Object) -> set[str]:
    """For whom a pod's volumes need tokens."""
    found: set[str] = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                found.add(source["serviceAccountToken"].get("audience") or "")
        driver = (volume.get("csi") or {}).get("driver")
        if driver:
            spec = (ctx.read("csidrivers", "", driver) or {}).get("spec") or {}
            found |= {each.get("audience") or "" for each in spec.get("tokenRequests") or ()}
    return found


def _may_ask_for(ctx: Context, namespace: str, account: str, audience: str) -> bool:
    verb = "request-serviceaccounts-token-audience"
    attributes = Attributes(verb, True, "", audience, "", namespace, account)
    return authorizer(ctx.options.authorization_modes, ctx.store)(ctx.user, attributes).is_allowed
