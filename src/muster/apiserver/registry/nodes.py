"""Nodes. Source: upstream `pkg/apis/core/validation` (ValidateNode), `pkg/registry/core/node`, recordings."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object
from muster.api.labels import label_value_errors
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
)
from muster.apiserver.registry.placement import EFFECTS
from muster.apiserver.registry.podnetwork import network_problems
from muster.apiserver.registry.strategy import Strategy

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class NodeStrategy(Strategy):
    """A node keeps the status that it is created with."""

    selectable_names = frozenset(("spec.unschedulable",))

    def default(self, obj: Object, ctx: Context) -> None:
        _default_networks(obj.get("spec") or {})
        status = obj.get("status")
        if status and status.get("capacity"):
            status["allocatable"] = {**status["capacity"], **(status.get("allocatable") or {})}

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        if ctx.options.taints_new_nodes:
            spec = obj.get("spec") or {}
            taints = spec.get("taints") or []
            if not any(taint.get("key") == NOT_READY_TAINT["key"] for taint in taints):
                obj["spec"] = {**spec, "taints": [*taints, dict(NOT_READY_TAINT)]}
        if not ctx.options.is_lenient:
            status = obj.setdefault("status", {})
            status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
            status.setdefault("nodeInfo", dict.fromkeys(_INFO, ""))

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        if (obj.get("spec") or {}).get("externalID"):
            ctx.warn("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return _validate_taints(obj) + _validate_networks(obj)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = _validate_taints(new)
        if ctx.options.emulate in ("1.35", "1.36"):
            # These look at the taints twice, and say so twice.
            errors += errors
        before, after = (old.get("spec") or {}).get("podCIDRs"), (new.get("spec") or {}).get("podCIDRs")
        if before and before != after:
            why = 'node updates may not change podCIDR except from "" to valid'
            errors.append(forbidden_field("spec.podCIDRs", why))
        spec, earlier = new.get("spec") or {}, old.get("spec") or {}
        if spec.get("externalID") and spec["externalID"] != earlier.get("externalID"):
            errors.append(forbidden_field("spec.externalID", "may not be updated"))
        if earlier.get("providerID") and spec.get("providerID") != earlier["providerID"]:
            why = 'node updates may not change providerID except from "" to valid'
            errors.append(forbidden_field("spec.providerID", why))
        return _validate_networks(new) + errors

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}


def _default_networks(spec: Object) -> None:
    """The network of the node's pods is also the first of the list; the list alone gives it, too."""
    first, listed = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if listed and not first:
        spec["podCIDR"] = listed[0]
    elif first and (not listed or listed[0] != first):
        spec["podCIDRs"] = [first]


def _validate_networks(node: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, text in enumerate((node.get("spec") or {}).get("podCIDRs") or ()):
        errors += [invalid_value(f"spec.podCIDRs[{index}]", text, problem) for problem in network_problems(text)]
    return errors


def _validate_taints(node: Object) -> list[FieldError]:
    """Taints have a key, a known effect, and are unique by both. (Upstream names them under metadata.)"""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        at = f"metadata.taints[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        errors += [invalid_value(f"{at}.key", key, problem) for problem in qualified_name_problems(key)]
        errors += [invalid_value(f"{at}.value", value, problem) for problem in label_value_errors(value)]
        if not effect:
            errors.append(required(f"{at}.effect"))
        elif effect not in EFFECTS:
            errors.append(not_supported(f"{at}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            found = duplicate(at, shown)
            errors.append(FieldError(found.reason, at, f"{found.body}: taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return errors
