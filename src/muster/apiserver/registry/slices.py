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
from muster.apiserver.registry.placement import validate_node_terms
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

MOST_DEVICES = 128
MOST_ATTRIBUTES = 32
MOST_CONDITIONS = 4
LONGEST_TEXT = 64
LONGEST_POOL = 253
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES = ("int", "bool", "string", "version")
_MORE_VALUES = (*_VALUES, "ints", "bools", "strings", "versions")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(\+([0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*))?"
)


class SliceStrategy(Strategy):
    """ResourceSlice."""

    counts_generation = True
    selectable_names = frozenset({"spec.nodeName", "spec.driver"})

    def selectable(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.nodeName": spec.get("nodeName") or "", "spec.driver": spec.get("driver") or ""}

    def validate(self, obj: Object, ctx: Context) -> Errors:
        return _validate_spec(obj.get("spec") or {}, None, ctx)

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.get("spec") or {}
        if spec.get("pool"):
            spec["pool"].setdefault("generation", 0)
        for device in spec.get("devices") or ():
            for amount in (device.get("capacity") or {}).values():
                amount.setdefault("value", "0")
            for taint in device.get("taints") or ():
                taint.setdefault("timeAdded", ctx.timestamp)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        return _validate_spec(new.get("spec") or {}, old.get("spec") or {}, ctx)


def _validate_spec(spec: Object, old: Object | None, ctx: Context) -> Errors:
    """A new spec, or (with `old`) a changed one."""
    values = _MORE_VALUES if ctx.options.emulate not in ("1.35", "1.36") else _VALUES
    errors = validate_driver(spec.get("driver") or "", "spec.driver")
    errors += _validate_pool(spec.get("pool") or {}, "spec.pool")
    if old is not None:
        errors += _validate_fixed(spec, old)
    errors += _validate_place(spec, "spec")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        errors.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    by_device = bool(spec.get("perDeviceNodeSelection"))
    errors += _validate_devices(spec.get("devices") or [], "spec.devices", values, by_device=by_device)
    return errors + _validate_shared(spec.get("sharedCounters") or [], "spec.sharedCounters")


def _validate_fixed(spec: Object, old: Object) -> Errors:
    """The pool, the driver and the node stay."""
    why, errors = "field is immutable", []
    name = (spec.get("pool") or {}).get("name") or ""
    if name != ((old.get("pool") or {}).get("name") or ""):
        errors.append(invalid_value("spec.pool.name", name, why))
    driver, node = spec.get("driver") or "", spec.get("nodeName")
    if driver != (old.get("driver") or ""):
        errors.append(invalid_value("spec.driver", driver, why))
    if node != old.get("nodeName"):
        errors.append(invalid_value("spec.nodeName", node, why))
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
    errors, given = _validate_places(spec, at, _PLACES, one_term=True)
    rule = f"exactly one of {', '.join(f'`{name}`' for name in _PLACES)} is required"
    if not given:
        errors.append(required(at, rule))
    elif len(given) > 1:
        errors.append(invalid_value(at, f"{{{', '.join(given)}}}", f"{rule}, but multiple fields are set"))
    return errors


def _validate_device_place(device: Object, at: str, *, by_device: bool) -> Errors:
    """With `by_device`, each device says where it is; else none does."""
    names = _PLACES[:3]
    if not by_device:
        why = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        return [invalid_value(at, None, why)] if any(device.get(name) is not None for name in names) else []
    errors, given = _validate_places(device, at, names, empty="must not be empty")
    rule = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )
    if not given:
        errors.append(required(at, rule))
    elif len(given) > 1:
        errors.append(invalid_value(at, f"{{{', '.join(given)}}}", rule))
    return errors


def _validate_places(
    holder: Object,
    at: str,
    names: tuple[str, ...],
    *,
    empty: str = "must be either unset or set to a non-empty string",
    one_term: bool = False,
) -> tuple[Errors, list[str]]:
    """What is wrong with the fields that say where devices are, and which of them say it, quoted."""
    errors: Errors = []
    given: list[str] = []
    for name in names:
        value, here = holder.get(name), f"{at}.{name}"
        if value is None:
            continue
        if value == "":
            errors.append(invalid_value(here, value, empty))
            continue
        if value is False:
            errors.append(invalid_value(here, value, "must be either unset or set to true"))
            continue
        given.append(f"`{name}`")
        if name == "nodeName":
            errors += [invalid_value(here, value, problem) for problem in subdomain_problems(value)]
        elif name == "nodeSelector":
            errors += validate_node_terms(value, here)
            terms = value.get("nodeSelectorTerms")
            if one_term and len(terms or ()) != 1:
                errors.append(
                    invalid_value(f"{here}.nodeSelectorTerms", terms, "must have exactly one node selector term")
                )
    return errors, given


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
        errors += _validate_counters(entry, "counterSet", f"{at}[{index}]")
    return errors


def _validate_shared(sets: list[Object], at: str) -> Errors:
    errors: Errors = []
    for index, entry in enumerate(sets):
        errors += _validate_counters(entry, "name", f"{at}[{index}]")
    return errors


def _validate_counters(entry: Object, name_field: str, at: str) -> Errors:
    """Counters and the name of their set."""
    name = entry.get(name_field) or ""
    errors = _validate_label(name, f"{at}.{name_field}") if name else [required(f"{at}.{name_field}")]
    if not entry.get("counters"):
        errors.append(required(f"{at}.counters"))
    return errors


def _validate_label(name: str, at: str) -> Errors:
    return [invalid_value(at, name, problem) for problem in label_problems(name, "characters")]


def _validate_binding(device: Object, at: str) -> Errors:
    """The conditions that say that a device is ready, or that it will not be."""
    ready, failed = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    both = (("bindingConditions", ready), ("bindingFailureConditions", failed))
    errors: Errors = []
    for name, conditions in both:
        if len(conditions) > MOST_CONDITIONS:
            errors.append(too_many(f"{at}.{name}", len(conditions), MOST_CONDITIONS))
            continue
        for index, condition in enumerate(conditions):
            here = f"{at}.{name}[{index}]"
            errors += [invalid_value(here, condition, problem) for problem in qualified_name_problems(condition)]
    for name, conditions in both:
        for index, condition in enumerate(conditions):
            here = f"{at}.{name}[{index}]"
            if condition in conditions[:index]:
                errors.append(duplicate(here, condition))
            if name == "bindingFailureConditions" and condition in ready:
                why = "bindingFailureConditions must not overlap with bindingConditions"
                errors.append(invalid_value(here, condition, why))
    for (name, conditions), (other, others) in (both, both[::-1]):
        if others and not conditions:
            errors.append(invalid_value(f"{at}.{name}", device.get(name), f"{name} are required to use {other}"))
    return errors


def _validate_devices(devices: list[Object], at: str, values: tuple[str, ...], *, by_device: bool) -> Errors:
    errors = [too_many(at, len(devices), MOST_DEVICES)] if len(devices) > MOST_DEVICES else []
    seen: set[str] = set()
    for index, device in enumerate(devices):
        here, name = f"{at}[{index}]", device.get("name") or ""
        errors += _validate_label(name, f"{here}.name")
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
            if (capacity[key] or {}).get("requestPolicy") is not None and not device.get("allowMultipleAllocations"):
                why = "allowMultipleAllocations must be true"
                errors.append(forbidden_field(f"{here}.capacity[{key}].requestPolicy", why))
        errors += _validate_taints(device.get("taints") or [], f"{here}.taints")
        errors += _validate_consumed(device.get("consumesCounters") or [], f"{here}.consumesCounters")
        errors += _validate_device_place(device, here, by_device=by_device)
        errors += _validate_binding(device, here)
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
