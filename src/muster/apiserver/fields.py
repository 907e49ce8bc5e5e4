"""Field errors in upstream's words, and the checks of names and labels that all kinds share.

Source: apimachinery `pkg/util/validation/field` and `pkg/util/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import JSON, Object, dumps
from muster.api.labels import NAME_MESSAGE, SUBDOMAIN_MESSAGE, label_value_errors, name_part_errors

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

PATH_TEXT = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"

LONGEST_LABEL = 63
LONGEST_ANNOTATIONS = 256 * 1024
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class FieldError(Struct, frozen=True):
    """One thing wrong with one field; `body` is the text without the path."""

    reason: str
    field: str
    body: str


def _with_detail(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def shown(value: JSON) -> str:
    """A value as messages print it: strings quoted, numbers bare, the rest as JSON, as Go escapes it."""
    if value is None:
        return "null"
    text = dumps(value).decode()
    if isinstance(value, dict | list):
        for mark in "<>&":
            text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, _with_detail("Required value", detail))


def invalid_value(field: str, value: JSON, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, _with_detail(f"Invalid value: {shown(value)}", detail))


def not_supported(field: str, value: JSON, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(f'"{item}"' for item in supported)
    body = f"Unsupported value: {shown(value)}" + (f": supported values: {listed}" if listed else "")
    return FieldError("FieldValueNotSupported", field, body)


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, _with_detail("Forbidden", detail))


def duplicate(field: str, value: JSON) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def immutable(field: str) -> FieldError:
    """The field changed and may not."""
    return invalid_value(field, None, "field is immutable")


def unknown_value(field: str, value: JSON) -> FieldError:
    """The field names something that does not exist."""
    return FieldError("FieldValueNotFound", field, f"Not found: {shown(value)}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    items = "items" if limit != 1 else "item"
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} {items}")


def label_problems(text: str, unit: str = "bytes") -> list[str]:
    """What is wrong with an RFC 1123 label. `unit`: older checks count characters."""
    problems = []
    if len(text) > LONGEST_LABEL:
        problems.append(f"must be no more than {LONGEST_LABEL} {unit}")
    if not _LABEL.fullmatch(text):
        # What is a subdomain but no label has dots.
        problems.append("must not contain dots" if _SUBDOMAIN.fullmatch(text) else LABEL_TEXT)
    return problems


def subdomain_problems(text: str) -> list[str]:
    """What is wrong with an RFC 1123 subdomain."""
    problems = []
    if len(text) > 253:
        problems.append("must be no more than 253 characters")
    if not _SUBDOMAIN.fullmatch(text):
        problems.append(SUBDOMAIN_MESSAGE)
    return problems


def qualified_name_problems(text: str) -> list[str]:
    """What is wrong with a qualified name, such as a label key or the name of a resource."""
    parts = text.split("/")
    if len(parts) > 2:
        prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {NAME_MESSAGE} {prefix}"]
    problems = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in subdomain_problems(parts[0])]
    return problems + name_part_errors(parts[-1])


CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def config_key_problems(text: str) -> list[str]:
    """What is wrong with a key of a ConfigMap or a Secret. Source: apimachinery `IsConfigMapKey`."""
    problems = []
    if len(text) > 253:
        problems.append("must be no more than 253 characters")
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", text):
        problems.append(CONFIG_KEY_TEXT)
    if text == ".":
        problems.append("must not be '.'")
    elif text == "..":
        problems.append("must not be '..'")
    elif text.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def path_segment_problems(text: str) -> list[str]:
    """What is wrong with a text that is to stand between two slashes of a path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{mark}'" for mark in "/%" if mark in text]


def domain_path_errors(text: str, field: str) -> list[FieldError]:
    """A text such as `example.com/name`. Source: apimachinery `IsDomainPrefixedPath`."""
    if not text:
        return [required(field)]
    domain, slash, path = text.partition("/")
    if not domain or not slash or not path:
        return [invalid_value(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [invalid_value(field, domain, problem) for problem in subdomain_problems(domain)]
    if not _PATH.fullmatch(path):
        errors.append(invalid_value(field, path, PATH_TEXT))
    return errors


def validate_labels(labels: Object, field: str) -> list[FieldError]:
    """Keys and values of a label map."""
    errors = []
    for key in sorted(labels):
        errors += [invalid_value(field, key, problem) for problem in qualified_name_problems(key)]
        errors += [invalid_value(field, labels[key], problem) for problem in label_value_errors(str(labels[key]))]
    return errors


def validate_annotations(annotations: Object, field: str) -> list[FieldError]:
    """Keys of annotations may have capitals, and not too much may stand in all of them."""
    errors = [
        invalid_value(field, key, problem)
        for key in sorted(annotations)
        for problem in qualified_name_problems(key.lower())
    ]
    if sum(len(key) + len(str(value)) for key, value in annotations.items()) > LONGEST_ANNOTATIONS:
        errors.append(too_long(field, LONGEST_ANNOTATIONS))
    return errors
