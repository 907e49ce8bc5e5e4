"""Shape: pods that are the same to every rule of scheduling, so that all work is done once for all of them.

It is the signature of upstream's opportunistic batching (KEP-5598). What no plugin looks at is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from muster.api.codec import Object, canonical
from muster.api.selectors import NodeSelectorTerm, Operator, Requirement, SelectorError, node_selector_term
from muster.engine.requests import Usage, host_ports, pod_requests, scored_requests, sorted_amounts
from muster.engine.tolerations import Toleration, parse_tolerations


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A preferred node selector term and its weight."""

    weight: int
    term: NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which nodes a pod may use and prefers, by their labels and names.

    `required` None: no required affinity. `error`: why the preferred terms cannot be evaluated, else "".
    """

    selector: tuple[Requirement, ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pending pod asks for. Equal values are the same shape; the hash is computed once.

    `usage` is what it will take from its node; `scored` is cpu and memory as its own NodeResourcesFit score counts them
    (container sums with defaults, without the pod level). `images`: normalised names of containers, init containers and
    image volumes; `image_containers` of them belong to containers. `unsupported`: rules that no plugin knows yet.
    """

    usage: Usage
    scored: tuple[int, int]
    tolerations: tuple[Toleration, ...] = ()
    nodes: NodeRules = NodeRules()
    node_name: str = ""
    images: tuple[str, ...] = ()
    image_containers: int = 0
    unsupported: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        fields = (self.usage, self.scored, self.tolerations, self.nodes, self.node_name, self.images, self.unsupported)
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
        usage = replace(self.usage, requests=sorted_amounts(amounts), scored=scored)
        return replace(self, usage=usage, scored=scored)

    def with_toleration(self, toleration: Toleration) -> Shape:
        """The same shape tolerating more."""
        return replace(self, tolerations=tuple(sorted({*self.tolerations, toleration})))


def parse_shape(pod: Object) -> Shape:
    """The shape of a pending pod. Raises QuantityError or SelectorError for what the API would refuse."""
    spec = pod["spec"]
    usage = Usage(sorted_amounts(pod_requests(spec)), scored_requests(spec, pod_level=True), host_ports(spec))
    images, image_containers = _images(spec)
    return Shape(
        usage=usage,
        scored=scored_requests(spec, pod_level=False),
        tolerations=parse_tolerations(spec.get("tolerations") or ()),
        nodes=parse_node_rules(spec),
        node_name=spec.get("nodeName") or "",
        images=images,
        image_containers=image_containers,
        unsupported=_unsupported(spec),
    )


def shape_key(pod: Object) -> bytes:
    """Bytes that are equal only for pods of equal shape: everything `parse_shape` reads."""
    spec = pod["spec"]
    return canonical(
        [
            [_container_key(each) for each in spec.get("containers") or ()],
            [_container_key(each) for each in spec.get("initContainers") or ()],
            [spec.get(name) for name in _SPEC_FIELDS],
            [_volume_key(each) for each in spec.get("volumes") or ()],
        ]
    )


def usage_key(pod: Object) -> bytes:
    """Bytes that are equal only for pods that take the same from their node: everything `usage_of` reads."""
    spec = pod["spec"]
    status = pod.get("status") or {}
    return canonical(
        [
            [_used_key(each) for each in spec.get("containers") or ()],
            [_used_key(each) for each in spec.get("initContainers") or ()],
            spec.get("overhead"),
            spec.get("resources"),
            status.get("allocatedResources"),
            status.get("resources"),
            [_status_key(each) for each in status.get("containerStatuses") or ()],
            [_status_key(each) for each in status.get("initContainerStatuses") or ()],
            [each for each in status.get("conditions") or () if each.get("type") == "PodResizePending"],
        ]
    )


_SPEC_FIELDS = (
    "overhead",
    "resources",
    "tolerations",
    "nodeSelector",
    "affinity",
    "nodeName",
    "topologySpreadConstraints",
    "resourceClaims",
)


def _container_key(container: Object) -> list[object]:
    return [container.get(name) for name in ("image", "resources", "ports", "restartPolicy")]


def _used_key(container: Object) -> list[object]:
    return [container.get(name) for name in ("name", "resources", "ports", "restartPolicy")]


def _volume_key(volume: Object) -> list[object]:
    # Names of volumes are often generated for each pod: they must not make a shape of its own.
    return [bool(volume.get("persistentVolumeClaim") or volume.get("ephemeral")), volume.get("image")]


def _status_key(status: Object) -> list[object]:
    return [status.get("name"), status.get("allocatedResources"), status.get("resources")]


def parse_node_rules(spec: Object) -> NodeRules:
    """nodeSelector and node affinity. Malformed preferred terms become `error`, as upstream's PreScore reports them."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    pairs = sorted((spec.get("nodeSelector") or {}).items())
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (
        None
        if required is None
        else tuple(node_selector_term(each) for each in required.get("nodeSelectorTerms") or ())
    )
    preferred, error = parse_preferred(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ())
    # A selector value is compared as it is: it need not be a valid label value to be different from all labels.
    return NodeRules(tuple(Requirement(key, Operator.IN, (value,)) for key, value in pairs), terms, preferred, error)


def parse_preferred(entries: list[Object] | tuple[()]) -> tuple[tuple[PreferredTerm, ...], str]:
    """The preferred terms with a weight, and the text of the first error ("" if there is none)."""
    terms = []
    for entry in entries:
        if not entry.get("weight"):
            continue
        try:
            terms.append(PreferredTerm(int(entry["weight"]), node_selector_term(entry.get("preference") or {})))
        except SelectorError as error:
            return (), str(error)
    return tuple(terms), ""


def _images(spec: Object) -> tuple[tuple[str, ...], int]:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    images = [normalised_image(each.get("image") or "") for each in containers]
    volumes = [each["image"].get("reference") or "" for each in spec.get("volumes") or () if each.get("image")]
    return tuple(images + [normalised_image(each) for each in volumes]), len(containers)


def normalised_image(name: str) -> str:
    """The image name with `:latest` where it has no tag (upstream `imagelocality.normalizedImageName`)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _unsupported(spec: Object) -> tuple[str, ...]:
    affinity = spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    rules = []
    if (affinity.get("podAffinity") or {}).get(required):
        rules.append("required pod affinity")
    if (affinity.get("podAntiAffinity") or {}).get(required):
        rules.append("required pod anti-affinity")
    spread = spec.get("topologySpreadConstraints") or ()
    if any(each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for each in spread):
        rules.append("topology spread with DoNotSchedule")
    if any(each.get("persistentVolumeClaim") or each.get("ephemeral") for each in spec.get("volumes") or ()):
        rules.append("persistent volume claims")
    if spec.get("resourceClaims"):
        rules.append("resource claims")
    return tuple(rules)
