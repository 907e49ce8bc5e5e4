"""Resizing the containers of a pod in place: what such a request may change, and what is wrong with it.

Source: upstream `pkg/registry/core/pod/strategy.go` (dropNonResizeUpdates), `pkg/apis/core/validation`
(ValidatePodResize), recordings.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import Object, Objects
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value
from muster.apiserver.registry.poddefaults import quality_of_service
from muster.apiserver.registry.podspec import validate_new_pod

RESIZABLE = ("cpu", "memory")
_FIELDS = ("containers", "initContainers")
_MIRROR = "kubernetes.io/config.mirror"
_OTHERS = "only cpu and memory resources are mutable"


def resized(new: Object, old: Object) -> Object:
    """The old pod with the resources that `new` asks for; everything else that it asks for is left out."""
    spec = dict(old["spec"])
    for field in _FIELDS:
        if field in spec or new["spec"].get(field):
            spec[field] = _with_resources(new["spec"].get(field) or [], spec.get(field) or [])
    whole = new["spec"].get("resources")
    if whole is not None:
        spec["resources"] = whole
    return {**old, "metadata": dict(old["metadata"]), "spec": spec}


def _with_resources(new: Objects, old: Objects) -> Objects:
    known = {container["name"]: container for container in old}
    found: Objects = []
    for container in new:
        before = known.get(container.get("name", ""))
        if before is None:
            found.append(container)
            continue
        merged = {**before, "resources": container.get("resources") or {}}
        if "resizePolicy" in container:
            merged["resizePolicy"] = container["resizePolicy"]
        else:
            merged.pop("resizePolicy", None)
        found.append(merged)
    return found


def validate_resize(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a resized pod."""
    errors = validate_new_pod(new)
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        return [*errors, forbidden_field("", "static pods cannot be resized")]
    if ((old["spec"].get("os") or {}).get("name")) == "windows":
        return [*errors, forbidden_field("", "windows pods cannot be resized")]
    before = (old.get("status") or {}).get("qosClass") or quality_of_service(old["spec"])
    if before != quality_of_service(new["spec"]):
        why = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid_value("spec", before, why))
    for field, what in zip(_FIELDS, ("containers", "initContainers"), strict=True):
        if _names(new, field) != _names(old, field):
            why = f"{what} may not be added or removed on resize"
            if sorted(_names(new, field)) == sorted(_names(old, field)):
                why = f"{what} may not be renamed or reordered on resize"
            return [*errors, forbidden_field(f"spec.{field}", why)]
    errors += _removals(new["spec"], old["spec"])
    if any(changes_other_resources(new, old)):
        errors.append(forbidden_field("spec", _OTHERS))
    return errors


def _names(pod: Object, field: str) -> list[str]:
    return [container.get("name", "") for container in pod["spec"].get(field) or ()]


def _pairs(new: Object, old: Object, field: str) -> Iterator[tuple[Object, Object]]:
    return zip(new.get(field) or (), old.get(field) or (), strict=True)


def _removals(new: Object, old: Object) -> list[FieldError]:
    """Requests and limits of what can be resized may not be taken away."""
    errors: list[FieldError] = []
    for field in reversed(_FIELDS):
        for index, (container, before) in enumerate(_pairs(new, old, field)):
            for kind in ("requests", "limits"):
                given = (container.get("resources") or {}).get(kind) or {}
                kept = (before.get("resources") or {}).get(kind) or {}
                if any(name in kept and name not in given for name in RESIZABLE):
                    why = f"resource {kind} cannot be removed"
                    errors.append(forbidden_field(f"spec.{field}[{index}].resources.{kind}", why))
    return errors


def changes_other_resources(new: Object, old: Object) -> Iterator[bool]:
    """For each container, whether more than its cpu and memory changes. The containers are the same."""
    for field in _FIELDS:
        for container, before in _pairs(new["spec"], old["spec"], field):
            yield _fixed_part(container) != _fixed_part(before)
            if field == "initContainers" and container != before:
                yield before.get("restartPolicy") != "Always"


def _fixed_part(container: Object) -> Object:
    resources = container.get("resources") or {}
    kept = {
        kind: {name: value for name, value in (resources.get(kind) or {}).items() if name not in RESIZABLE}
        for kind in ("requests", "limits")
    }
    others = {name: value for name, value in resources.items() if name not in kept}
    return {**container, "resources": {**others, **{kind: names for kind, names in kept.items() if names}}}


def is_only_a_resize(new: Object, old: Object) -> bool:
    """Whether two states of a pod differ in cpu and memory of containers, and in nothing else of the spec."""
    if any(_names(new, field) != _names(old, field) for field in _FIELDS):
        return False
    rest = (new["spec"].keys() | old["spec"].keys()) - set(_FIELDS)
    if any(new["spec"].get(field) != old["spec"].get(field) for field in rest):
        return False
    return new["spec"] != old["spec"] and not any(changes_other_resources(new, old))
