"""Validation of the environment variables of containers.

Source: upstream `pkg/apis/core/validation` (ValidateEnv, ValidateEnvFrom).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import (
    FieldError,
    config_key_problems,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
)

Errors: TypeAlias = list[FieldError]

_NAME = re.compile(r"[ -<>-~]+")
_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
"""The fields of its pod that a variable may show."""
_LABELS = {
    *_FIELDS,
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
}
"""All fields that have a name in the downward API."""
_SUBSCRIPT = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]")
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def validate_environment(container: Object, at: str) -> Errors:
    """Single variables, then whole sources of them."""
    return _validate_variables(container.get("env") or (), f"{at}.env") + _validate_sources(
        container.get("envFrom") or (), f"{at}.envFrom"
    )


def _name_problems(name: str, at: str) -> Errors:
    return [] if _NAME.fullmatch(name) else [invalid_value(at, name, _NAME_TEXT)]


def _validate_variables(variables: Iterable[Object], at: str) -> Errors:
    errors: Errors = []
    for index, variable in enumerate(variables):
        here, name = f"{at}[{index}]", variable.get("name") or ""
        errors += _name_problems(name, f"{here}.name") if name else [required(f"{here}.name")]
        source = variable.get("valueFrom")
        if source is not None:
            errors += _validate_value_from(source, f"{here}.valueFrom", has_value=bool(variable.get("value")))
    return errors


def _validate_value_from(source: Object, at: str, *, has_value: bool) -> Errors:
    errors: Errors = []
    given = [name for name in _SOURCES if source.get(name) is not None]
    for name in given:
        errors += _validate_reference(source[name], f"{at}.{name}", name)
    if not given:
        listed = ", ".join(f"`{name}`" for name in _SOURCES[:-1])
        errors.append(invalid_value(at, "", f"must specify one of: {listed} or `{_SOURCES[-1]}`"))
    elif has_value:
        errors.append(invalid_value(at, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(invalid_value(at, "", "may not have more than one field specified at a time"))
    return errors


def _validate_reference(reference: Object, at: str, kind: str) -> Errors:
    match kind:
        case "fieldRef":
            return validate_field_reference(reference, at)
        case "resourceFieldRef":
            return validate_resource_reference(reference, at)
        case "configMapKeyRef" | "secretKeyRef":
            name, key = reference.get("name") or "", reference.get("key") or ""
            errors = [invalid_value(f"{at}.name", name, problem) for problem in subdomain_problems(name)]
            if not key:
                return [*errors, required(f"{at}.key")]
            return errors + [invalid_value(f"{at}.key", key, problem) for problem in config_key_problems(key)]
    return [required(f"{at}.{field}") for field in ("key", "volumeName", "path") if not reference.get(field)]


def validate_field_reference(reference: Object, at: str) -> Errors:
    """A field of the pod."""
    path = reference.get("fieldPath") or ""
    if not path:
        return [required(f"{at}.fieldPath")]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        key = subscript[2].lower() if subscript[1].endswith("annotations") else subscript[2]
        return [invalid_value(at, subscript[2], problem) for problem in qualified_name_problems(key)]
    if path not in _LABELS:
        why = f"error converting fieldPath: field label not supported: {path}"
        return [invalid_value(f"{at}.fieldPath", path, why)]
    return [] if path in _FIELDS else [not_supported(f"{at}.fieldPath", path, _FIELDS)]


def validate_resource_reference(reference: Object, at: str) -> Errors:
    """A resource of a container."""
    resource = reference.get("resource") or ""
    if not resource:
        return [required(f"{at}.resource")]
    if resource in _RESOURCES or resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        return []
    return [not_supported(f"{at}.resource", resource, _RESOURCES)]


def _validate_sources(sources: Iterable[Object], at: str) -> Errors:
    """Upstream's paths of errors about the source as a whole have no index."""
    errors: Errors = []
    for index, source in enumerate(sources):
        here, prefix = f"{at}[{index}]", source.get("prefix") or ""
        if prefix:
            errors += _name_problems(prefix, f"{here}.prefix")
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in given:
            named = source[name].get("name") or ""
            problems = subdomain_problems(named)
            spot = f"{here}.{name}.name"
            errors += [invalid_value(spot, named, text) for text in problems] if named else [required(spot)]
        if not given:
            errors.append(invalid_value(at, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(invalid_value(at, "", "may not have more than one field specified at a time"))
    return errors
