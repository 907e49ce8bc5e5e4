"""Hints of the annotation `service.kubernetes.io/topology-mode: Auto`: endpoints shared out to zones by their CPU.

Source of the rules: KEP 2433, `k8s.io/endpointslice/topologycache`. Where upstream takes entries of a map as they come,
zones come in order of their names here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition
from muster.api.quantity import resource_units
from muster.controllers.network.endpoint_pods import ZONE
from muster.controllers.network.endpointslice_hints import is_ready_endpoint, with_hints
from muster.controllers.network.endpointslice_packing import SlicePlan

ANNOTATIONS = ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints")
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
OVERLOAD = 0.2
"""No endpoint should get more than this much above its fair share."""

ENABLED = "Topology Aware Hints has been enabled"
DISABLED = "Topology Aware Hints has been disabled"
NO_ZONE = "One or more endpoints do not have a zone specified"
NO_HINTS = "No hints allocated for zones"
NO_NODE_INFO = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
TOO_FEW = "Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)"
TOO_UNEVEN = (
    "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold "
    "({endpoints} endpoints, {zones} zones)"
)

Zones = Mapping[str, int]
"""How many endpoints are hinted at each zone."""


class HintsImpossible(Exception):
    """The endpoints cannot be shared out; the text says why. Not retryable by itself."""


class Share(Struct, frozen=True):
    """How many endpoints a zone must, may and should get."""

    minimum: int
    maximum: int
    desired: float


def is_automatic(service: Object) -> bool:
    """Whether the Service asks for these hints; of both annotations the older one counts."""
    annotations = service["metadata"].get("annotations") or {}
    for name in ANNOTATIONS[::-1]:
        if name in annotations:
            return annotations[name] in ("Auto", "auto")
    return False


def cpu_ratios(nodes: Iterable[Object]) -> dict[str, float]:
    """Each zone's part of the CPU of all ready workers; empty if a node tells too little or there is one zone only."""
    by_zone: dict[str, int] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        if any(label in labels for label in CONTROL_PLANE) or not has_condition(node, "Ready"):
            continue
        milli = resource_units("cpu", ((node.get("status") or {}).get("allocatable") or {}).get("cpu") or "0")
        zone = labels.get(ZONE)
        if not zone or not milli:
            return {}
        by_zone[zone] = by_zone.get(zone, 0) + milli
    if len(by_zone) < 2:
        return {}
    total = sum(by_zone.values())
    return {zone: by_zone[zone] / total for zone in sorted(by_zone)}


def shares(ratios: Mapping[str, float], endpoints: int) -> dict[str, Share]:
    """What each zone gets of so many endpoints. Raises HintsImpossible."""
    if not ratios:
        raise HintsImpossible(NO_NODE_INFO)
    if len(ratios) > endpoints:
        raise HintsImpossible(TOO_FEW.format(endpoints=endpoints, zones=len(ratios)))
    minimums = {zone: math.ceil(ratio * endpoints * (1 / (1 + OVERLOAD))) for zone, ratio in ratios.items()}
    spare = endpoints - sum(minimums.values())
    if spare < 0:
        raise HintsImpossible(TOO_UNEVEN.format(endpoints=endpoints, zones=len(ratios)))
    return {
        zone: Share(least, least + spare, max(ratios[zone] * endpoints, float(least)))
        for zone, least in minimums.items()
    }


def share_out(plan: SlicePlan, ratios: Mapping[str, float]) -> dict[str, int]:
    """Give all ready endpoints the hint of a zone; how many each zone got. Raises HintsImpossible."""
    slices = (*plan.create, *plan.update, *plan.unchanged)
    ready = sum(is_ready_endpoint(each) for slice_ in slices for each in slice_.get("endpoints") or ())
    allowed = shares(ratios, ready)
    hinted = _keep_valid(plan, allowed)
    changing = (*plan.create, *plan.update)
    for slice_ in changing:
        slice_["endpoints"] = [_at_home(endpoint, hinted) for endpoint in slice_["endpoints"]]
    _redistribute(changing, allowed, hinted)
    if not hinted:
        raise HintsImpossible(NO_HINTS)
    return hinted


def _keep_valid(plan: SlicePlan, allowed: Mapping[str, Share]) -> dict[str, int]:
    """Count the hints of unchanged slices; those whose hints cannot stay are changed."""
    hinted: dict[str, int] = {}
    kept: Objects = []
    for slice_ in plan.unchanged:
        counts = _valid_hints(slice_, hinted, allowed)
        if counts is None:
            plan.update.append({**slice_, "endpoints": list(slice_.get("endpoints") or ())})
            continue
        kept.append(slice_)
        for zone, count in counts.items():
            hinted[zone] = hinted.get(zone, 0) + count
    plan.unchanged = kept
    return hinted


def _valid_hints(slice_: Object, hinted: Zones, allowed: Mapping[str, Share]) -> dict[str, int] | None:
    counts: dict[str, int] = {}
    for endpoint in slice_.get("endpoints") or ():
        if not is_ready_endpoint(endpoint):
            continue
        zones = [entry["name"] for entry in (endpoint.get("hints") or {}).get("forZones") or ()]
        if not zones or any(zone not in allowed for zone in zones):
            return None
        for zone in zones:
            counts[zone] = counts.get(zone, 0) + 1
    fits = all(count + hinted.get(zone, 0) <= allowed[zone].maximum for zone, count in counts.items())
    return counts if fits else None


def _at_home(endpoint: Object, hinted: dict[str, int]) -> Object:
    """The endpoint with the hint of its own zone. Raises HintsImpossible if it has none."""
    if not is_ready_endpoint(endpoint):
        return endpoint
    zone = endpoint.get("zone")
    if not zone:
        raise HintsImpossible(NO_ZONE)
    hinted[zone] = hinted.get(zone, 0) + 1
    return with_hints(endpoint, _for_zone(zone))


def _for_zone(zone: str) -> Object:
    return {"forZones": [{"name": zone}]}


def _redistribute(slices: Sequence[Object], allowed: Mapping[str, Share], hinted: dict[str, int]) -> None:
    """Move hints from zones with too many endpoints to those with too few."""
    giving, receiving = _moves(allowed, hinted)
    for slice_ in slices:
        endpoints: Objects = slice_["endpoints"]
        for at, endpoint in enumerate(endpoints):
            giver = endpoint.get("zone") or ""
            if not is_ready_endpoint(endpoint) or not giving.get(giver):
                continue
            taker = next((zone for zone, count in receiving.items() if count > 0), None)
            if taker is None:
                return
            endpoints[at] = with_hints(endpoint, _for_zone(taker))
            giving[giver] -= 1
            receiving[taker] -= 1
            hinted[giver] -= 1
            hinted[taker] = hinted.get(taker, 0) + 1


def _moves(allowed: Mapping[str, Share], hinted: Zones) -> tuple[dict[str, int], dict[str, int]]:
    """How many endpoints each zone gives away and gets."""
    surplus = {zone: hinted.get(zone, 0) - share.desired for zone, share in allowed.items()}
    extra = {zone: value for zone, value in surplus.items() if value > 0}
    missing = {zone: -value for zone, value in surplus.items() if value < 0}
    giving: dict[str, int] = {}
    receiving: dict[str, int] = {}
    while extra and missing:
        giver, taker = max(extra, key=lambda zone: extra[zone]), max(missing, key=lambda zone: missing[zone])
        if max(extra[giver], missing[taker]) < 1.0 or min(extra[giver], missing[taker]) < 0.5:
            break
        giving[giver] = giving.get(giver, 0) + 1
        receiving[taker] = receiving.get(taker, 0) + 1
        extra[giver] -= 1
        missing[taker] -= 1
    return giving, receiving


def is_overloaded(hinted: Zones, ratios: Mapping[str, float]) -> bool:
    """Whether a zone has too few of the hinted endpoints, the nodes being what they are."""
    if not hinted or not ratios:
        return bool(hinted)
    total = sum(hinted.values())
    return any(
        zone not in hinted or hinted[zone] < math.ceil(total * ratio * (1 / (1 + OVERLOAD)))
        for zone, ratio in ratios.items()
    )
