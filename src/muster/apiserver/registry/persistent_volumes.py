"""PersistentVolumes: defaults, validation, what may not change; a finalizer holds those that are bound.

Sources: upstream `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation` (ValidatePersistentVolumeSpec,
ValidatePersistentVolumeUpdate), `pkg/registry/core/persistentvolume/strategy.go`, and the admission plugin
StorageObjectInUseProtection.
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import JSON, Object
from muster.api.quantity import parse_quantity
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, not_supported, required
from muster.apiserver.registry.claims import VOLUME_MODES, validate_access_modes, validate_class_name
from muster.apiserver.registry.devices import validate_driver
from muster.apiserver.registry.godiff import go_diff
from muster.apiserver.registry.placement import validate_node_terms
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

PROTECTION = "kubernetes.io/pv-protection"
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
SOURCES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
"""Where the data may be, in the order of upstream's checks."""
HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_SPELLED = {"cephfs": "cephFS"}
_NEEDED = {
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "local": ("path",),
    "flexVolume": ("driver",),
    "csi": ("volumeHandle",),
}
"""The fields that a source cannot do without."""
_FIXED = "spec.persistentvolumesource"


class VolumeStrategy(Strategy):
    """v1 PersistentVolume."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        for key, value in (("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem")):
            if spec.get(key) is None:
                spec[key] = value
        if not spec["persistentVolumeReclaimPolicy"]:
            spec["persistentVolumeReclaimPolicy"] = "Retain"
        if spec.get("hostPath") is not None:
            spec["hostPath"].setdefault("type", "")
        claim = spec.get("claimRef")
        if claim is not None:
            spec["claimRef"] = {name: value for name, value in claim.items() if value != ""}

    def admit_create(self, obj: Object, ctx: Context) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": ctx.timestamp}

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        status, before = new.get("status") or {}, old.get("status") or {}
        if status.get("phase") != before.get("phase"):
            new["status"] = {**status, "lastPhaseTransitionTime": ctx.timestamp}

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj["spec"]
        errors = [] if spec.get("accessModes") else [required("spec.accessModes")]
        errors += validate_access_modes(spec.get("accessModes") or [], "spec.accessModes")
        errors += _validate_capacity(spec.get("capacity"), "spec.capacity")
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy and policy not in RECLAIM_POLICIES:
            errors.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES))
        errors += _validate_affinity(spec.get("nodeAffinity"), "spec.nodeAffinity")
        errors += _validate_sources(spec, "spec")
        errors += validate_class_name(spec.get("storageClassName"), "spec.storageClassName")
        mode = spec.get("volumeMode")
        if mode not in VOLUME_MODES:
            errors.append(not_supported("spec.volumeMode", mode, VOLUME_MODES))
        return errors + _validate_attributes(spec, "spec")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        # Upstream looks at the new volume twice.
        errors = self.validate(new, ctx) * 2
        source, before = _sources_of(new["spec"]), _sources_of(old["spec"])
        if source != before:
            why = f"{_FIXED} is immutable after creation\n{go_diff(before, source)}"
            errors.append(forbidden_field(_FIXED, why))
        mode = new["spec"].get("volumeMode")
        if mode != old["spec"].get("volumeMode"):
            errors.append(invalid_value("volumeMode", mode, "field is immutable"))
        return errors


def _sources_of(spec: Object) -> Object:
    return {name: spec[name] for name in SOURCES if spec.get(name) is not None}


def _validate_capacity(capacity: Object | None, at: str) -> Errors:
    """How much storage there is, and nothing else."""
    errors = [] if capacity else [required(at)]
    if set(capacity or ()) != {"storage"}:
        errors.append(not_supported(at, capacity, ("storage",)))
    for name, amount in sorted((capacity or {}).items()):
        size = parse_quantity(amount)
        if size.nano < 0:
            whole = -(-size.nano // 10**9)
            errors.append(invalid_value(f"{at}[{name}]", whole, "must be a valid resource quantity"))
        if size.nano <= 0:
            errors.append(invalid_value(f"{at}[{name}]", str(size), "must be greater than zero"))
    return errors


def _validate_affinity(affinity: JSON, at: str) -> Errors:
    """Which nodes can reach the volume."""
    if affinity is None:
        return []
    if affinity.get("required") is None:
        return [required(f"{at}.required", "must specify required node constraints")]
    return validate_node_terms(affinity["required"], f"{at}.required")


def _validate_sources(spec: Object, at: str) -> Errors:
    """There is exactly one place that the data is in."""
    found = [name for name in SOURCES if spec.get(name) is not None]
    if not found:
        return [required(at, "must specify a volume type")]
    errors: Errors = []
    for index, name in enumerate(found):
        here = f"{at}.{_SPELLED.get(name, name)}"
        # Upstream forgets to say so of flexVolume.
        if index and name != "flexVolume":
            errors.append(forbidden_field(here, "may not specify more than 1 volume type"))
        else:
            errors += _validate_source(name, spec[name], here)
            if name == "local" and spec.get("nodeAffinity") is None:
                errors.append(required(f"{at}.nodeAffinity", "Local volume requires node affinity"))
    return errors


def _validate_source(name: str, source: Object, at: str) -> Errors:
    errors = validate_driver(source.get("driver") or "", f"{at}.driver") if name == "csi" else []
    errors += [required(f"{at}.{field}") for field in _NEEDED.get(name, ()) if not source.get(field)]
    path = source.get("path") or ""
    if name in ("hostPath", "local") and ".." in path.split("/"):
        errors.append(invalid_value(f"{at}.path", path, "must not contain '..'"))
    kind = source.get("type") or ""
    if name == "hostPath" and kind not in HOST_PATH_TYPES:
        errors.append(not_supported(f"{at}.type", kind, HOST_PATH_TYPES))
    if name == "nfs" and path and not path.startswith("/"):
        errors.append(invalid_value(f"{at}.path", path, "must be an absolute path"))
    return errors


def _validate_attributes(spec: Object, at: str) -> Errors:
    name, here = spec.get("volumeAttributesClassName"), f"{at}.volumeAttributesClassName"
    if name is None:
        return []
    errors = validate_class_name(name, here) if name else [required(here, "an empty string is disallowed")]
    if spec.get("csi") is None:
        errors.append(required(f"{at}.csi", "has to be specified when using volumeAttributesClassName"))
    return errors
