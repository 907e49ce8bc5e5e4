"""Reference rules about resources: what a pod requests, whether it fits, how full and how balanced a node becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from muster.api.codec import Object
from muster.api.quantity import resource_units
from muster.testing.reference_nodes import Verdict

DEFAULTS = {"cpu": 100, "memory": 200 * 2**20}
NATIVE = ("cpu", "memory", "ephemeral-storage")


def _read(container: Object) -> dict[str, int]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: resource_units(name, value) for name, value in amounts.items()}


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _most(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def aggregate(spec: Object, read: Callable[[Object], dict[str, int]]) -> dict[str, int]:
    """Containers with sidecars, or the most that any init container needs beside the sidecars before it."""
    app: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    init: dict[str, int] = {}
    for container in spec.get("containers") or ():
        app = _sum(app, read(container))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            app, sidecars = _sum(app, read(container)), _sum(sidecars, read(container))
            init = _most(init, sidecars)
        else:
            init = _most(init, _sum(read(container), sidecars))
    return _most(app, init)


def with_pod_level(spec: Object, amounts: dict[str, int], pod_level: dict[str, int]) -> dict[str, int]:
    """The pod level replaces what it names; the overhead comes on top."""
    result = dict(amounts)
    for name, amount in pod_level.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            result[name] = amount
    overhead = {name: resource_units(name, value) for name, value in (spec.get("overhead") or {}).items()}
    return _sum(result, overhead)


def pod_level(spec: Object) -> dict[str, int]:
    """The requests of `spec.resources`."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    return {name: resource_units(name, value) for name, value in requests.items()}


def requests(pod: Object) -> dict[str, int]:
    """What a pending pod requests."""
    spec = pod["spec"]
    return with_pod_level(spec, aggregate(spec, _read), pod_level(spec))


def own_scored(pod: Object) -> dict[str, int]:
    """cpu and memory of the incoming pod for its Fit score: container sums with defaults, no pod level."""
    spec = pod["spec"]
    return with_pod_level(spec, aggregate(spec, lambda container: {**DEFAULTS, **_read(container)}), {})


def scored(pod: Object) -> dict[str, int]:
    """cpu and memory of a pod on a node for scores."""
    spec = pod["spec"]
    defaults = dict(DEFAULTS)
    if pod_level(spec):
        named = requests(pod)
        defaults = {name: amount for name, amount in defaults.items() if name not in named}
    read = aggregate(spec, lambda container: {**defaults, **_read(container)})
    return with_pod_level(spec, read, pod_level(spec))


def allocatable(node: Object) -> dict[str, int]:
    """What the node offers."""
    return {name: resource_units(name, value) for name, value in node["status"]["allocatable"].items()}


def held(pods: Sequence[Object], read: Callable[[Object], dict[str, int]], name: str) -> int:
    """The sum over pods of one resource."""
    return sum(read(pod).get(name, 0) for pod in pods)


def too_full(pod: Object, node: Object, pods: Sequence[Object], arguments: Object) -> Verdict | None:
    """NodeResourcesFit; `pods`: those on the node."""
    offered, wanted = allocatable(node), requests(pod)
    reasons, hopeless = [], False
    if len(pods) + 1 > offered.get("pods", 0):
        reasons.append("Too many pods")
    others = sorted(name for name in wanted if name not in NATIVE and not _ignored(name, arguments))
    for name in (*NATIVE, *others):
        amount = wanted.get(name, 0)
        if amount > 0 and amount > offered.get(name, 0) - held(pods, requests, name):
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or amount > offered.get(name, 0)
    return (tuple(reasons), not hopeless) if reasons else None


def _ignored(name: str, arguments: Object) -> bool:
    groups = arguments.get("ignoredResourceGroups") or ()
    return name in (arguments.get("ignoredResources") or ()) or ("/" in name and name.split("/")[0] in groups)


def fill_score(pod: Object, node: Object, pods: Sequence[Object], strategy: Object) -> int:
    """The score of NodeResourcesFit."""
    kind = strategy.get("type", "LeastAllocated")
    weights = strategy.get("resources") or [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    total = weight_sum = 0
    for entry in weights:
        name, weight = entry["name"], entry["weight"]
        offered = allocatable(node).get(name, 0)
        if offered == 0 or (name not in NATIVE and requests(pod).get(name, 0) == 0):
            continue
        if name in DEFAULTS:
            used = held(pods, scored, name) + own_scored(pod).get(name, 0)
        else:
            used = held(pods, requests, name) + requests(pod).get(name, 0)
        score = _strategy_score(kind, strategy, used, offered)
        if kind == "RequestedToCapacityRatio" and score == 0:
            continue
        total, weight_sum = total + score * weight, weight_sum + weight
    if weight_sum == 0:
        return 0
    if kind == "RequestedToCapacityRatio":
        return math.floor(total / weight_sum + 0.5)
    return total // weight_sum


def _strategy_score(kind: str, strategy: Object, used: int, offered: int) -> int:
    if kind == "LeastAllocated":
        return 0 if used > offered else (offered - used) * 100 // offered
    if kind == "MostAllocated":
        return min(used, offered) * 100 // offered
    points = [(each["utilization"], each["score"] * 10) for each in strategy["requestedToCapacityRatio"]["shape"]]
    at = 100 if used > offered else used * 100 // offered
    if at <= points[0][0]:
        return int(points[0][1])
    for (x0, y0), (x1, y1) in pairwise(points):
        if at <= x1:
            return int(y0 + int((y1 - y0) * (at - x0) / (x1 - x0)))
    return int(points[-1][1])


def balance_score(pod: Object, node: Object, pods: Sequence[Object], names: Sequence[str]) -> int | None:
    """The score of NodeResourcesBalancedAllocation; None for a pod that requests none of the resources."""
    if not any(requests(pod).get(name, 0) for name in names):
        return None
    after, before = _balance(pod, node, pods, names, 1), _balance(pod, node, pods, names, 0)
    return 50 + (50 + after - before) // 2


def _balance(pod: Object, node: Object, pods: Sequence[Object], names: Sequence[str], times: int) -> int:
    fractions = []
    for name in names:
        amount, offered = requests(pod).get(name, 0), allocatable(node).get(name, 0)
        if offered == 0 or (name not in NATIVE and amount == 0):
            continue
        fractions.append(min(1.0, (held(pods, requests, name) + times * amount) / offered))
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = math.sqrt(sum((each - mean) * (each - mean) for each in fractions) / len(fractions))
    return int((1 - deviation) * 100)
