"""Reference rules that look at one node's labels, taints, ports and images. Plain loops over objects, no arrays."""

from __future__ import annotations

from collections.abc import Sequence

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.selectors import SelectorError, node_selector_term

Verdict = tuple[tuple[str, ...], bool]
"""Reasons, and whether preemption could help."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def labels_of(obj: Object) -> dict[str, str]:
    """The labels of an object."""
    return dict(obj["metadata"].get("labels") or {})


def tolerates(pod: Object, taint: Object, *, only_preferring: bool = False) -> bool:
    """Whether some toleration covers the taint; `only_preferring`: of those for PreferNoSchedule or every effect."""
    for toleration in pod["spec"].get("tolerations") or ():
        effect, key = toleration.get("effect") or "", toleration.get("key") or ""
        if only_preferring and effect not in ("", "PreferNoSchedule"):
            continue
        if effect and effect != taint["effect"]:
            continue
        if key and key != taint["key"]:
            continue
        operator = toleration.get("operator") or "Equal"
        if operator == "Exists":
            return True
        if operator == "Equal" and key and (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def repelling_taints(pod: Object, node: Object) -> list[Object]:
    """The NoSchedule and NoExecute taints that the pod does not tolerate."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return [each for each in taints if each["effect"] in ("NoSchedule", "NoExecute") and not tolerates(pod, each)]


def unschedulable(pod: Object, node: Object) -> Verdict | None:
    """NodeUnschedulable."""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if (node.get("spec") or {}).get("unschedulable") and not tolerates(pod, cordon):
        return ("node(s) were unschedulable",), False
    return None


def other_name(pod: Object, node: Object) -> Verdict | None:
    """NodeName."""
    wanted = pod["spec"].get("nodeName")
    return (("node(s) didn't match the requested node name",), False) if wanted and wanted != name_of(node) else None


def tainted(pod: Object, node: Object) -> Verdict | None:
    """TaintToleration."""
    return (("node(s) had untolerated taint(s)",), False) if repelling_taints(pod, node) else None


def preferring_taints(pod: Object, node: Object) -> int:
    """The raw score of TaintToleration, of which less is better."""
    taints = (node.get("spec") or {}).get("taints") or ()
    soft = [taint for taint in taints if taint["effect"] == "PreferNoSchedule"]
    return sum(1 for taint in soft if not tolerates(pod, taint, only_preferring=True))


def _term_matches(term: Object, node: Object) -> bool:
    try:
        return node_selector_term(term).matches(labels_of(node), name_of(node))
    except SelectorError:
        return False


def selected(pod: Object, node: Object) -> bool:
    """Whether the node has the labels of nodeSelector and satisfies the required node affinity."""
    labels = labels_of(node)
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return _REQUIRED not in affinity or _some_term(affinity[_REQUIRED], node)


def _some_term(required: Object, node: Object) -> bool:
    return any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def not_selected(pod: Object, node: Object, added: Object) -> Verdict | None:
    """NodeAffinity; `added`: the profile's own node affinity."""
    if _REQUIRED in added and not _some_term(added[_REQUIRED], node):
        return ("node(s) didn't match scheduler-enforced node affinity",), False
    return None if selected(pod, node) else (("node(s) didn't match Pod's node affinity/selector",), False)


def pinned(pod: Object) -> set[str] | None:
    """The node names that every required term names; None if some term names none."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    names: set[str] = set()
    for term in terms:
        lists = [set(each["values"]) for each in term.get("matchFields") or () if each["operator"] == "In"]
        if not lists:
            return None
        names |= set.intersection(*lists)
    return names if terms else None


def preferred_terms(pod: Object, added: Object) -> list[Object]:
    """The preferred terms of the pod and of the profile, with a weight."""
    own = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_PREFERRED) or []
    return [term for term in (*own, *(added.get(_PREFERRED) or ())) if term.get("weight")]


def preference(pod: Object, node: Object, added: Object) -> int:
    """The raw score of NodeAffinity."""
    terms = preferred_terms(pod, added)
    return sum(term["weight"] for term in terms if _term_matches(term.get("preference") or {}, node))


def host_ports(pod: Object) -> list[tuple[str, str, int]]:
    """(ip, protocol, port) of containers that keep running."""
    spec = pod["spec"]
    keep = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in (*(spec.get("containers") or ()), *keep)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def port_taken(pod: Object, pods: Sequence[Object]) -> Verdict | None:
    """NodePorts; `pods`: those on the node."""
    for ip, protocol, port in host_ports(pod):
        for other in pods:
            for held_ip, held_protocol, held_port in host_ports(other):
                same = (protocol, port) == (held_protocol, held_port)
                if same and (ip == held_ip or "0.0.0.0" in (ip, held_ip)):
                    return ("node(s) didn't have free ports for the requested pod ports",), True
    return None


def lacks_feature(pod: Object, node: Object) -> Verdict | None:
    """NodeDeclaredFeatures."""
    spec = pod["spec"]
    needed = set()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for rule in container.get("restartPolicyRules") or ():
            if rule.get("action") == "RestartAllContainers":
                needed.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needed.add("UserNamespacesHostNetworkSupport")
    declared = set((node.get("status") or {}).get("declaredFeatures") or ())
    return None if needed <= declared else (("node(s) didn't match Pod's required features",), False)


def _image(name: str) -> str:
    last = name.rsplit("/", 1)[-1]
    return name if ":" in last else f"{name}:latest"


def image_score(pod: Object, node: Object, nodes: Sequence[Object]) -> int:
    """ImageLocality."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted = [container.get("image") or "" for container in containers]
    wanted += [volume["image"].get("reference") or "" for volume in spec.get("volumes") or () if volume.get("image")]
    total = 0
    for name in wanted:
        size = _image_size(node, _image(name))
        if size is not None:
            holders = sum(1 for other in nodes if _image_size(other, _image(name)) is not None)
            total += int(float(size) * (float(holders) / float(len(nodes))))
    least, most = 23 * 2**20, 1000 * 2**20 * len(containers)
    total = min(max(total, least), most)
    return 100 * (total - least) // (most - least)


def _image_size(node: Object, name: str) -> int | None:
    for image in (node.get("status") or {}).get("images") or ():
        if name in [_image(each) for each in image["names"]]:
            return int(image["sizeBytes"])
    return None
