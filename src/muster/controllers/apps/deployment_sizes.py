"""How many pods the ReplicaSets of a Deployment may have: surge, unavailability, proportional scaling.

Source of the rules: kube-controller-manager `pkg/controller/deployment/util/deployment_util.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.controllers.percentages import scaled

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


def replicas_of(obj: Object) -> int:
    """`spec.replicas`."""
    replicas: int | None = obj["spec"].get("replicas")
    return 1 if replicas is None else replicas


def is_rolling(deployment: Object) -> bool:
    """Whether pods are replaced little by little."""
    return (deployment["spec"].get("strategy") or {}).get("type") != "Recreate"


def limits(deployment: Object) -> tuple[int, int]:
    """How many pods there may be too many, and too few available. Not both are 0 unless pods are recreated."""
    if not is_rolling(deployment):
        return 0, 0
    rules = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    total = replicas_of(deployment)
    surge = scaled(rules.get("maxSurge"), total, up=True)
    unavailable = scaled(rules.get("maxUnavailable"), total, up=False)
    return surge, 1 if surge == unavailable == 0 else unavailable


def max_surge(deployment: Object) -> int:
    """How many pods there may be above the wanted number."""
    return limits(deployment)[0]


def max_unavailable(deployment: Object) -> int:
    """How many of the wanted pods need not be available."""
    if not is_rolling(deployment) or replicas_of(deployment) == 0:
        return 0
    return min(limits(deployment)[1], replicas_of(deployment))


def total_replicas(sets: Iterable[Object]) -> int:
    """The sum of `spec.replicas`."""
    return sum(map(replicas_of, sets))


def count(sets: Iterable[Object], field: str) -> int:
    """The sum of a counter of the status."""
    return sum((found.get("status") or {}).get(field) or 0 for found in sets)


def size_of_new(deployment: Object, sets: Iterable[Object], size: int) -> int:
    """The size that the new ReplicaSet (of size `size` now) may have next to the others."""
    wanted = replicas_of(deployment)
    if not is_rolling(deployment):
        return wanted
    room = wanted + max_surge(deployment) - total_replicas(sets)
    return size if room <= 0 else size + min(room, wanted - size)


def annotation_number(obj: Object, key: str) -> int | None:
    """The number in an annotation; None if there is none."""
    text = (obj["metadata"].get("annotations") or {}).get(key, "")
    return int(text) if text.isdecimal() else None


def size_annotations(deployment: Object) -> Mapping[str, str]:
    """What each ReplicaSet notes about the size of its Deployment."""
    wanted = replicas_of(deployment)
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + max_surge(deployment))}


def proportional_sizes(deployment: Object, sets: Iterable[Object]) -> dict[str, int]:
    """New sizes, by name, of ReplicaSets that share a change of the Deployment's size in proportion to their own.

    The largest one gets what rounding leaves over. Order of the result: in which they are scaled.
    """
    active = [found for found in sets if replicas_of(found) > 0]
    wanted = replicas_of(deployment)
    allowed = wanted + max_surge(deployment) if wanted > 0 else 0
    to_add = allowed - total_replicas(active)
    active.sort(key=lambda found: (found["metadata"].get("creationTimestamp") or "", name_of(found)))
    if to_add >= 0:
        active.reverse()
    active.sort(key=replicas_of, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for found in active:
        part = _proportion(found, deployment, to_add, added) if to_add else 0
        sizes[name_of(found)] = replicas_of(found) + part
        added += part
    if active and to_add:
        first = name_of(active[0])
        sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _proportion(found: Object, deployment: Object, to_add: int, added: int) -> int:
    if to_add == added:
        return 0
    part, room = _fraction(found, deployment), to_add - added
    return min(part, room) if to_add > 0 else max(part, room)


def _fraction(found: Object, deployment: Object) -> int:
    """By how much a ReplicaSet grows if it keeps its share of the Deployment."""
    size = replicas_of(found)
    if replicas_of(deployment) == 0:
        return -size
    allowed = replicas_of(deployment) + max_surge(deployment)
    before = annotation_number(found, MAXIMUM)
    if not before:
        before = (deployment.get("status") or {}).get("replicas") or allowed
    return _rounded(size * allowed, before) - size


def _rounded(numerator: int, denominator: int) -> int:
    """The quotient of two positive numbers, halves rounded up."""
    return (2 * numerator + denominator) // (2 * denominator)
