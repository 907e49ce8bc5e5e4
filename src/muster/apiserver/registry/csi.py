"""CSIDrivers and CSINodes: defaults, what may not change, validation.

Sources: upstream `pkg/apis/storage/v1/defaults.go`, `pkg/apis/storage/validation`.
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import JSON, Object, Objects
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
    too_long,
)
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLES = ("Persistent", "Ephemeral")
LONGEST_DRIVER = 63
LONGEST_NODE_ID = 256
SHORTEST_PERIOD_S = 10
SHORTEST_TOKEN_S = 600
LONGEST_TOKEN_S = 1 << 32
_OFF = ("podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity")
_FIXED = "field is immutable"


class CSIDriverStrategy(Strategy):
    """CSIDriver: its generation counts changes only, so that a new one has none."""

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj["spec"] = dict(obj.get("spec") or {})
        defaults: Object = {"attachRequired": True, "fsGroupPolicy": "ReadWriteOnceWithFSType"}
        off = _OFF if ctx.options.emulate in ("1.35", "1.36") else (*_OFF, "preventPodSchedulingIfMissing")
        for name, value in (*defaults.items(), *((name, False) for name in off)):
            if spec.get(name) is None:
                spec[name] = value
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        if new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj["spec"]
        errors = _validate_driver(spec, "spec")
        if not errors and spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
            ctx.warn(
                "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
                "possible logging of tokens in volume attributes"
            )
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        errors = self.validate(new, ctx)
        # Upstream misspells the one field.
        for name, spelled in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
            value = new["spec"][name]
            if value != old["spec"].get(name):
                errors.append(invalid_value(f"spec.{spelled}", value, _FIXED))
        return errors


class CSINodeStrategy(Strategy):
    """CSINode: what drivers say of a node; an entry changes in its volume limit only."""

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj["spec"] = dict(obj.get("spec") or {})
        spec["drivers"] = spec.get("drivers") or None
        for driver in spec["drivers"] or ():
            driver.setdefault("topologyKeys", None)

    def validate(self, obj: Object, ctx: Context) -> Errors:
        return _validate_drivers(obj["spec"].get("drivers") or [], "spec.drivers")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        errors = self.validate(new, ctx)
        drivers: Objects = new["spec"].get("drivers") or []
        for before in old["spec"].get("drivers") or ():
            alike = (driver for driver in drivers if driver.get("name") == before.get("name"))
            changed = [driver for driver in alike if _fixed_part(driver) != _fixed_part(before)]
            errors += [invalid_value("spec.drivers", _fixed_part(driver), _FIXED) for driver in changed]
        return errors


def _fixed_part(driver: Object) -> Object:
    """An entry without its limit, as messages print it."""
    return {
        "Name": driver.get("name") or "",
        "NodeID": driver.get("nodeID") or "",
        "TopologyKeys": driver.get("topologyKeys"),
        "Allocatable": None,
    }


def _validate_driver(spec: Object, at: str) -> Errors:
    errors: Errors = []
    if spec["fsGroupPolicy"] not in GROUP_POLICIES:
        errors.append(not_supported(f"{at}.fsGroupPolicy", spec["fsGroupPolicy"], GROUP_POLICIES))
    requests = spec.get("tokenRequests") or []
    errors += _validate_tokens(requests, f"{at}.tokenRequests")
    errors += [
        not_supported(f"{at}.volumeLifecycleModes", mode, LIFECYCLES)
        for mode in spec["volumeLifecycleModes"]
        if mode not in LIFECYCLES
    ]
    period, secret = spec.get("nodeAllocatableUpdatePeriodSeconds"), spec.get("serviceAccountTokenInSecrets")
    if period is not None and period < SHORTEST_PERIOD_S:
        why = f"must be greater than or equal to {SHORTEST_PERIOD_S} seconds"
        errors.append(invalid_value(f"{at}.nodeAllocatableUpdatePeriodSeconds", period, why))
    if secret is not None and not requests:
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid_value(f"{at}.serviceAccountTokenInSecrets", secret, why))
    return errors


def _validate_tokens(requests: Objects, at: str) -> Errors:
    """Each audience once, and tokens that last."""
    errors: Errors = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        here, audience, life = f"{at}[{index}]", request.get("audience") or "", request.get("expirationSeconds")
        if audience in seen:
            errors.append(duplicate(f"{here}.audience", audience))
            continue
        seen.add(audience)
        if life is not None and life < SHORTEST_TOKEN_S:
            why = "may not specify a duration less than 10 minutes"
            errors.append(invalid_value(f"{here}.expirationSeconds", life, why))
        if life is not None and life > LONGEST_TOKEN_S:
            why = "may not specify a duration larger than 2^32 seconds"
            errors.append(invalid_value(f"{here}.expirationSeconds", life, why))
    return errors


def _validate_drivers(drivers: Objects, at: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, driver in enumerate(drivers):
        here, name = f"{at}[{index}]", driver.get("name") or ""
        errors += _validate_driver_name(name, f"{here}.name")
        errors += _validate_node_id(driver.get("nodeID") or "", f"{here}.nodeID")
        count: JSON = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            errors.append(invalid_value(f"{here}.allocatable.count", count, "must be greater than or equal to 0"))
        if name in seen:
            errors.append(duplicate(f"{here}.name", name))
        seen.add(name)
        errors += _validate_topology_keys(driver.get("topologyKeys") or [], here)
    return errors


def _validate_driver_name(name: str, at: str) -> Errors:
    if not name:
        return [required(at)]
    errors = [too_long(at, LONGEST_DRIVER)] if len(name) > LONGEST_DRIVER else []
    return errors + [invalid_value(at, name, problem) for problem in subdomain_problems(name.lower())]


def _validate_node_id(node_id: str, at: str) -> Errors:
    if not node_id:
        return [required(at)]
    why = f"must be {LONGEST_NODE_ID} characters or less"
    return [invalid_value(at, node_id, why)] if len(node_id) > LONGEST_NODE_ID else []


def _validate_topology_keys(keys: list[str], at: str) -> Errors:
    errors: Errors = []
    for index, key in enumerate(keys):
        if not key:
            errors.append(required(at))
        if key in keys[:index]:
            errors.append(duplicate(at, key))
        errors += [invalid_value(at, key, problem) for problem in qualified_name_problems(key)]
    return errors
