"""A solution as a claim's `status.allocation`. Source: `structured/internal/*/allocator_*.go` (Allocate, 1.36)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.api.codec import Object, Objects, loads
from muster.engine.devices.classes import ClassBook
from muster.engine.devices.features import Features
from muster.engine.devices.requests import ClaimSpec
from muster.engine.devices.search import Chosen, Found, Wanted

FINALIZER = "resource.kubernetes.io/delete-protection"


def allocations(
    found: Found,
    claims: Sequence[Wanted],
    node: str,
    classes: ClassBook,
    features: Features,
    share_id: Callable[[int, int], str],
) -> list[Object]:
    """The allocation of each claim. `share_id` names the share of a result by the places of claim and result."""
    made = []
    for at, (claim, chosen) in enumerate(zip(claims, found.devices, strict=True)):
        results = [_result(each, features, share_id(at, place)) for place, each in enumerate(chosen)]
        devices: Object = {"results": results} if results else {}
        config = _config(claim.spec, found.picks[at], classes)
        if config:
            devices["config"] = config
        allocation: Object = {"devices": devices}
        selector = _node_selector(chosen, node)
        if selector is not None:
            allocation["nodeSelector"] = selector
        made.append(allocation)
    return made


def _result(chosen: Chosen, features: Features, share_id: str) -> Object:
    request, device = chosen.request, chosen.device
    result: Object = {
        "request": request.full_name,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if request.admin:
        result["adminAccess"] = True
    tolerations: Objects = loads(request.written_tolerations)
    if tolerations:
        result["tolerations"] = tolerations
    if features.binding_conditions and device.binding_conditions:
        result["bindingConditions"] = list(device.binding_conditions)
    if features.binding_conditions and device.binding_failure_conditions:
        result["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if chosen.consumed is not None:
        result["shareID"] = share_id
        if chosen.consumed:
            result["consumedCapacity"] = {name: str(amount) for name, amount in chosen.consumed.items()}
    return result


def _config(spec: ClaimSpec, picks: Sequence[int], classes: ClassBook) -> Objects:
    """The entries of the classes, each class once with all requests of it, then those of the claim."""
    made: Objects = []
    of_class: dict[str, Objects] = {}
    for entry, pick in zip(spec.entries, picks, strict=True):
        choice = entry.choices[pick]
        known = of_class.get(choice.device_class)
        if known is not None:
            for each in known:
                each["requests"].append(choice.full_name)
            continue
        found = classes.by_name[choice.device_class].config
        new: Objects = [{"source": "FromClass", "requests": [choice.full_name], **each} for each in found]
        of_class[choice.device_class] = new
        made += new
    for each in spec.config:
        made += [{"source": "FromClaim", **each}] * _times(each.get("requests") or (), spec, picks)
    return made


def _times(requests: Sequence[str], spec: ClaimSpec, picks: Sequence[int]) -> int:
    """How often upstream repeats an entry of the claim: once for each of its requests that was met."""
    if not requests:
        return 1
    return sum(
        entry.name in requests or (entry.is_list and entry.choices[pick].full_name in requests)
        for entry, pick in zip(spec.entries, picks, strict=True)
    )


def _node_selector(chosen: Sequence[Chosen], node: str) -> Object | None:
    """The nodes on which all devices can be used; None for all nodes."""
    fields: Objects = []
    expressions: Objects = []
    for each in chosen:
        home = (each.pool.slices or {})[each.device]
        reach = each.device.reach if home.is_per_device else home.reach
        if reach.node_name or each.device.binds_to_node:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        for term in ((reach.raw or {}).get("nodeSelectorTerms") or ())[:1]:
            _join(fields, term.get("matchFields") or ())
            _join(expressions, term.get("matchExpressions") or ())
    term = {name: found for name, found in (("matchFields", fields), ("matchExpressions", expressions)) if found}
    return {"nodeSelectorTerms": [term]} if term else None


def _join(known: Objects, requirements: Sequence[Object]) -> None:
    for each in requirements:
        if not any(_same(each, other) for other in known):
            known.append(each)


def _same(one: Object, other: Object) -> bool:
    names = ("key", "operator")
    return all(one.get(name) == other.get(name) for name in names) and set(one.get("values") or ()) == set(
        other.get("values") or ()
    )
