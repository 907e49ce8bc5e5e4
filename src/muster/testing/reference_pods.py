"""Reference rules between pods: topology spread and affinity. They look at every node and pod, once a question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, namespace_of
from muster.api.selectors import label_selector
from muster.testing.reference_nodes import Verdict, labels_of, repelling_taints, selected

HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SKEW = "node(s) didn't match pod topology spread constraints"


@dataclass(frozen=True, slots=True)
class World:
    """What the rules see: nodes by name, the pods on each, and other objects by kind (plural, as in recordings)."""

    nodes: Mapping[str, Object]
    pods: Mapping[str, Sequence[Object]]
    objects: Mapping[str, Sequence[Object]]

    def each_pod(self) -> Iterator[tuple[Object, Object]]:
        """Every pod with its node."""
        for name, node in self.nodes.items():
            for pod in self.pods.get(name, ()):
                yield pod, node

    def namespace_labels(self, name: str) -> dict[str, str]:
        """The labels of a namespace; none if it is not known."""
        found = [each for each in self.objects.get("namespaces", ()) if each["metadata"]["name"] == name]
        return labels_of(found[0]) if found else {}


# -- spread ----------------------------------------------------------------------------------------------------------


def constraints(pod: Object, world: World, arguments: Object) -> list[Object]:
    """The pod's constraints, or the default ones with the selector of its services and owner."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    if own:
        return [_with_keys(entry, labels_of(pod)) for entry in own]
    if arguments.get("defaultingType") == "List":
        defaults = arguments.get("defaultConstraints") or []
    else:
        zone = "topology.kubernetes.io/zone"
        soft = "ScheduleAnyway"
        defaults = [
            {"topologyKey": HOSTNAME, "maxSkew": 3, "whenUnsatisfiable": soft},
            {"topologyKey": zone, "maxSkew": 5, "whenUnsatisfiable": soft},
        ]
    selector = _default_selector(pod, world)
    return [] if selector is None else [{**entry, "labelSelector": selector} for entry in defaults]


def _with_keys(entry: Object, labels: dict[str, str]) -> Object:
    selector = entry.get("labelSelector")
    if selector is None:
        return entry
    extra = [
        {"key": key, "operator": "In", "values": [labels[key]]}
        for key in entry.get("matchLabelKeys") or ()
        if key in labels
    ]
    merged = {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *extra]}
    return {**entry, "labelSelector": merged}


def _default_selector(pod: Object, world: World) -> Object | None:
    labels, namespace = labels_of(pod), namespace_of(pod)
    wanted: dict[str, str] = {}
    for service in world.objects.get("services", ()):
        selector = service["spec"].get("selector")
        matches = selector is not None and all(labels.get(key) == value for key, value in selector.items())
        if namespace_of(service) == namespace and matches:
            wanted.update(selector)
    expressions: list[Object] = []
    owner = controller_of(pod)
    plurals = {
        "ReplicationController": "replicationControllers",
        "ReplicaSet": "replicaSets",
        "StatefulSet": "statefulSets",
    }
    plural = plurals.get(owner["kind"]) if owner else None
    owner_name = owner["name"] if owner else ""
    for obj in world.objects.get(plural, ()) if plural else ():
        if namespace_of(obj) != namespace or obj["metadata"]["name"] != owner_name:
            continue
        if plural == "replicationControllers":
            wanted.update(obj["spec"].get("selector") or {})
        else:
            selector = obj["spec"]["selector"]
            expressions += [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in (selector.get("matchLabels") or {}).items()
            ]
            expressions += selector.get("matchExpressions") or []
    return {"matchLabels": wanted, "matchExpressions": expressions} if wanted or expressions else None


def _is_hard(entry: Object) -> bool:
    return bool((entry.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule")


def _counted(entry: Object, pod: Object, pods: Sequence[Object]) -> int:
    """The pods on a node that a constraint counts; an empty selector counts none."""
    selector = label_selector(entry.get("labelSelector"))
    if not selector.requirements:
        return 0
    return sum(
        1
        for other in pods
        if namespace_of(other) == namespace_of(pod) and not is_deleting(other) and selector.matches(labels_of(other))
    )


def _is_eligible(entry: Object, pod: Object, node: Object) -> bool:
    if entry.get("nodeAffinityPolicy") != "Ignore" and not selected(pod, node):
        return False
    return entry.get("nodeTaintsPolicy") != "Honor" or not repelling_taints(pod, node)


def _has_keys(node: Object, entries: Sequence[Object]) -> bool:
    return all(entry["topologyKey"] in labels_of(node) for entry in entries)


def skewed(pod: Object, node: Object, world: World, arguments: Object) -> Verdict | None:
    """The filter of PodTopologySpread."""
    hard = [entry for entry in constraints(pod, world, arguments) if _is_hard(entry)]
    for entry in hard:
        key = entry["topologyKey"]
        counts: dict[str, int] = {}
        for name, other in world.nodes.items():
            if _has_keys(other, hard) and _is_eligible(entry, pod, other):
                value = labels_of(other)[key]
                counts[value] = counts.get(value, 0) + _counted(entry, pod, world.pods.get(name, ()))
        least = min(counts.values(), default=0)
        if len(counts) < (entry.get("minDomains") or 1):
            least = 0
        if key not in labels_of(node):
            return (f"{_SKEW} (missing required label)",), False
        itself = 1 if label_selector(entry.get("labelSelector")).matches(labels_of(pod)) else 0
        if counts.get(labels_of(node)[key], 0) + itself - least > entry["maxSkew"]:
            return (_SKEW,), True
    return None


def spread_scores(pod: Object, feasible: Sequence[str], world: World, arguments: Object) -> dict[str, int] | None:
    """The normalised scores of PodTopologySpread; None if it leaves the pod out."""
    soft = [entry for entry in constraints(pod, world, arguments) if not _is_hard(entry)]
    if not soft:
        return None
    own = bool(pod["spec"].get("topologySpreadConstraints"))
    require_all = own or arguments.get("defaultingType") == "List"
    scored = [name for name in feasible if not require_all or _has_keys(world.nodes[name], soft)]
    raw = dict.fromkeys(scored, 0.0)
    for entry in soft:
        key = entry["topologyKey"]
        values = {labels_of(world.nodes[name]).get(key, "") for name in scored}
        weight = math.log(float((len(scored) if key == HOSTNAME else len(values)) + 2))
        counts = dict.fromkeys(values, 0)
        for name, other in world.nodes.items():
            value = labels_of(other).get(key, "")
            if (_has_keys(other, soft) or not require_all) and _is_eligible(entry, pod, other) and value in counts:
                counts[value] += _counted(entry, pod, world.pods.get(name, ()))
        for name in scored:
            if key in labels_of(world.nodes[name]):
                on_node = _counted(entry, pod, world.pods.get(name, ()))
                count = on_node if key == HOSTNAME else counts[labels_of(world.nodes[name])[key]]
                raw[name] += float(count) * weight + float(entry["maxSkew"] - 1)
    rounded = {name: math.floor(value) + (1 if value - math.floor(value) >= 0.5 else 0) for name, value in raw.items()}
    least, most = min(rounded.values(), default=0), max(rounded.values(), default=0)
    return {
        name: 0 if name not in rounded else 100 if most == 0 else 100 * (most + least - rounded[name]) // most
        for name in feasible
    }


# -- affinity --------------------------------------------------------------------------------------------------------


def _terms(pod: Object, kind: str, when: str) -> list[Object]:
    entries = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(when) or []
    if when == _REQUIRED:
        return list(entries)
    return [{**entry["podAffinityTerm"], "weight": entry["weight"]} for entry in entries]


def _covers(term: Object, owner: Object, other: Object, namespace_labels: Sequence[dict[str, str]]) -> bool:
    """Whether a term of `owner` matches `other`; the namespace selector may match any of `namespace_labels`."""
    names, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
    if not names and chosen is None:
        names = [namespace_of(owner)]
    inside = namespace_of(other) in names or (
        chosen is not None and any(label_selector(chosen).matches(labels) for labels in namespace_labels)
    )
    labels = labels_of(owner)
    if not inside or not label_selector(term.get("labelSelector")).matches(labels_of(other)):
        return False
    mine = labels_of(other)
    same = all(mine.get(key) == labels[key] for key in term.get("matchLabelKeys") or () if key in labels)
    return same and all(mine.get(key) != labels[key] for key in term.get("mismatchLabelKeys") or () if key in labels)


def _own_covers(term: Object, pod: Object, other: Object, world: World) -> bool:
    return _covers(term, pod, other, [world.namespace_labels(namespace_of(other)), {}])


def _other_covers(term: Object, other: Object, pod: Object, world: World) -> bool:
    return _covers(term, other, pod, [world.namespace_labels(namespace_of(pod))])


def kept_apart(pod: Object, node: Object, world: World) -> Verdict | None:
    """The filter of InterPodAffinity."""
    labels = labels_of(node)
    if not _near(pod, labels, world):
        return ("node(s) didn't match pod affinity rules",), False
    for term in _terms(pod, "podAntiAffinity", _REQUIRED):
        for other, its_node in world.each_pod():
            if _own_covers(term, pod, other, world) and _same_domain(term, labels, its_node):
                return ("node(s) didn't match pod anti-affinity rules",), True
    for other, its_node in world.each_pod():
        for term in _terms(other, "podAntiAffinity", _REQUIRED):
            if _other_covers(term, other, pod, world) and _same_domain(term, labels, its_node):
                return ("node(s) didn't satisfy existing pods anti-affinity rules",), True
    return None


def _same_domain(term: Object, labels: dict[str, str], other: Object) -> bool:
    key = term["topologyKey"]
    return key in labels and labels_of(other).get(key) == labels[key]


def _near(pod: Object, labels: dict[str, str], world: World) -> bool:
    terms = _terms(pod, "podAffinity", _REQUIRED)
    if not all(term["topologyKey"] in labels for term in terms):
        return False
    counts: set[tuple[str, str]] = set()
    for other, its_node in world.each_pod():
        if terms and all(_own_covers(term, pod, other, world) for term in terms):
            for term in terms:
                if term["topologyKey"] in labels_of(its_node):
                    counts.add((term["topologyKey"], labels_of(its_node)[term["topologyKey"]]))
    if all((term["topologyKey"], labels[term["topologyKey"]]) in counts for term in terms):
        return True
    return not counts and all(_own_covers(term, pod, pod, world) for term in terms)


def affinity_scores(pod: Object, feasible: Sequence[str], world: World, arguments: Object) -> dict[str, int] | None:
    """The normalised scores of InterPodAffinity; None if it leaves the pod out."""
    own = [(1, term) for term in _terms(pod, "podAffinity", _PREFERRED)]
    own += [(-1, term) for term in _terms(pod, "podAntiAffinity", _PREFERRED)]
    if arguments.get("ignorePreferredTermsOfExistingPods") and not own:
        return None
    hard = arguments.get("hardPodAffinityWeight", 1)
    sums: dict[tuple[str, str], int] = {}
    for other, node in world.each_pod():
        found = [(sign * term["weight"], term) for sign, term in own if _own_covers(term, pod, other, world)]
        if hard > 0:
            found += [
                (hard, term)
                for term in _terms(other, "podAffinity", _REQUIRED)
                if _other_covers(term, other, pod, world)
            ]
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            found += [
                (sign * term["weight"], term)
                for term in _terms(other, kind, _PREFERRED)
                if _other_covers(term, other, pod, world)
            ]
        for weight, term in found:
            value = labels_of(node).get(term["topologyKey"])
            if value is not None:
                sums[term["topologyKey"], value] = sums.get((term["topologyKey"], value), 0) + weight
    if not sums:
        return None
    raw = {name: sum(sums.get(pair, 0) for pair in labels_of(world.nodes[name]).items()) for name in feasible}
    least, most = min(raw.values()), max(raw.values())
    if most == least:
        return dict.fromkeys(feasible, 0)
    return {name: int(100.0 * ((value - least) / float(most - least))) for name, value in raw.items()}
