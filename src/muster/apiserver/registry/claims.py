"""PersistentVolumeClaims, and the templates of claims: defaults, data sources, validation, what may change.

Sources: upstream `pkg/apis/core/validation` (ValidatePersistentVolumeClaimSpec, ValidatePersistentVolumeClaimUpdate),
`pkg/api/persistentvolumeclaim/util.go`, and the admission plugins StorageObjectInUseProtection and
DefaultStorageClass.
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import JSON, Object
from muster.api.quantity import Quantity, parse_quantity
from muster.api.storage import CLASS_ANNOTATION
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    required,
    subdomain_problems,
)
from muster.apiserver.registry.godiff import go_diff
from muster.apiserver.registry.placement import shown_selector, validate_label_selector
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
PROTECTION = "kubernetes.io/pvc-protection"
DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_SNAPSHOT = ("snapshot.storage.k8s.io", "VolumeSnapshot")
_CLAIM = ("", "PersistentVolumeClaim")
_SMALLER = "field can not be less than status.capacity"
_IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class ClaimStrategy(Strategy):
    """PersistentVolumeClaims: pending at first, and held by a finalizer while pods use them."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        default_claim_spec(obj.setdefault("spec", {}))

    def admit_create(self, obj: Object, ctx: Context) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if obj["spec"].get("storageClassName") is None and not annotated:
            default = _default_class(ctx)
            if default:
                obj["spec"]["storageClassName"] = default

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {"phase": "Pending"}
        _normalize_sources(obj["spec"], {})

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        _normalize_sources(new["spec"], old.get("spec") or {})

    def validate(self, obj: Object, ctx: Context) -> Errors:
        return validate_claim_spec(obj["spec"], "spec")

    def review_create(self, obj: Object, ctx: Context) -> None:
        warn_of_size(obj["spec"], "spec", ctx)

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        warn_of_size(new["spec"], "spec", ctx)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        return self.validate(new, ctx) + _validate_change(new, old)


def _default_class(ctx: Context) -> str:
    """The class of claims that name none: the newest of those so marked."""
    marked = [
        each
        for each in ctx.store.list("/storageclasses/").items
        if any((each["metadata"].get("annotations") or {}).get(key) == "true" for key in DEFAULT_CLASS)
    ]
    newest = max((each["metadata"]["creationTimestamp"] for each in marked), default="")
    names = [each["metadata"]["name"] for each in marked if each["metadata"]["creationTimestamp"] == newest]
    return min(names, default="")


def default_claim_spec(spec: Object) -> None:
    """Fill in how the volume is used."""
    if spec.get("volumeName") == "":
        del spec["volumeName"]
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


def default_claim_template(template: Object) -> None:
    """Complete a template for claims in a StatefulSet; texts of its metadata that are empty are none."""
    template["apiVersion"], template["kind"] = "v1", "PersistentVolumeClaim"
    default_claim_spec(template.setdefault("spec", {}))
    status: Object = template.setdefault("status", {})
    status["phase"] = status.get("phase") or "Pending"
    if status.get("modifyVolumeStatus") is not None:
        status["modifyVolumeStatus"].setdefault("status", "")
    metadata = template.get("metadata")
    if metadata:
        template["metadata"] = {name: value for name, value in metadata.items() if value != ""}


def validate_claim_templates(spec: Object, at: str) -> Errors:
    """The templates for claims in a StatefulSet; their names are checked as those of volumes."""
    templates = enumerate(spec.get("volumeClaimTemplates") or ())
    return [
        error
        for index, template in templates
        for error in validate_claim_spec(template["spec"], f"{at}.volumeClaimTemplates[{index}].spec")
    ]


def warn_of_size(spec: Object, at: str, ctx: Context) -> None:
    """Storage comes in whole bytes. Source: `GetWarningsForPersistentVolumeClaimSpec`."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    size = requests.get("storage")
    if size is not None and parse_quantity(size).nano % 10**9:
        why = f'fractional byte value "{size}" is invalid, must be an integer'
        ctx.warn(f"{at}.resources.requests[storage]: {why}")


def _normalize_sources(spec: Object, before: Object) -> None:
    """Keep `dataSource` and `dataSourceRef` alike; sources of kinds without a meaning are dropped.

    References to other namespaces are a feature that is off.
    """
    had_source = before.get("dataSource") is not None or before.get("dataSourceRef") is not None
    if not had_source and _kind_of(spec.get("dataSource")) not in (_CLAIM, _SNAPSHOT):
        spec.pop("dataSource", None)
    if (spec.get("dataSourceRef") or {}).get("namespace") and not (before.get("dataSourceRef") or {}).get("namespace"):
        spec.pop("dataSourceRef")
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {name: value for name, value in reference.items() if name != "namespace"}


def _kind_of(source: JSON) -> tuple[str, str]:
    return ((source or {}).get("apiGroup") or "", (source or {}).get("kind") or "")


def validate_claim_spec(spec: Object, at: str) -> Errors:
    """The spec of a claim, or of a template for claims."""
    errors = [] if spec.get("accessModes") else [_modes_required(at)]
    errors += validate_label_selector(spec.get("selector"), f"{at}.selector")
    errors += validate_access_modes(spec.get("accessModes") or [], f"{at}.accessModes")
    errors += _validate_size((spec.get("resources") or {}).get("requests") or {}, f"{at}.resources[storage]")
    errors += validate_class_name(spec.get("storageClassName"), f"{at}.storageClassName")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported(f"{at}.volumeMode", mode, VOLUME_MODES))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    errors += _validate_source(source, f"{at}.dataSource") + _validate_source(reference, f"{at}.dataSourceRef")
    if source is not None and reference is not None and _differ(source, reference):
        errors.append(invalid_value(at, f"{at}.dataSource", "must match dataSourceRef"))
    return errors + validate_class_name(spec.get("volumeAttributesClassName"), f"{at}.volumeAttributesClassName")


def _differ(source: Object, reference: Object) -> bool:
    """Whether two references of one namespace name different objects."""
    names = ("apiGroup", "kind", "name")
    return not reference.get("namespace") and any(source.get(name) != reference.get(name) for name in names)


def _modes_required(at: str) -> FieldError:
    return required(f"{at}.accessModes", "at least 1 access mode is required")


def validate_access_modes(modes: list[str], at: str) -> Errors:
    """Known modes; the one that is for a single pod stands alone."""
    errors = [not_supported(at, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.append(forbidden_field(at, "may not use ReadWriteOncePod with other access modes"))
    return errors


def _validate_size(requests: Object, at: str) -> Errors:
    if "storage" not in requests:
        return [required(at)]
    size = parse_quantity(requests["storage"])
    return [] if size.nano > 0 else [invalid_value(at, str(size), "must be greater than zero")]


def validate_class_name(name: JSON, at: str) -> Errors:
    """The name of a class, if there is any."""
    return [invalid_value(at, name, problem) for problem in subdomain_problems(name)] if name else []


def _validate_source(source: JSON, at: str) -> Errors:
    """Where the first content of a volume comes from."""
    if source is None:
        return []
    group, kind = _kind_of(source)
    errors = [required(f"{at}.{name}") for name in ("name", "kind") if not source.get(name)]
    if not group and kind != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(at, kind, why))
    if group:
        errors += [invalid_value(f"{at}.apiGroup", group, problem) for problem in subdomain_problems(group)]
    namespace = source.get("namespace")
    if namespace:
        problems = label_problems(namespace, "characters")
        errors += [invalid_value(f"{at}.namespace", namespace, problem) for problem in problems]
    return errors


def _validate_change(new: Object, old: Object) -> Errors:
    """A claim is bound once; after that it may only grow and have another attributes class."""
    spec, before = new["spec"], old["spec"]
    allowed = dict(spec)
    if not before.get("volumeName"):
        before = {**before, "volumeName": spec.get("volumeName")}
    if _takes_class_of_annotation(new, old) or (before.get("storageClassName") is None and _has_class(new, old)):
        allowed["storageClassName"] = before.get("storageClassName")
    if (new.get("status") or {}).get("phase") == "Bound":
        allowed = _with_old_amounts(allowed, before)
    errors: Errors = []
    shown, shown_before = _shown_spec(allowed), _shown_spec(before)
    if shown != shown_before:
        errors.append(forbidden_field("spec", f"{_IMMUTABLE}\n{go_diff(shown_before, shown)}"))
    size, old_size, capacity = _storage_of(spec), _storage_of(before), _capacity_of(old)
    if size.nano < old_size.nano and size.nano <= capacity.nano:
        errors.append(forbidden_field("spec.resources.requests.storage", _SMALLER))
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.append(invalid_value("volumeMode", spec.get("volumeMode"), "field is immutable"))
    return errors + _validate_attributes(spec.get("volumeAttributesClassName"), before.get("volumeAttributesClassName"))


def _annotated(obj: Object) -> str:
    """The class by the old annotation."""
    name: str = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION) or ""
    return name


def _takes_class_of_annotation(new: Object, old: Object) -> bool:
    """Whether a claim states as a field what its annotation said."""
    annotated, name = _annotated(old), new["spec"].get("storageClassName")
    return bool(annotated) and old["spec"].get("storageClassName") is None and name == annotated


def _has_class(new: Object, old: Object) -> bool:
    """Whether a claim without any class gets one, as a default class that comes later gives it."""
    return not _annotated(old) and not _annotated(new) and new["spec"].get("storageClassName") is not None


def _with_old_amounts(spec: Object, before: Object) -> Object:
    """The spec of a bound claim with the size and attributes class of before."""
    resources, result = spec.get("resources") or {}, dict(spec)
    size = ((before.get("resources") or {}).get("requests") or {}).get("storage")
    if resources.get("requests") and size is not None:
        result["resources"] = {**resources, "requests": {**resources["requests"], "storage": size}}
    if result.get("volumeAttributesClassName") is not None:
        result["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    return result


def _validate_attributes(name: JSON, before: JSON) -> Errors:
    at = "spec.volumeAttributesClassName"
    if not before or name:
        return []
    what = "nil" if name is None else "an empty string"
    return [forbidden_field(at, f"update from non-nil value to {what} is forbidden")]


def _storage_of(spec: Object) -> Quantity:
    return parse_quantity(((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0")


def _capacity_of(claim: Object) -> Quantity:
    return parse_quantity(((claim.get("status") or {}).get("capacity") or {}).get("storage") or "0")


def _shown_spec(spec: Object) -> Object:
    """The spec in the fields of Go's type."""
    resources = spec.get("resources") or {}
    reference = _shown_source(spec.get("dataSourceRef"))
    if reference is not None:
        reference["Namespace"] = spec["dataSourceRef"].get("namespace")
    return {
        "AccessModes": spec.get("accessModes"),
        "Selector": shown_selector(spec.get("selector")),
        "Resources": {"Limits": _sorted(resources.get("limits")), "Requests": _sorted(resources.get("requests"))},
        "VolumeName": spec.get("volumeName") or "",
        "StorageClassName": spec.get("storageClassName"),
        "VolumeMode": spec.get("volumeMode"),
        "DataSource": _shown_source(spec.get("dataSource")),
        "DataSourceRef": reference,
        "VolumeAttributesClassName": spec.get("volumeAttributesClassName"),
    }


def _sorted(amounts: Object | None) -> Object | None:
    return dict(sorted(amounts.items())) if amounts else amounts


def _shown_source(source: JSON) -> Object | None:
    if source is None:
        return None
    return {"APIGroup": source.get("apiGroup"), "Kind": source.get("kind") or "", "Name": source.get("name") or ""}
