"""What may be a label key or a label value, with the messages of `apimachinery/pkg/util/validation`."""

from __future__ import annotations

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z", re.ASCII)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII)

_ALNUM = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
NAME_MESSAGE = (
    f"{_ALNUM} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def label_key_errors(key: str) -> list[str]:
    """The reasons why the text is no qualified name (`[prefix/]name`); empty if it is one."""
    parts = key.split("/")
    if len(parts) > 2:
        prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {NAME_MESSAGE} {prefix}"]
    errors = _prefix_errors(parts[0]) if len(parts) == 2 else []
    return errors + name_part_errors(parts[-1])


def name_part_errors(name: str) -> list[str]:
    """The reasons why the text is no qualified name without a prefix; empty if it is one."""
    errors = []
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _NAME.match(name):
        errors.append(f"name part {NAME_MESSAGE}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """The reasons why the text is no label value; empty if it is one."""
    errors = []
    if len(value) > 63:
        errors.append("must be no more than 63 bytes")
    if not _VALUE.match(value):
        errors.append(VALUE_MESSAGE)
    return errors


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = []
    if len(prefix) > 253:
        errors.append("prefix part must be no more than 253 bytes")
    if not _SUBDOMAIN.match(prefix):
        errors.append(f"prefix part {SUBDOMAIN_MESSAGE}")
    return errors
