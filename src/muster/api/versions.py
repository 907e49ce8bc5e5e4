"""Conversion of Workload and PodGroup between the API versions of three releases, as pure functions.

The stored form (hub) is v1alpha3; v1beta1 has the same fields. Going to the hub loses nothing; coming from it loses
what the older version cannot say (`losses` names it). No function changes its arguments; results may share their parts.
Source: the field map of the workload API (KEP-4671 and the published types of 1.35, 1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from muster.api.codec import Object, Objects

GROUP = "scheduling.k8s.io"
HUB = "v1alpha3"

_MODE_TO_HUB: dict[str, Object] = {"Pod": {"single": {}}, "PodGroup": {"all": {}}}
_CONDITION_TO_HUB = {"PodGroupScheduled": "PodGroupInitiallyScheduled"}
_CONDITION_FROM_HUB = {new: old for old, new in _CONDITION_TO_HUB.items()}

Convert: TypeAlias = Callable[[Object], Object]

_HIDDEN_SPEC = {
    "v1alpha1": ("compositePodGroupTemplates",),
    "v1alpha2": ("compositePodGroupTemplates", "parentCompositePodGroupName", "preemptionPolicy"),
}
_HIDDEN_TEMPLATE = {
    "v1alpha1": (
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    ),
    "v1alpha2": ("preemptionPolicy",),
}


def to_hub(obj: Object, version: str, old: Object | None = None) -> Object:
    """An object of `version` in stored form. `old`: the stored object that it replaces; fields that `version`
    cannot say are kept from it."""
    convert = _TO_HUB.get((version, obj["kind"]))
    hub = convert(obj) if convert else obj
    hub = {**hub, "apiVersion": f"{GROUP}/{HUB}"}
    return _with_hidden(hub, old, version) if old is not None and version in _HIDDEN_SPEC else hub


def from_hub(hub: Object, version: str) -> Object:
    """A stored object in `version`."""
    convert = _FROM_HUB.get((version, hub["kind"]))
    obj = convert(hub) if convert else hub
    return {**obj, "apiVersion": f"{GROUP}/{version}"}


def losses(hub: Object, version: str) -> list[str]:
    """The fields of a stored object that `version` does not show, as paths."""
    spec = hub.get("spec") or {}
    lost = [f"spec.{field}" for field in _HIDDEN_SPEC.get(version, ()) if spec.get(field)]
    for index, template in enumerate(spec.get("podGroupTemplates") or ()):
        hidden = _HIDDEN_TEMPLATE.get(version, ())
        lost += [f"spec.podGroupTemplates[{index}].{field}" for field in hidden if template.get(field) is not None]
    return lost


def _with_hidden(hub: Object, old: Object, version: str) -> Object:
    spec, old_spec = dict(hub.get("spec") or {}), old.get("spec") or {}
    for field in _HIDDEN_SPEC[version]:
        if field in old_spec:
            spec[field] = old_spec[field]
    old_templates = {template.get("name"): template for template in old_spec.get("podGroupTemplates") or ()}
    if old_templates and spec.get("podGroupTemplates"):
        hidden = _HIDDEN_TEMPLATE[version]
        spec["podGroupTemplates"] = [
            _keep(template, old_templates.get(template.get("name")), hidden) for template in spec["podGroupTemplates"]
        ]
    return {**hub, "spec": spec}


def _keep(template: Object, old: Object | None, fields: tuple[str, ...]) -> Object:
    kept = {field: old[field] for field in fields if field in old} if old else {}
    return {**template, **kept} if kept else template


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    """The object with fields renamed in place of their order."""
    return {names.get(key, key): value for key, value in obj.items()}


def _map_templates(obj: Object, field: str, new_field: str, convert: Convert) -> Object:
    spec = obj.get("spec") or {}
    changed: Object = {}
    for key, value in spec.items():
        if key == field:
            changed[new_field] = [convert(item) for item in value or ()]
        else:
            changed[key] = value
    return {**obj, "spec": changed}


def _without(obj: Object, fields: tuple[str, ...]) -> Object:
    return {key: value for key, value in obj.items() if key not in fields}


def _workload_from_alpha1(obj: Object) -> Object:
    rename = {"policy": "schedulingPolicy"}
    return _map_templates(obj, "podGroups", "podGroupTemplates", lambda item: _renamed(item, rename))


def _workload_to_alpha1(hub: Object) -> Object:
    hidden = _HIDDEN_TEMPLATE["v1alpha1"]
    rename = {"schedulingPolicy": "policy"}
    visible = {**hub, "spec": _without(hub.get("spec") or {}, _HIDDEN_SPEC["v1alpha1"])}
    return _map_templates(
        visible, "podGroupTemplates", "podGroups", lambda item: _renamed(_without(item, hidden), rename)
    )


def _mode_to_hub(spec: Object) -> Object:
    mode = spec.get("disruptionMode")
    return {**spec, "disruptionMode": _MODE_TO_HUB[mode]} if isinstance(mode, str) and mode in _MODE_TO_HUB else spec


def _mode_from_hub(spec: Object) -> Object:
    mode = spec.get("disruptionMode")
    if not isinstance(mode, dict) or not mode:
        return spec
    return {**spec, "disruptionMode": "PodGroup" if "all" in mode else "Pod"}


def _workload_from_alpha2(obj: Object) -> Object:
    return _map_templates(obj, "podGroupTemplates", "podGroupTemplates", _mode_to_hub)


def _workload_to_alpha2(hub: Object) -> Object:
    hidden = _HIDDEN_TEMPLATE["v1alpha2"]
    visible = {**hub, "spec": _without(hub.get("spec") or {}, _HIDDEN_SPEC["v1alpha2"])}
    return _map_templates(
        visible, "podGroupTemplates", "podGroupTemplates", lambda item: _mode_from_hub(_without(item, hidden))
    )


def _group_from_alpha2(obj: Object) -> Object:
    spec: Object = {}
    for key, value in (obj.get("spec") or {}).items():
        if key == "podGroupTemplateRef":
            # Servers of 1.36 write null where there is none.
            if value is not None:
                workload = value.get("workload") or {}
                spec["workloadRef"] = _renamed(workload, {"podGroupTemplateName": "templateName"})
        else:
            spec[key] = value
    return _with_conditions({**obj, "spec": _mode_to_hub(spec)}, _CONDITION_TO_HUB)


def _group_to_alpha2(hub: Object) -> Object:
    spec: Object = {}
    for key, value in _without(hub.get("spec") or {}, _HIDDEN_SPEC["v1alpha2"]).items():
        if key == "workloadRef":
            spec["podGroupTemplateRef"] = {"workload": _renamed(value, {"templateName": "podGroupTemplateName"})}
        else:
            spec[key] = value
    return _with_conditions({**hub, "spec": _mode_from_hub(spec)}, _CONDITION_FROM_HUB)


def _with_conditions(obj: Object, names: dict[str, str]) -> Object:
    conditions: Objects = (obj.get("status") or {}).get("conditions") or []
    if not any(entry.get("type") in names for entry in conditions):
        return obj
    renamed = [{**entry, "type": names.get(entry.get("type", ""), entry.get("type"))} for entry in conditions]
    return {**obj, "status": {**obj["status"], "conditions": renamed}}


_TO_HUB: dict[tuple[str, str], Convert] = {
    ("v1alpha1", "Workload"): _workload_from_alpha1,
    ("v1alpha2", "Workload"): _workload_from_alpha2,
    ("v1alpha2", "PodGroup"): _group_from_alpha2,
}
_FROM_HUB: dict[tuple[str, str], Convert] = {
    ("v1alpha1", "Workload"): _workload_to_alpha1,
    ("v1alpha2", "Workload"): _workload_to_alpha2,
    ("v1alpha2", "PodGroup"): _group_to_alpha2,
}
