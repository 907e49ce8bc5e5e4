"""Shape: pods that are the same to every rule of scheduling, so that all work is done once for all of them.

It is the signature of upstream's opportunistic batching (KEP-5598). What no plugin looks at is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from msgspec import Struct, structs

from muster.api.codec import Object, canonical
from muster.api.meta import controller_of
from muster.api.selectors import NodeSelectorTerm, Operator, Requirement, SelectorError, node_selector_term
from muster.engine.devices.demand import DeviceDemand
from muster.engine.identity import Identity
from muster.engine.requests import Usage, host_ports, pod_requests, scored_requests, sorted_amounts
from muster.engine.spreading import SpreadRule, parse_spread
from muster.engine.storage.volumes import volume_uses
from muster.engine.tolerations import Toleration, parse_tolerations


class PreferredTerm(Struct, frozen=True):
    """A preferred node selector term and its weight."""

    weight: int
    term: NodeSelectorTerm


class NodeRules(Struct, frozen=True):
    """Which nodes a pod may use and prefers, by their labels and names.

    `required` None: no required affinity. `error`: why the preferred terms cannot be evaluated, else "".
    """

    selector: tuple[Requirement, ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    error: str = ""


_ANYWHERE = NodeRules()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pending pod asks for. Equal values are the same shape; the hash is computed once.

    `usage` is what it will take from its node; `scored` is cpu and memory as its own NodeResourcesFit score counts them
    (container sums with defaults, without the pod level). `images`: normalised names of containers, init containers and
    image volumes; `image_containers` of them belong to containers. `spread`: its own topology spread constraints;
    `owner`: (kind, name) of a controller whose selector default constraints go by. `features`: what the node must have
    declared. `domain`: that of a topology to which pods are dealt in a search; no rule of Kubernetes reads it.
    """

    usage: Usage
    scored: tuple[int, int]
    tolerations: tuple[Toleration, ...] = ()
    nodes: NodeRules = _ANYWHERE
    node_name: str = ""
    images: tuple[str, ...] = ()
    image_containers: int = 0
    spread: tuple[SpreadRule, ...] = ()
    owner: tuple[str, str] | None = None
    features: tuple[str, ...] = ()
    domain: int = -1
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        rules = (self.tolerations, self.nodes, self.node_name, self.images, self.spread, self.owner)
        fields = (self.usage, self.scored, rules)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash

    def request(self, resource: str) -> int:
        """The effective request for a resource, in canonical units."""
        return next((amount for name, amount in self.usage.requests if name == resource), 0)

    def with_request(self, resource: str, amount: int) -> Shape:
        """The same shape asking for another amount of one resource."""
        amounts = {**dict(self.usage.requests), resource: amount}
        scored = {"cpu": (amount, self.scored[1]), "memory": (self.scored[0], amount)}.get(resource, self.scored)
        usage = structs.replace(self.usage, requests=sorted_amounts(amounts), scored=scored)
        return replace(self, usage=usage, scored=scored)

    def with_toleration(self, toleration: Toleration) -> Shape:
        """The same shape tolerating more."""
        return replace(self, tolerations=tuple(sorted({*self.tolerations, toleration})))


def parse_shape(pod: Object, identity: Identity | None = None, devices: DeviceDemand | None = None) -> Shape:
    """The shape of a pending pod. Raises QuantityError or SelectorError for what the API would refuse.

    Without an identity there are no rules between pods, and nobody selects by labels or owners. `devices`: what its
    claims ask for, which the pod alone does not say.
    """
    spec = pod["spec"]
    requests, scored = sorted_amounts(pod_requests(spec)), scored_requests(spec, pod_level=True)
    usage = Usage(requests, scored, host_ports(spec), identity, volume_uses(pod), devices)
    images, image_containers = _images(spec)
    return Shape(
        usage=usage,
        scored=scored_requests(spec, pod_level=False),
        tolerations=parse_tolerations(spec.get("tolerations") or ()),
        nodes=parse_node_rules(spec),
        node_name=spec.get("nodeName") or "",
        images=images,
        image_containers=image_containers,
        spread=parse_spread(pod),
        owner=None if identity is None else selecting_owner(pod),
        features=_features(spec),
    )


def shape_key(pod: Object, identity: IdentityKey) -> bytes:
    """Bytes that are equal only for pods of equal shape: everything `parse_shape` reads of the pod."""
    spec = pod["spec"]
    return canonical(
        [
            identity,
            selecting_owner(pod) if identity is not None else None,
            _volumes_key(pod),
            [_container_key(each) for each in spec.get("containers") or ()],
            [_container_key(each) for each in spec.get("initContainers") or ()],
            [spec.get(name) for name in _SPEC_FIELDS],
            [each["image"] for each in spec.get("volumes") or () if each.get("image")],
        ]
    )


def usage_key(pod: Object, identity: IdentityKey) -> bytes:
    """Bytes that are equal only for pods that take the same from their node: everything `usage_of` reads."""
    spec, status = pod["spec"], pod.get("status") or {}
    parts: list[object] = [identity, list(map(_used_key, spec.get("containers") or ()))]
    if not _RARELY_USED.isdisjoint(spec):
        affinity = spec.get("affinity") if identity is not None else None
        parts += [
            _volumes_key(pod),
            affinity and [affinity.get("podAffinity"), affinity.get("podAntiAffinity")],
            [_used_key(each) for each in spec.get("initContainers") or ()],
            [spec.get("overhead"), spec.get("resources")],
        ]
    if not _OF_RESIZES.isdisjoint(status):
        resize = [each for each in status.get("conditions") or () if each.get("type") == "PodResizePending"]
        entries = [status.get("containerStatuses") or (), status.get("initContainerStatuses") or ()]
        held = [[_status_key(each) for each in found] for found in entries]
        parts.append([status.get("allocatedResources"), status.get("resources"), held, resize])
    return canonical(parts)


_RARELY_USED = frozenset({"volumes", "affinity", "initContainers", "overhead", "resources"})
_OF_RESIZES = frozenset({"allocatedResources", "resources", "containerStatuses", "initContainerStatuses"})
"""Without these in the status, a condition about a resize says nothing: nothing but the spec counts."""

IdentityKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...], bool] | None
"""Namespace, selected labels and whether the pod is leaving: what of an identity is not in the pod's spec."""

_SELECTING_OWNERS = frozenset({("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")})

_SPEC_FIELDS = (
    "overhead",
    "resources",
    "tolerations",
    "nodeSelector",
    "affinity",
    "nodeName",
    "topologySpreadConstraints",
    "hostNetwork",
    "hostUsers",
)


def _container_key(container: Object) -> list[object]:
    return [container.get(name) for name in ("image", "resources", "ports", "restartPolicy", "restartPolicyRules")]


def _used_key(container: Object) -> list[object]:
    get = container.get
    return [get("name"), get("resources"), get("ports"), get("restartPolicy")]


def _volumes_key(pod: Object) -> list[object]:
    # Names of volumes are often generated for each pod: they must not make a shape of its own.
    if not pod["spec"].get("volumes"):
        return []
    return [[each.kind, each.namespace, each.name, each.read_only, each.hosts, each.owner] for each in volume_uses(pod)]


def selecting_owner(pod: Object) -> tuple[str, str] | None:
    """(kind, name) of the pod's controller if it is of a kind that selects pods by labels for spreading."""
    owner = controller_of(pod)
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) not in _SELECTING_OWNERS:
        return None
    return owner["kind"], owner.get("name", "")


def _status_key(status: Object) -> list[object]:
    return [status.get("name"), status.get("allocatedResources"), status.get("resources")]


def parse_node_rules(spec: Object) -> NodeRules:
    """nodeSelector and node affinity. Malformed preferred terms become `error`, as upstream's PreScore reports them."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    pairs = sorted((spec.get("nodeSelector") or {}).items())
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (
        None if required is None else tuple(_required_term(each) for each in required.get("nodeSelectorTerms") or ())
    )
    preferred, error = parse_preferred(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ())
    # A selector value is compared as it is: it need not be a valid label value to be different from all labels.
    return NodeRules(tuple(Requirement(key, Operator.IN, (value,)) for key, value in pairs), terms, preferred, error)


def _required_term(entry: Object) -> NodeSelectorTerm:
    """A required term; a malformed one matches nothing (upstream `nodeaffinity.LazyErrorNodeSelector`)."""
    try:
        return node_selector_term(entry)
    except SelectorError:
        return NodeSelectorTerm()


def parse_preferred(entries: list[Object] | tuple[()]) -> tuple[tuple[PreferredTerm, ...], str]:
    """The preferred terms with a weight, and the text of the first error ("" if there is none)."""
    terms: list[PreferredTerm] = []
    errors: list[str] = []
    for place, entry in enumerate(entries):
        if not entry.get("weight"):
            continue
        preference = entry.get("preference") or {}
        try:
            terms.append(PreferredTerm(int(entry["weight"]), node_selector_term(preference)))
        except SelectorError as error:
            errors += _term_errors(f"[{place}]", preference) or [f"[{place}]: {error}"]
    return ((), _aggregate(errors)) if errors else (tuple(terms), "")


def _term_errors(path: str, preference: Object) -> list[str]:
    """The errors of each expression of a term, with their paths."""
    errors = []
    for field_ in ("matchExpressions", "matchFields"):
        for place, entry in enumerate(preference.get(field_) or ()):
            try:
                node_selector_term({field_: [entry]})
            except SelectorError as error:
                errors.append(f"{path}.{field_}[{place}].{error}")
    return errors


def _aggregate(errors: list[str]) -> str:
    """Several errors as one text (apimachinery `util/errors`)."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _images(spec: Object) -> tuple[tuple[str, ...], int]:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    images = [normalised_image(each.get("image") or "") for each in containers]
    volumes = [each["image"].get("reference") or "" for each in spec.get("volumes") or () if each.get("image")]
    return tuple(images + [normalised_image(each) for each in volumes]), len(containers)


def normalised_image(name: str) -> str:
    """The image name with `:latest` where it has no tag (upstream `imagelocality.normalizedImageName`)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _features(spec: Object) -> tuple[str, ...]:
    """Features that the node must declare (upstream `component-helpers/nodedeclaredfeatures/features`)."""
    features = []
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule for container in containers for rule in container.get("restartPolicyRules") or ()]
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)
