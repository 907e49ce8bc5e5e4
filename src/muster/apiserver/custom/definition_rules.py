"""What makes a CustomResourceDefinition valid, schemas apart.

Source of rules and texts: apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.api.codec import JSON, Object, Objects
from muster.api.jsonpath import PathError, parse_path
from muster.apiserver.custom.definition import APPROVAL, is_established, needs_approval, versions
from muster.apiserver.custom.schema_rules import validate_schema
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    subdomain_problems,
)

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MOST_SELECTABLE = 8
_KEPT_WORDS = """
description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems
minItems uniqueItems multipleOf required items properties externalDocs example x-kubernetes-preserve-unknown-fields
x-kubernetes-validations
"""
_KEPT_AT_ROOT = frozenset(_KEPT_WORDS.split())


def label_problems(text: str) -> list[str]:
    """What is wrong with an RFC 1035 label."""
    problems = ["must be no more than 63 bytes"] if len(text) > 63 else []
    return problems if _LABEL.fullmatch(text) else [*problems, LABEL_TEXT]


def validate_definition(crd: Object, old: Object | None = None) -> list[FieldError]:
    """What is wrong with a definition, and with the change if there is an old one."""
    spec = crd.get("spec") or {}
    errors = [*_name(crd), *_spec(spec), *_versions(spec), *_names(spec), *_conversion(spec)]
    if old is not None:
        errors += _immutable(spec, old)
    return [*errors, *_stored_versions(crd), *_approval(crd, old), *_preserves(spec)]


def _name(crd: Object) -> Iterator[FieldError]:
    spec = crd.get("spec") or {}
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    name = crd["metadata"].get("name") or ""
    if name != wanted:
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec(spec: Object) -> Iterator[FieldError]:
    group = spec.get("group") or ""
    if not group:
        yield required("spec.group")
    elif problems := subdomain_problems(group):
        yield invalid_value("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _versions(spec: Object) -> Iterator[FieldError]:
    found = spec.get("versions") or []
    shared = _shared(found)
    for index, version in enumerate(found):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(found):
        yield from _version(version, f"spec.versions[{index}]", {} if index else shared, shared)
    names = [version.get("name") for version in found]
    if len(set(names)) < len(names):
        yield invalid_value("spec.versions", found, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in found) != 1:
        yield invalid_value("spec.versions", found, "must have exactly one version marked as storage version")


_TOP = {
    "schema": "spec.validation",
    "subresources": "spec.subresources",
    "additionalPrinterColumns": "spec.additionalPrinterColumns",
}
"""Where upstream's internal form has what all versions share."""


def _shared(versions: Objects) -> dict[str, str]:
    """The parts that all versions have alike, with their path in errors: upstream keeps them above the versions."""
    return {
        part: path
        for part, path in _TOP.items()
        if versions and versions[0].get(part) and all(each.get(part) == versions[0][part] for each in versions)
    }


def _version(version: Object, field: str, shown: dict[str, str], shared: dict[str, str]) -> Iterator[FieldError]:
    """One version; of the parts that all share only those of `shown` are looked at."""
    version = {key: value for key, value in version.items() if key not in shared or key in shown}
    name = version.get("name") or ""
    if problems := label_problems(name):
        yield invalid_value(f"{field}.name", name, ",".join(problems))
    warning = version.get("deprecationWarning")
    if warning is not None and not version.get("deprecated"):
        yield invalid_value(f"{field}.deprecationWarning", warning, "can only be set for deprecated versions")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    here = f"{shown.get('schema', f'{field}.schema')}.openAPIV3Schema"
    subresources = version.get("subresources") or {}
    if schema:
        if subresources.get("status") is not None:
            yield from _root(schema, here)
        yield from validate_schema(schema, here)
    yield from _scale(subresources.get("scale"), f"{shown.get('subresources', f'{field}.subresources')}.scale")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = shown.get("additionalPrinterColumns", f"{field}.additionalPrinterColumns")
        yield from _column(column, f"{at}[{index}]")
    yield from _selectable(version.get("selectableFields") or [], f"{field}.selectableFields")


def _root(schema: Object, field: str) -> Iterator[FieldError]:
    """With a status sub-resource only what keeps its meaning for the status alone may stand at the root."""
    if schema.get("type") and schema["type"] != "object":
        why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield invalid_value(f"{field}.type", schema["type"], why)
    elif any(value and key not in _KEPT_AT_ROOT for key, value in schema.items()):
        listed = " ".join(sorted(_KEPT_AT_ROOT))
        why = f"only [{listed}] fields are allowed at the root of the schema if the status subresource is enabled"
        yield invalid_value(field, schema, why)


def _scale(scale: JSON, field: str) -> Iterator[FieldError]:
    if scale is None:
        return
    places = {"specReplicasPath": ".spec.", "statusReplicasPath": ".status."}
    for name, start in places.items():
        path = scale.get(name) or ""
        if not path:
            yield required(f"{field}.{name}")
        elif not _is_simple(path):
            yield invalid_value(f"{field}.{name}", path, "should be a simple json path without array notation")
        elif not path.startswith(start):
            yield invalid_value(f"{field}.{name}", path, f"should be a json path under {start.rstrip('.')}")
    path = scale.get("labelSelectorPath")
    if path and not path.startswith((".status.", ".spec.")):
        why = "should be a json path under either .status or .spec"
        yield invalid_value(f"{field}.labelSelectorPath", path, why)


def _is_simple(path: str) -> bool:
    try:
        return parse_path(path).names is not None
    except PathError:
        return False


def _column(column: Object, field: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{field}.name")
    kinds = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        yield required(f"{field}.type", kinds)
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid_value(f"{field}.type", column["type"], kinds)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid_value(f"{field}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    path = column.get("jsonPath") or ""
    if not path:
        yield required(f"{field}.JSONPath")
        return
    try:
        parse_path(path)
    except PathError as error:
        yield invalid_value(f"{field}.JSONPath", path, f"is an invalid path: {error}")


def _selectable(entries: list[Object], field: str) -> Iterator[FieldError]:
    if len(entries) > _MOST_SELECTABLE:
        body = f"Too many: {len(entries)}: must have at most {_MOST_SELECTABLE} items"
        yield FieldError("FieldValueTooMany", field, body)
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        here, path = f"{field}[{index}].jsonPath", entry.get("jsonPath") or ""
        if not path:
            yield required(here)
        elif not _is_simple(path):
            yield invalid_value(here, path, "is an invalid path: it must name one field")
        elif path.startswith(".metadata"):
            yield invalid_value(here, path, "must not point to fields in metadata")
        elif path in seen:
            yield duplicate(here, path)
        seen.add(path)


def _names(spec: Object) -> Iterator[FieldError]:
    names = spec.get("names") or {}
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")
    for field in ("plural", "singular"):
        if names.get(field) and (problems := label_problems(names[field])):
            yield invalid_value(f"spec.names.{field}", names[field], ",".join(problems))
    for field in ("kind", "listKind"):
        if names.get(field) and (problems := label_problems(names[field].lower())):
            why = "may have mixed case, but should otherwise match: " + ",".join(problems)
            yield invalid_value(f"spec.names.{field}", names[field], why)
    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            if problems := label_problems(name):
                yield invalid_value(f"spec.names.{field}[{index}]", name, ",".join(problems))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _conversion(spec: Object) -> Iterator[FieldError]:
    conversion = spec.get("conversion") or {}
    strategy = conversion.get("strategy") or ""
    webhook = conversion.get("webhook") or {}
    if not strategy:
        yield required("spec.conversion.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook" and not (conversion.get("webhook") or {}).get("clientConfig"):
        why = "required when strategy is set to Webhook"
        yield required("spec.conversion.webhookClientConfig", why)
    if strategy != "Webhook":
        why = "should not be set when strategy is not set to Webhook"
        if webhook.get("clientConfig") is not None:
            yield forbidden_field("spec.conversion.webhookClientConfig", why)
        if webhook.get("conversionReviewVersions"):
            yield forbidden_field("spec.conversion.conversionReviewVersions", why)


def _immutable(spec: Object, old: Object) -> Iterator[FieldError]:
    before = old["spec"]
    names, old_names = spec.get("names") or {}, before["names"]
    if is_established(old):
        if spec.get("scope") != before.get("scope"):
            yield invalid_value("spec.scope", spec.get("scope"), "field is immutable")
        if names.get("kind") != old_names.get("kind"):
            yield invalid_value("spec.names.kind", names.get("kind"), "field is immutable")
    if spec.get("group") != before.get("group"):
        yield invalid_value("spec.group", spec.get("group"), "field is immutable")
    if names.get("plural") != old_names.get("plural"):
        yield invalid_value("spec.names.plural", names.get("plural"), "field is immutable")


def _stored_versions(crd: Object) -> Iterator[FieldError]:
    stored = (crd.get("status") or {}).get("storedVersions") or []
    field = "status.storedVersions"
    if not stored:
        yield invalid_value(field, stored, "must have at least one stored version")
        return
    names = [version.get("name") for version in versions(crd)]
    for version in versions(crd):
        if version.get("storage") and version.get("name") not in stored:
            yield invalid_value(field, stored, f"must have the storage version {version.get('name')}")
    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid_value(f"{field}[{index}]", name, why)


def _approval(crd: Object, old: Object | None) -> Iterator[FieldError]:
    group = (crd.get("spec") or {}).get("group") or ""
    if not needs_approval(group):
        return
    text = (crd["metadata"].get("annotations") or {}).get(APPROVAL)
    field = f"metadata.annotations[{APPROVAL}]"
    where = "see https://github.com/kubernetes/enhancements/pull/1111"
    if text is None:
        if old is None or (old["metadata"].get("annotations") or {}).get(APPROVAL) is not None:
            yield required(field, f'protected groups must have approval annotation "{APPROVAL}", {where}')
    elif not text.startswith(("http", "unapproved")):
        why = (
            f'protected groups must have approval annotation "{APPROVAL}" with either a URL or a reason starting with '
        )
        yield invalid_value(field, text, f'{why}"unapproved", {where}')


def _preserves(spec: Object) -> Iterator[FieldError]:
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid_value("spec.preserveUnknownFields", True, why)
