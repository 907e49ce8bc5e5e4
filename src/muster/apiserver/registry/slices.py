"""ResourceSlices: which devices drivers offer. Validation only.

Source: upstream `pkg/apis/resource/validation` (ValidateResourceSlice), recordings.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.labels import label_value_errors
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
    too_long,
    too_many,
)
from muster.apiserver.registry.devices import DEVICE_EFFECTS, validate_driver, validate_identifier
from muster.apiserver.registry.placement import validate_node_term
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

MOST_DEVICES = 128
MOST_ATTRIBUTES = 32
LONGEST_TEXT = 64
LONGEST_POOL = 253
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES = ("int", "bool", "string", "version")
_MORE_VALUES = (*_VALUES, "ints", "bools", "strings", "versions")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(\+([0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*))?"
)
_FIXED = ("driver", *_PLACES)


class SliceStrategy(Strategy):
    """ResourceSlice."""

    counts_generation = True
    selectable_names = frozenset({"spec.nodeName", "spec.driver"})

    def selectable(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.nodeName": spec.get("nodeName") or "", "spec.driver": spec.get("driver") or ""}

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj.get("spec") or {}
        errors = validate_driver(spec.get("driver") or "", "spec.driver")
        errors += _validate_pool(spec.get("pool") or {}, "spec.pool")
        errors += _validate_place(spec, "spec")
        values = _MORE_VALUES if ctx.options.emulate not in ("1.35", "1.36") else _VALUES
        for index, term in enumerate((spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()):
            errors += validate_node_term(term, f"spec.nodeSelector.nodeSelectorTerms[{index}]")
        if spec.get("sharedCounters") and spec.get("devices"):
            errors.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
        errors += _validate_shared(spec.get("sharedCounters") or [], "spec.sharedCounters")
        by_device = bool(spec.get("perDeviceNodeSelection"))
        return errors + _validate_devices(spec.get("devices") or [], "spec.devices", values, by_device=by_device)

    def default(self, obj: Object, ctx: Context) -> None:
        for device in (obj.get("spec") or {}).get("devices") or ():
            for amount in (device.get("capacity") or {}).values():
                amount.setdefault("value", "0")
            for taint in device.get("taints") or ():
                taint.setdefault("timeAdded", ctx.timestamp)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        errors = self.validate(new, ctx)
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        for name in _FIXED:
            if spec.get(name) != before.get(name):
                errors.append(invalid_value(f"spec.{name}", spec.get(name), "field is immutable"))
        pool, pool_before = (spec.get("pool") or {}).get("name"), (before.get("pool") or {}).get("name")
        if pool != pool_before:
            errors.append(invalid_value("spec.pool.name", pool, "field is immutable"))
        return errors


def _validate_pool(pool: Object, at: str) -> Errors:
    name, errors = pool.get("name") or "", []
    if not name:
        errors.append(required(f"{at}.name"))
    elif len(name) > LONGEST_POOL:
        errors.append(too_long(f"{at}.name", LONGEST_POOL))
    if name:
        for part in name.split("/"):
            errors += [invalid_value(f"{at}.name", part, problem) for problem in subdomain_problems(part)]
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        errors.append(invalid_value(f"{at}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid_value(f"{at}.generation", generation, "must be greater than or equal to zero"))
    return errors


def _validate_place(spec: Object, at: str) -> Errors:
    """Exactly one field says where the devices are."""
    errors: Errors = []
    given: list[str] = []
    for name in _PLACES:
        value = spec.get(name)
        if value is None:
            continue
        if value == "" or value is False:
            wanted = "a non-empty string" if value == "" else "true"
            errors.append(invalid_value(f"{at}.{name}", value, f"must be either unset or set to {wanted}"))
        else:
            given.append(f"`{name}`")
    rule = f"exactly one of {', '.join(f'`{name}`' for name in _PLACES)} is required"
    if not given:
        errors.append(required(at, rule))
    elif len(given) > 1:
        errors.append(invalid_value(at, f"{{{', '.join(given)}}}", f"{rule}, but multiple fields are set"))
    return errors


def _validate_taints(taints: list[Object], at: str) -> Errors:
    errors: Errors = []
    for index, taint in enumerate(taints):
        here, key, value = f"{at}[{index}]", taint.get("key") or "", taint.get("value") or ""
        errors += [invalid_value(f"{here}.key", key, problem) for problem in qualified_name_problems(key)]
        errors += [invalid_value(f"{here}.value", value, problem) for problem in label_value_errors(value)]
        effect = taint.get("effect") or ""
        if not effect:
            errors.append(required(f"{here}.effect"))
        elif effect not in DEVICE_EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, DEVICE_EFFECTS))
    return errors


def _validate_consumed(consumed: list[Object], at: str) -> Errors:
    errors: Errors = []
    for index, entry in enumerate(consumed):
        for name in ("counterSet", "counters"):
            if not entry.get(name):
                errors.append(required(f"{at}[{index}].{name}"))
    return errors


def _validate_shared(sets: list[Object], at: str) -> Errors:
    errors: Errors = []
    for index, entry in enumerate(sets):
        name = entry.get("name") or ""
        here = f"{at}[{index}].name"
        problems = [invalid_value(here, name, problem) for problem in label_problems(name)]
        errors += problems if name else [required(here)]
        if not entry.get("counters"):
            errors.append(required(f"{at}[{index}].counters"))
    return errors


def _validate_devices(devices: list[Object], at: str, values: tuple[str, ...], *, by_device: bool) -> Errors:
    errors = [too_many(at, len(devices), MOST_DEVICES)] if len(devices) > MOST_DEVICES else []
    seen: set[str] = set()
    for index, device in enumerate(devices):
        here, name = f"{at}[{index}]", device.get("name") or ""
        errors += [invalid_value(f"{here}.name", name, problem) for problem in label_problems(name)]
        attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
        total = len(attributes) + len(capacity)
        if total > MOST_ATTRIBUTES:
            why = f"the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}"
            errors.append(invalid_value(here, total, why))
        for key in sorted(attributes):
            errors += _validate_name(key, f"{here}.attributes")
            errors += _validate_attribute(attributes[key] or {}, f"{here}.attributes[{key}]", values)
        for key in sorted(capacity):
            errors += _validate_name(key, f"{here}.capacity")
            if (capacity[key] or {}).get("requestPolicy") and not device.get("allowMultipleAllocations"):
                why = "allowMultipleAllocations must be true"
                errors.append(forbidden_field(f"{here}.capacity[{key}].requestPolicy", why))
        errors += _validate_taints(device.get("taints") or [], f"{here}.taints")
        errors += _validate_consumed(device.get("consumesCounters") or [], f"{here}.consumesCounters")
        if not by_device and any(device.get(name) is not None for name in _PLACES):
            why = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
                "in the ResourceSlice spec"
            )
            errors.append(invalid_value(here, None, why))
        if name in seen:
            errors.append(duplicate(here, name))
        seen.add(name)
    return errors


def _validate_name(name: str, at: str) -> Errors:
    """The name of an attribute or a capacity, with or without a domain."""
    if not name:
        return [required(at, "name required")]
    domain, slash, rest = name.rpartition("/")
    errors: Errors = []
    if slash:
        errors += validate_driver(domain, at) if domain else [required(at, "the domain must not be empty")]
    return errors + (validate_identifier(rest, at) if rest else [required(at, "the name must not be empty")])


def _validate_attribute(attribute: Object, at: str, values: tuple[str, ...]) -> Errors:
    given = [name for name in values if attribute.get(name) is not None]
    errors: Errors = []
    for kind in given:
        value = attribute[kind]
        if kind in ("string", "version") and len(value) > LONGEST_TEXT:
            errors.append(too_long(f"{at}.{kind}", LONGEST_TEXT))
        elif kind == "version" and not _VERSION.fullmatch(value):
            why = "must be a string compatible with semver.org spec 2.0.0"
            errors.append(invalid_value(f"{at}.version", value, why))
    return errors if len(given) == 1 else [*errors, _not_one(attribute, given, at, values)]


def _not_one(attribute: Object, given: list[str], at: str, values: tuple[str, ...]) -> FieldError:
    if values == _VALUES:
        why = "exactly one value must be specified"
        return invalid_value(at, attribute if given else "", why)
    listed = ", ".join(f"`{name}`" for name in values)
    if given:
        return invalid_value(at, f"{{{', '.join(given)}}}", f"must specify exactly one of: {listed}")
    return invalid_value(at, "", f"must specify one of: {listed}")
