"""The texts of `--nodes`, and the Node objects of simulated nodes.

A text is a number of nodes, or `key=value` pairs separated by commas, such as
`count=16,cpu=32,memory=256Gi,nvidia.com/gpu=8,pods=110,zones=2,racks=4,name=node,taint=dedicated=ml:NoSchedule`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import has_condition, name_of
from muster.api.quantity import QuantityError, canonical_quantity, parse_quantity
from muster.clock import rfc3339

DEFAULT_CAPACITY: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110"}
"""What a simulated node has where nothing else is said."""

MAX_COUNT = 1_000_000
MOST_UNITS = 2**53 - 1
"""Of a resource on a node, in units (cpu in thousandths): as much as decisions can tell from more."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_PLATFORM = tuple(
    # a kubelet writes the names of old as well; otherwise the node lifecycle controller would add them
    (f"{prefix}kubernetes.io/{key}", value)
    for prefix in ("", "beta.")
    for key, value in (("os", "linux"), ("arch", "amd64"))
)
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_RESOURCE = re.compile(r"(ephemeral-storage|hugepages-[0-9]+[KMGT]i|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-\w.]*)")
_EXAMPLE = "count=16,cpu=32,memory=256Gi,nvidia.com/gpu=8"


class NodeSpecError(ValueError):
    """A text that describes no nodes; the message says what would be right. Not retryable."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """`count` equal nodes named `name-0`, `name-1`, …, dealt to zones and racks (totals; 0: none) in turn."""

    count: int = 1
    name: str = "node"
    zones: int = 0
    racks: int = 0
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_CAPACITY))
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, value, effect)"""


def parse_node_spec(text: str) -> NodeSpec:
    """What one `--nodes` text asks for. Raises `NodeSpecError`."""
    if re.fullmatch(r"[0-9]+", text.strip()):
        return NodeSpec(count=_number("the number of nodes", text.strip(), text))
    values: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or not value:
            raise _error(text, f"{pair.strip()!r} is neither a number nor key=value, as in {_EXAMPLE}")
        if key == "taint":
            taints.append(_taint(value, text))
        elif key in values:
            raise _error(text, f"{key} is given twice")
        else:
            values[key] = value
    return _spec(values, tuple(taints), text)


def make_nodes(specs: Iterable[NodeSpec], now: float) -> Objects:
    """The Node objects, ready since `now`. Specs of the same name go on counting where the one before ended."""
    made: dict[str, int] = {}
    nodes = []
    for spec in specs:
        first = made.get(spec.name, 0)
        made[spec.name] = first + spec.count
        nodes += [_node(spec, index, f"{spec.name}-{first + index}", now) for index in range(spec.count)]
    return nodes


def completed(node: Object, now: float) -> Object:
    """A copy of a Node with what its simulated kubelet fills in: hostname label, capacity, allocatable, Ready.

    Capacity comes from allocatable or the other way round; a node with neither has `DEFAULT_CAPACITY`.
    """
    node = copy_object(node)
    name = name_of(node)
    labels = node["metadata"].setdefault("labels", {})
    for key, value in (("kubernetes.io/hostname", name), *_PLATFORM):
        labels.setdefault(key, value)
    status = node.setdefault("status", {})
    capacity = status.get("capacity") or status.get("allocatable") or dict(DEFAULT_CAPACITY)
    status["capacity"] = capacity
    status["allocatable"] = status.get("allocatable") or dict(capacity)
    if not has_condition(node, "Ready"):
        healthy = healthy_conditions(now)
        types = {entry["type"] for entry in healthy}
        others = [entry for entry in status.get("conditions") or () if entry.get("type") not in types]
        status["conditions"] = [*others, *healthy]
    status.setdefault("nodeInfo", {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"})
    return node


def is_complete(node: Object) -> bool:
    """Whether a Node says what it has and is ready."""
    status = node.get("status") or {}
    return bool(status.get("allocatable")) and bool(status.get("capacity")) and has_condition(node, "Ready")


def healthy_conditions(now: float) -> Objects:
    """The conditions of a node that works, as a kubelet writes them (`pkg/kubelet/nodestatus/setters.go`)."""
    at = rfc3339(now)
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        for type_, status, reason, message in _HEALTHY
    ]


def _node(spec: NodeSpec, index: int, name: str, now: float) -> Object:
    labels = {}
    if spec.zones:
        labels["topology.kubernetes.io/zone"] = f"zone-{index % spec.zones}"
    if spec.racks:
        labels["topology.kubernetes.io/rack"] = f"rack-{index % spec.racks}"
    taints = [{"key": key, "value": value, "effect": effect} for key, value, effect in spec.taints]
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": dict(spec.capacity)},
    }
    return completed(node, now)


def _spec(values: dict[str, str], taints: tuple[tuple[str, str, str], ...], text: str) -> NodeSpec:
    capacity = dict(DEFAULT_CAPACITY)
    numbers = {"count": 1, "zones": 0, "racks": 0}
    name = "node"
    for key, value in values.items():
        if key in numbers:
            numbers[key] = _number(key, value, text)
        elif key == "name":
            name = _name(value, text)
        elif key in DEFAULT_CAPACITY or _RESOURCE.fullmatch(key):
            capacity[key] = _amount(key, value, text)
        else:
            known = "count, cpu, memory, pods, zones, racks, name, taint, or a resource such as nvidia.com/gpu"
            raise _error(text, f"{key!r} is not known; known are {known}")
    return NodeSpec(numbers["count"], name, numbers["zones"], numbers["racks"], capacity, taints)


def _number(key: str, value: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", value) or int(value) > MAX_COUNT:
        raise _error(text, f"{key} is {value!r}, but must be a whole number from 0 to {MAX_COUNT}")
    return int(value)


def _name(value: str, text: str) -> str:
    if len(value) > 240 or not _NAME.fullmatch(value):
        raise _error(text, f"name is {value!r}, but must be of lower case letters, digits, '-' and '.', as in name=gpu")
    return value


def _amount(key: str, value: str, text: str) -> str:
    try:
        amount = parse_quantity(value)
    except QuantityError as error:
        raise _error(text, f"{key} is {value!r}, but must be a quantity such as 32, 500m or 256Gi") from error
    if amount.nano < 0:
        raise _error(text, f"{key} is {value!r}, but must not be negative")
    if amount.nano // (1_000_000 if key == "cpu" else 1_000_000_000) > MOST_UNITS:
        raise _error(
            text, f"{key} is {value!r}, but must not be more than {'9e12' if key == 'cpu' else '9e15 (or 7Pi)'}"
        )
    whole = key not in ("cpu", "memory", "ephemeral-storage") and not key.startswith("hugepages-")
    if whole and amount.nano % 1_000_000_000:
        raise _error(text, f"{key} is {value!r}, but must be a whole number")
    return canonical_quantity(value)


def _taint(value: str, text: str) -> tuple[str, str, str]:
    rest, colon, effect = value.rpartition(":")
    key, _, taint_value = rest.partition("=")
    if not colon or not key or effect not in EFFECTS:
        form = f"key=value:Effect with an effect of {', '.join(EFFECTS)}"
        raise _error(text, f"taint is {value!r}, but must be {form}, as in taint=dedicated=ml:NoSchedule")
    return key, taint_value, effect


def _error(text: str, message: str) -> NodeSpecError:
    return NodeSpecError(f"--nodes {text!r}: {message}")
