"""Namespaces, nodes, events and other kinds of the core group with few rules of their own."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import (
    FieldError,
    config_key_problems,
    forbidden_field,
    invalid_value,
    label_problems,
    qualified_name_problems,
    required,
    too_long,
)
from muster.apiserver.metadata import own_finalizer_problems
from muster.apiserver.registry.strategy import Strategy

MOST_DATA_BYTES = 1024 * 1024
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


class NamespaceStrategy(Strategy):
    """Deletion waits until `spec.finalizers` is empty (the namespace controller's part)."""

    has_status = True
    returns_deleted = True
    selectable_names = frozenset(("status.phase", "name"))

    def name_problems(self, name: str) -> list[str]:
        return label_problems(name)

    def default(self, obj: Object, ctx: Context) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAMESPACE_NAME_LABEL: name}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        for name in (obj.get("spec") or {}).get("finalizers") or ():
            errors += [invalid_value("spec.finalizers", name, problem) for problem in qualified_name_problems(name)]
            errors += [invalid_value("spec.finalizers", name, problem) for problem in own_finalizer_problems(name)]
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return []

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        spec = dict(obj.get("spec") or {})
        finalizers = spec.get("finalizers") or []
        spec["finalizers"] = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]
        obj["spec"] = spec
        obj["status"] = {"phase": "Active"}
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAMESPACE_NAME_LABEL: name}

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        spec = dict(new.get("spec") or {})
        spec["finalizers"] = (old.get("spec") or {}).get("finalizers") or []
        if not spec["finalizers"]:
            del spec["finalizers"]
        new["spec"] = spec

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase", ""), "name": obj["metadata"]["name"]}

    def admit_delete(self, obj: Object, ctx: Context) -> None:
        name = obj["metadata"]["name"]
        if name in IMMORTAL_NAMESPACES:
            raise forbidden(Qualified("", "namespaces"), name, "this namespace may not be deleted")

    def mark_deleted(self, obj: Object, ctx: Context) -> None:
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def holds_deletion(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


class LeaseStrategy(Strategy):
    """Leases may be created by an update."""

    creates_on_update = True
    needs_version_on_update = True
    knows_finalizers = False
    revalidates_metadata = False

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        for field in ("leaseDurationSeconds", "leaseTransitions"):
            value, least = spec.get(field), 1 if field == "leaseDurationSeconds" else 0
            if value is not None and value < least:
                why = "must be greater than 0" if least else "must be greater than or equal to 0"
                errors.append(invalid_value(f"spec.{field}", value, why))
        return errors


class SecretStrategy(Strategy):
    """Secrets: texts in `stringData` are stored as data."""

    selectable_names = frozenset(("type",))

    def default(self, obj: Object, ctx: Context) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        texts = obj.pop("stringData", None)
        if texts:
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = validate_frozen(new, old)
        if new["type"] != old.get("type"):
            errors.append(invalid_value("type", new["type"], "field is immutable"))
        return errors + self.validate(new, ctx)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        """Some types need certain keys. Source: upstream ValidateSecret."""
        data = obj.get("data") or {}
        errors = _validate_keys(obj, "data")
        if sum(len(text) * 3 // 4 for text in data.values()) > MOST_DATA_BYTES:
            errors.append(too_long("data", MOST_DATA_BYTES))
        match obj.get("type"):
            case "kubernetes.io/tls":
                errors += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
            case "kubernetes.io/basic-auth" if not {"username", "password"} & data.keys():
                errors += [required(f"data[{key}]") for key in ("username", "password")]
            case "kubernetes.io/ssh-auth" if not data.get("ssh-privatekey"):
                errors.append(required("data[ssh-privatekey]"))
            case "kubernetes.io/dockerconfigjson" if ".dockerconfigjson" not in data:
                errors.append(required("data[.dockerconfigjson]"))
            case "kubernetes.io/dockercfg" if ".dockercfg" not in data:
                errors.append(required("data[.dockercfg]"))
        return errors

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"type": obj.get("type", "")}


class ConfigMapStrategy(Strategy):
    """ConfigMaps may be made immutable."""

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors = _validate_keys(obj, "data") + _validate_keys(obj, "binaryData")
        both = sorted((obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys())
        why = "duplicate of key present in binaryData"
        errors += [invalid_value(f"data[{key}]", key, why) for key in both]
        size = sum(len(text.encode()) for field in ("data", "binaryData") for text in (obj.get(field) or {}).values())
        return errors + ([too_long("", MOST_DATA_BYTES)] if size > MOST_DATA_BYTES else [])

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return validate_frozen(new, old) + self.validate(new, ctx)


def _validate_keys(obj: Object, field: str) -> list[FieldError]:
    """Keys of data may be names of files."""
    return [
        invalid_value(f"{field}[{key}]", key, problem)
        for key in sorted(obj.get(field) or {})
        for problem in config_key_problems(key)
    ]


def validate_frozen(new: Object, old: Object) -> list[FieldError]:
    """What is `immutable` stays so, and its data too."""
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    errors = [] if new.get("immutable") else [forbidden_field("immutable", why)]
    changed = [field for field in ("data", "binaryData") if (new.get(field) or {}) != (old.get(field) or {})]
    return errors + [forbidden_field(field, why) for field in changed]


class ReturnsDeletedStrategy(Strategy):
    """A stored kind whose DELETE answers with the object."""

    returns_deleted = True


class StatusStrategy(Strategy):
    """A stored kind with a status sub-resource."""

    has_status = True
