"""The named formats of CEL, `format.dns1123Label()` and so on. Source: apiserver `pkg/cel/library/format.go`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date
from urllib.parse import urlsplit

from muster.api.codec import JSON, Object
from muster.api.labels import SUBDOMAIN_MESSAGE, label_key_errors, label_value_errors

FORMAT = "$format"
"""The key of the map that a format is among values."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_OLD_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL.pattern}')"
)
_OLD_LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_OLD_LABEL.pattern}')"
)


def _by(pattern: re.Pattern[str], message: str, most: int, unit: str) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        found = [f"must be no more than {most} {unit}"] if len(text) > most else []
        return found if pattern.fullmatch(text) else [*found, message]

    return problems


def _of_prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The check of what a name begins with: a dash at the end is masked."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _holds(check: Callable[[str], bool], message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if check(text) else [message]


def _is_bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_datetime(text: str) -> bool:
    found = _DATETIME.fullmatch(text)
    return found is not None and _is_date(found[1])


def _uri_problems(text: str) -> list[str]:
    if not text:
        return ['parse "": empty url']
    try:
        parts = urlsplit(text)
    except ValueError as error:
        return [f'parse "{text}": {error}']
    return [] if parts.scheme or text.startswith("/") else [f'parse "{text}": invalid URI for request']


def _label(text: str) -> list[str]:
    found = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if _LABEL.fullmatch(text):
        return found
    return [*found, "must not contain dots" if _SUBDOMAIN.fullmatch(text) else _LABEL_TEXT]


_subdomain = _by(_SUBDOMAIN, SUBDOMAIN_MESSAGE, 253, "bytes")
_old_label = _by(_OLD_LABEL, _OLD_LABEL_TEXT, 63, "bytes")
FORMATS: Mapping[str, Callable[[str], list[str]]] = {
    "dns1123Label": _label,
    "dns1123Subdomain": _subdomain,
    "dns1035Label": _old_label,
    "qualifiedName": label_key_errors,
    "dns1123LabelPrefix": _of_prefix(_label),
    "dns1123SubdomainPrefix": _of_prefix(_subdomain),
    "dns1035LabelPrefix": _of_prefix(_old_label),
    "labelValue": label_value_errors,
    "uri": _uri_problems,
    "uuid": _holds(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format"),
    "byte": _holds(_is_bytes, "invalid base64"),
    "date": _holds(_is_date, "invalid date"),
    "datetime": _holds(_is_datetime, "invalid datetime"),
}
"""What is wrong with a text, by the name of its format."""


def format_value(name: str) -> Object:
    """A format as a value of expressions."""
    return {FORMAT: name}


def formats_by_name() -> Object:
    """All formats as values."""
    return {name: format_value(name) for name in FORMATS}


def validated(format_: Object, text: str) -> Object:
    """The problems with a text under `errors`, which is not there if there are none."""
    problems: list[JSON] = [*FORMATS[format_[FORMAT]](text)]
    return {"errors": problems} if problems else {}
