"""How endpoints of one set of ports are packed into slices with as few writes as possible.

Source of the rules: `k8s.io/endpointslice/reconciler.go` (reconcileByPortMapping): endpoints stay where they are; new
ones go to slices that change anyway, the fullest first, then to the one slice that they fill best, then to new slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.meta import name_of

MOST_ENDPOINTS = 100
"""In one slice."""

EndpointKey: TypeAlias = tuple[tuple[str, ...], str, str, str]


@dataclass(slots=True)
class SlicePlan:
    """What happens to the slices of one address type. Those in `unchanged` and `delete` are shared objects."""

    create: Objects = field(default_factory=list)
    update: Objects = field(default_factory=list)
    unchanged: Objects = field(default_factory=list)
    delete: Objects = field(default_factory=list)


def endpoint_key(endpoint: Object) -> EndpointKey:
    """What makes an endpoint the same one as before: its addresses, host name and target."""
    target = endpoint.get("targetRef") or {}
    addresses = tuple(sorted(endpoint.get("addresses") or ()))
    return (addresses, endpoint.get("hostname") or "", target.get("namespace") or "", target.get("name") or "")


def pack(
    slices: Sequence[Object],
    desired: Sequence[Object],
    labels: Object,
    labels_differ: Callable[[Object], bool],
    new_slice: Callable[[], Object],
) -> SlicePlan:
    """The plan that puts `desired` endpoints into `slices` (all of the same ports) and new ones.

    `labels` are those that changed slices get; a slice whose labels differ changes. `new_slice` gives an empty one.
    """
    left = {endpoint_key(endpoint): endpoint for endpoint in desired}
    plan = SlicePlan()
    for slice_ in slices:
        _keep(slice_, left, labels, labels_differ, plan)
    room = sorted(plan.update, key=lambda slice_: -len(slice_["endpoints"]))
    for slice_ in room:
        _fill(slice_, left)
    while left:
        slice_ = _best_to_fill(plan, len(left), labels) or new_slice()
        if "name" not in slice_["metadata"]:
            plan.create.append(slice_)
        _fill(slice_, left)
    return plan


def _keep(
    slice_: Object,
    left: dict[EndpointKey, Object],
    labels: Object,
    labels_differ: Callable[[Object], bool],
    plan: SlicePlan,
) -> None:
    """Sort one slice into the plan; its endpoints that are still desired are taken out of `left`."""
    old: Objects = slice_.get("endpoints") or []
    kept, changed = [], False
    for endpoint in old:
        wanted = left.pop(endpoint_key(endpoint), None)
        if wanted is not None:
            kept.append(wanted)
            changed = changed or not _equal(wanted, endpoint)
    if (changed or len(kept) != len(old)) and not kept:
        plan.delete.append(slice_)
    elif changed or len(kept) != len(old):
        plan.update.append(_changed(slice_, kept, labels))
    elif labels_differ(slice_):
        plan.update.append(_changed(slice_, list(old), labels))
    else:
        plan.unchanged.append(slice_)


def _changed(slice_: Object, endpoints: Objects, labels: Object) -> Object:
    return {**slice_, "metadata": {**slice_["metadata"], "labels": dict(labels)}, "endpoints": endpoints}


def _equal(first: Object, second: Object) -> bool:
    """Whether two forms of the same endpoint are equal, hints apart."""
    return all(first.get(key) == second.get(key) for key in ("nodeName", "zone", "conditions")) and _target(
        first
    ) == _target(second)


def _target(endpoint: Object) -> Object:
    return {key: value for key, value in (endpoint.get("targetRef") or {}).items() if key != "resourceVersion"}


def _fill(slice_: Object, left: dict[EndpointKey, Object]) -> None:
    endpoints: Objects = slice_["endpoints"]
    for key in list(left)[: max(0, MOST_ENDPOINTS - len(endpoints))]:
        endpoints.append(left.pop(key))


def _best_to_fill(plan: SlicePlan, count: int, labels: Object) -> Object | None:
    """The unchanged slice that `count` more endpoints fill best, now marked as changed; None if they fit in none."""
    if count >= MOST_ENDPOINTS:
        return None
    rooms = [(MOST_ENDPOINTS - count - len(each.get("endpoints") or ()), at) for at, each in enumerate(plan.unchanged)]
    fitting = [(room, at) for room, at in rooms if 0 <= room < MOST_ENDPOINTS]
    if not fitting:
        return None
    _, at = min(fitting)
    slice_ = plan.unchanged.pop(at)
    changed = _changed(slice_, list(slice_.get("endpoints") or ()), labels)
    plan.update.append(changed)
    assert name_of(changed)
    return changed
