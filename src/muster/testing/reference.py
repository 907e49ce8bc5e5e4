"""A plain sequential scheduler, written from the rules, one loop a rule: what the engine is held to by property tests.

It looks at objects as they are, has no arrays and remembers nothing. It knows kube-scheduler 1.36's default plugins and
the arguments of their configuration. Not in it: pods nominated to nodes, and resizes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.testing import reference_nodes as by_node
from muster.testing import reference_pods as by_pods
from muster.testing import reference_resources as by_resources
from muster.testing import reference_volumes as by_volumes
from muster.testing.reference_nodes import Verdict
from muster.testing.reference_pods import World

WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}

Rule = Callable[[Object], Verdict | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """`refusal`: (plugin, reason) for all nodes. `rejected`: node → (plugin, reasons, whether preemption could help).

    `scores`: feasible node → plugin → weighted score. `node`: the choice, None if there is none.
    """

    refusal: tuple[str, str] | None
    rejected: Mapping[str, tuple[str, tuple[str, ...], bool]]
    scores: Mapping[str, Mapping[str, int]]
    node: str | None


@dataclass(slots=True)
class ReferenceScheduler:
    """Nodes, pods on them and other objects (by kind as in recordings); `arguments`: by plugin, its configuration."""

    nodes: Sequence[Object]
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    arguments: Mapping[str, Object] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    pods: dict[str, list[Object]] = field(default_factory=dict)

    def place(self, pod: Object, node: str) -> None:
        """Puts a pod on a node."""
        self.pods.setdefault(node, []).append(pod)

    def assume(self, pod: Object, node: str) -> None:
        """Puts a pod on a node that `schedule` gave it, with all that this settles for its volumes."""
        world = World({name_of(each): each for each in self.nodes}, self.pods, self.objects)
        self.objects = by_volumes.assumed(pod, world.nodes[node], world)
        self.place(pod, node)

    def schedule(self, pod: Object) -> Answer:
        """What happens to a pod; it is not placed."""
        world = World({name_of(node): node for node in self.nodes}, self.pods, self.objects)
        refusal = self._refusal(pod, world)
        if refusal is not None:
            return Answer(refusal, {}, {}, None)
        rejected = {}
        for node in self.nodes:
            found = self._rejection(pod, node, world)
            if found is not None:
                rejected[name_of(node)] = found
        feasible = [name_of(node) for node in self.nodes if name_of(node) not in rejected]
        scores: dict[str, dict[str, int]] = {name: {} for name in feasible}
        for plugin, values in self._scores(pod, feasible, world).items():
            for name, value in values.items():
                scores[name][plugin] = self.weights[plugin] * value
        return Answer(None, rejected, scores, _first_best(scores, self.nodes))

    def _refusal(self, pod: Object, world: World) -> tuple[str, str] | None:
        if by_node.pinned(pod) == set():
            return "NodeAffinity", "pod affinity terms conflict"
        for plugin, verdict in (
            ("VolumeRestrictions", by_volumes.restrictions_verdict),
            ("VolumeBinding", by_volumes.binding_verdict),
            ("VolumeZone", by_volumes.zone_verdict),
        ):
            text = verdict(pod, world)
            if text:
                return plugin, text
        return None

    def _rejection(self, pod: Object, node: Object, world: World) -> tuple[str, tuple[str, ...], bool] | None:
        names = by_node.pinned(pod)
        if names is not None and name_of(node) not in names:
            return "NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",), False
        pods = self.pods.get(name_of(node), [])
        added = (self._arguments("NodeAffinity")).get("addedAffinity") or {}
        rules: dict[str, Callable[[], Verdict | None]] = {
            "NodeUnschedulable": lambda: by_node.unschedulable(pod, node),
            "NodeName": lambda: by_node.other_name(pod, node),
            "TaintToleration": lambda: by_node.tainted(pod, node),
            "NodeAffinity": lambda: by_node.not_selected(pod, node, added),
            "NodePorts": lambda: by_node.port_taken(pod, pods),
            "NodeResourcesFit": lambda: by_resources.too_full(pod, node, pods, self._arguments("NodeResourcesFit")),
            "VolumeRestrictions": lambda: by_volumes.disk_conflict(pod, pods, world),
            "NodeVolumeLimits": lambda: by_volumes.too_many_volumes(pod, node, pods, world),
            "VolumeBinding": lambda: by_volumes.unavailable(pod, node, world),
            "VolumeZone": lambda: by_volumes.other_zone(pod, node, world),
            "PodTopologySpread": lambda: by_pods.skewed(pod, node, world, self._arguments("PodTopologySpread")),
            "InterPodAffinity": lambda: by_pods.kept_apart(pod, node, world),
            "NodeDeclaredFeatures": lambda: by_node.lacks_feature(pod, node),
        }
        for plugin, rule in rules.items():
            verdict = rule()
            if verdict is not None:
                return plugin, verdict[0], verdict[1]
        return None

    def _scores(self, pod: Object, feasible: Sequence[str], world: World) -> dict[str, dict[str, int]]:
        """The unweighted scores of each plugin that does not leave the pod out."""
        if not feasible:
            return {}
        nodes = [world.nodes[name] for name in feasible]
        on = [self.pods.get(name, []) for name in feasible]
        fit = self._arguments("NodeResourcesFit").get("scoringStrategy") or {}
        added = self._arguments("NodeAffinity").get("addedAffinity") or {}
        entries = self._arguments("NodeResourcesBalancedAllocation").get("resources")
        balanced = [entry["name"] for entry in entries] if entries else ["cpu", "memory"]
        found: dict[str, list[int] | None] = {
            "TaintToleration": _normalised([by_node.preferring_taints(pod, node) for node in nodes], reverse=True),
            "NodeAffinity": _normalised([by_node.preference(pod, node, added) for node in nodes], reverse=False)
            if by_node.preferred_terms(pod, added)
            else None,
            "NodeResourcesFit": [
                by_resources.fill_score(pod, node, pods, fit) for node, pods in zip(nodes, on, strict=True)
            ],
            "DynamicResources": [0] * len(nodes),
            "ImageLocality": [by_node.image_score(pod, node, self.nodes) for node in nodes],
        }
        scores = {plugin: dict(zip(feasible, values, strict=True)) for plugin, values in found.items() if values}
        for node, pods in zip(nodes, on, strict=True):
            balance = by_resources.balance_score(pod, node, pods, balanced)
            if balance is not None:
                scores.setdefault("NodeResourcesBalancedAllocation", {})[name_of(node)] = balance
        spread = by_pods.spread_scores(pod, feasible, world, self._arguments("PodTopologySpread"))
        affinity = by_pods.affinity_scores(pod, feasible, world, self._arguments("InterPodAffinity"))
        scores |= {"PodTopologySpread": spread} if spread is not None else {}
        scores |= {"InterPodAffinity": affinity} if affinity is not None else {}
        return {plugin: values for plugin, values in scores.items() if plugin in self.weights}

    def _arguments(self, plugin: str) -> Object:
        return self.arguments.get(plugin) or {}


def _normalised(raw: list[int], *, reverse: bool) -> list[int]:
    most = max(raw, default=0)
    if most == 0:
        return [100] * len(raw) if reverse else raw
    scaled = [100 * value // most for value in raw]
    return [100 - value for value in scaled] if reverse else scaled


def _first_best(scores: Mapping[str, Mapping[str, int]], nodes: Sequence[Object]) -> str | None:
    """The feasible node with the highest total; of several the first by zone, block, rack and name."""
    if not scores:
        return None
    keys = ("topology.kubernetes.io/zone", "topology.kubernetes.io/block", "topology.kubernetes.io/rack")
    order = {name_of(node): [by_node.labels_of(node).get(key, "") for key in keys] for node in nodes}
    return min(scores, key=lambda name: (-sum(scores[name].values()), order[name], name))
