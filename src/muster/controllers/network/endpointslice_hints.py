"""Hints of endpoints for `spec.trafficDistribution`: clients of the same zone, or of the same node.

Source of the rules: KEP 3015, KEP 4444, `k8s.io/endpointslice/trafficdist`.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.api.codec import Object, Objects
from muster.controllers.network.endpointslice_packing import SlicePlan

DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")


def is_ready_endpoint(endpoint: Object) -> bool:
    """Whether the endpoint says that it is ready."""
    return (endpoint.get("conditions") or {}).get("ready") is True


def distribute(plan: SlicePlan, distribution: str) -> None:
    """Give all ready endpoints the hints of one of `DISTRIBUTIONS`; slices that change by it are updated."""

    def hinted(endpoint: Object) -> Object:
        if not is_ready_endpoint(endpoint):
            return endpoint
        hints: Object = {}
        if endpoint.get("zone"):
            hints["forZones"] = [{"name": endpoint["zone"]}]
        if distribution == "PreferSameNode" and endpoint.get("nodeName"):
            hints["forNodes"] = [{"name": endpoint["nodeName"]}]
        return with_hints(endpoint, hints)

    rewrite(plan, hinted)


def remove_hints(plan: SlicePlan) -> None:
    """Take all hints away."""
    rewrite(plan, lambda endpoint: with_hints(endpoint, {}))


def with_hints(endpoint: Object, hints: Object) -> Object:
    """The endpoint with exactly these hints."""
    if hints == (endpoint.get("hints") or {}):
        return endpoint
    bare = {key: value for key, value in endpoint.items() if key != "hints"}
    return {**bare, "hints": hints} if hints else bare


def rewrite(plan: SlicePlan, change: Callable[[Object], Object]) -> None:
    """Change every endpoint of a plan. A slice that this changes moves from `unchanged` to `update`."""
    for slice_ in (*plan.create, *plan.update):
        slice_["endpoints"] = [change(endpoint) for endpoint in slice_["endpoints"]]
    unchanged: Objects = []
    for slice_ in plan.unchanged:
        old: Objects = slice_.get("endpoints") or []
        endpoints = [change(endpoint) for endpoint in old]
        if endpoints == old:
            unchanged.append(slice_)
        else:
            plan.update.append({**slice_, "endpoints": endpoints})
    plan.unchanged = unchanged
