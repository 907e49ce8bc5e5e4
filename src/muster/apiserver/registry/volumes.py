"""Validation of a pod's volumes. Source: upstream `pkg/apis/core/validation` (validateVolumes)."""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    required,
)

Errors: TypeAlias = list[FieldError]

_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flexVolume",
    "flocker",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "storageos",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "projected",
    "csi",
    "ephemeral",
    "image",
)
_SIZE_TEXT = "SizeLimit field must be a valid resource quantity"
_SPELLED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""How upstream spells some sources in errors."""
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def validate_volumes(spec: Object, field: str, valid: set[str]) -> Errors:
    """Names are unique labels; each volume has exactly one source. The names of the valid ones go to `valid`."""
    errors: Errors = []
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        at = f"{field}.volumes[{index}]"
        found = _validate_source(volume, at)
        name = volume.get("name") or ""
        if not name:
            found.append(required(f"{at}.name"))
        elif name in names:
            found.append(duplicate(f"{at}.name", name))
        else:
            found += [invalid_value(f"{at}.name", name, text) for text in label_problems(name, "characters")]
        if not found:
            valid.add(name)
        names.add(name)
        errors += found
    return errors


def _validate_source(volume: Object, at: str) -> Errors:
    errors: Errors = []
    found = [source for source in _SOURCES if volume.get(source) is not None]
    if not found:
        return [required(at, "must specify a volume type")]
    why = "may not specify more than 1 volume type"
    errors += [forbidden_field(f"{at}.{_SPELLED.get(extra, extra)}", why) for extra in found[1:]]
    source = volume[found[0]]
    match found[0]:
        case "image":
            if not source.get("reference"):
                errors.append(required(f"{at}.image.reference"))
            policy = source.get("pullPolicy")
            if policy and policy not in _PULL_POLICIES:
                errors.append(not_supported(f"{at}.image.pullPolicy", policy, _PULL_POLICIES))
        case "emptyDir":
            limit = source.get("sizeLimit")
            if limit is not None and str(limit).startswith("-"):
                errors.append(forbidden_field(f"{at}.emptyDir.sizeLimit", _SIZE_TEXT))
        case "hostPath":
            if not source.get("path"):
                errors.append(required(f"{at}.hostPath.path"))
        case "secret":
            if not source.get("secretName"):
                errors.append(required(f"{at}.secret.secretName"))
        case "configMap":
            if not source.get("name"):
                errors.append(required(f"{at}.configMap.name"))
        case "persistentVolumeClaim":
            if not source.get("claimName"):
                errors.append(required(f"{at}.persistentVolumeClaim.claimName"))
    return errors
