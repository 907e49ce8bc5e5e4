"""The pods of a DaemonSet: which nodes they are for, what they look like.

Source of the rules: kube-controller-manager `pkg/controller/daemon/{daemon_controller.go,util/daemonset_util.go}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import name_of
from muster.api.resource import DAEMON_SETS
from muster.api.selectors import node_selector_term
from muster.controllers.node.taints import taints_of, tolerates
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_templates import pod_from_template

HASH_LABEL = "controller-revision-hash"
GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"

ByNode: TypeAlias = Mapping[str, Sequence[Object]]
"""The pods of a DaemonSet by the node that they run on or are meant for."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def tolerations_of(template: Object) -> Objects:
    """The tolerations of the template and those that all pods of DaemonSets get."""
    spec = template.get("spec") or {}
    tolerations: Objects = [dict(entry) for entry in spec.get("tolerations") or ()]
    for key, effect in (*_TOLERATED, *((_NETWORK,) if spec.get("hostNetwork") else ())):
        added = {"key": key, "operator": "Exists", "effect": effect}
        same = [entry for entry in tolerations if _is_same(entry, added)]
        if same:
            tolerations[tolerations.index(same[0])] = added
        else:
            tolerations.append(added)
    return tolerations


def _is_same(first: Object, second: Object) -> bool:
    """Whether two tolerations are about the same taint (`v1.Toleration.MatchToleration`)."""
    return all(
        (first.get(field) or "") == (second.get(field) or "") for field in ("key", "effect", "operator", "value")
    )


def new_pod(owner: Object, node: str, revision_hash: str) -> Object:
    """A pod for a node, which its affinity names."""
    template = owner["spec"]["template"]
    pod = pod_from_template(template, owner, owner_reference(owner, DAEMON_SETS))
    labels = {**pod["metadata"].get("labels", {}), HASH_LABEL: revision_hash}
    generation = (owner["metadata"].get("annotations") or {}).get(GENERATION_ANNOTATION)
    if generation:
        labels[GENERATION_LABEL] = generation
    pod["metadata"]["labels"] = labels
    pod["spec"]["affinity"] = _pinned(pod["spec"].get("affinity") or {}, node)
    pod["spec"]["tolerations"] = tolerations_of(template)
    return pod


def _pinned(affinity: Object, node: str) -> Object:
    """The affinity, its required terms replaced by one that names the node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    rules = copy_object(affinity.get("nodeAffinity") or {})
    # The controller itself checked the other conditions; the scheduler only has to find the node.
    return {**affinity, "nodeAffinity": {**rules, _REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}}


def node_of(pod: Object) -> str:
    """The node that a pod runs on, or else the one that its affinity names; "" if there is none."""
    if pod["spec"].get("nodeName"):
        bound: str = pod["spec"]["nodeName"]
        return bound
    rules = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in rules.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            values: list[str] = field.get("values") or []
            if field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1:
                return values[0]
    return ""


def should_run(owner: Object, node: Object) -> tuple[bool, bool]:
    """Whether a pod belongs on a node, and whether one that is there already may stay."""
    spec = owner["spec"]["template"].get("spec") or {}
    if spec.get("nodeName") not in (None, "", name_of(node)) or not _selects(spec, node):
        return False, False
    tolerations = tolerations_of(owner["spec"]["template"])
    hard = [taint for taint in taints_of(node) if taint.get("effect") in ("NoSchedule", "NoExecute")]
    against = [taint for taint in hard if not any(tolerates(entry, taint) for entry in tolerations)]
    return not against, all(taint.get("effect") != "NoExecute" for taint in against)


def _selects(spec: Object, node: Object) -> bool:
    """Whether node selector and required node affinity of a pod match a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    rules = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if rules is None:
        return True
    terms = (node_selector_term(term) for term in rules.get("nodeSelectorTerms") or ())
    return any(term.matches(labels, name_of(node)) for term in terms)


def by_node(pods: Sequence[Object]) -> dict[str, list[Object]]:
    """The pods by node, the oldest first on each."""
    found: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=_age):
        found.setdefault(node_of(pod), []).append(pod)
    return found


def _age(pod: Object) -> tuple[bool, str]:
    """Bound pods before others, then the oldest."""
    return not pod["spec"].get("nodeName"), pod["metadata"].get("creationTimestamp") or ""


def is_updated(pod: Object, owner: Object, revision_hash: str) -> bool:
    """Whether a pod is of the present template."""
    labels = pod["metadata"].get("labels") or {}
    generation = (owner["metadata"].get("annotations") or {}).get(GENERATION_ANNOTATION)
    by_generation = bool(generation) and labels.get(GENERATION_LABEL) == generation
    return by_generation or (bool(revision_hash) and labels.get(HASH_LABEL) == revision_hash)
