"""Formats of texts in CEL: `'%s'.format([x])`. Source: cel-go `ext/formatting.go`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from muster.api.codec import JSON, dumps

_CLAUSE = re.compile(r"%(?:%|(?:\.(?P<precision>\d+))?(?P<clause>.))", re.DOTALL)
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
DEFAULT_PRECISION = 6


def formatted(text: str, values: list[JSON]) -> str:
    """The text with the values in place of its clauses. Raises ValueError, in cel-go's words."""
    rest = iter(values)
    index = -1

    def shown(found: re.Match[str]) -> str:
        nonlocal index
        if found[0] == "%%":
            return "%"
        index += 1
        if index >= len(values):
            raise ValueError(f"index {index} out of range")
        clause = _CLAUSES.get(found["clause"])
        if clause is None:
            raise ValueError(f'could not parse formatting clause: unrecognized formatting clause "{found["clause"]}"')
        try:
            return clause(next(rest), int(found["precision"]) if found["precision"] else DEFAULT_PRECISION)
        except TypeError as error:
            raise ValueError(f"error during formatting: {error}, was given {_kind(values[index])}") from error

    return _CLAUSE.sub(shown, text)


def _kind(value: object) -> str:
    names = {
        bool: "bool",
        int: "int",
        float: "double",
        str: "string",
        list: "list",
        dict: "map",
        type(None): "null_type",
    }
    return names.get(type(value), type(value).__name__)


def duration_text(value: timedelta) -> str:
    """A duration in seconds, with as many digits as it needs."""
    micros = value // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    whole, part = divmod(micros, 10**6)
    return f"{sign}{whole}{f'.{part:06}'.rstrip('0') if part else ''}s"


def time_text(value: datetime) -> str:
    """A time as RFC 3339 in UTC, with as many digits as it needs."""
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    part = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return f"{value:%Y-%m-%dT%H:%M:%S}{part}Z"


def double_text(value: float) -> str:
    """A double as Go's `strconv` writes it with the least digits (`g`)."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "-0" if sign else "0"
    power = len(text) + exponent - 1
    text = text.rstrip("0")
    if -4 <= power < 6:
        plain = format(Decimal(repr(value)), "f")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    tail = f".{text[1:]}" if len(text) > 1 else ""
    return f"{'-' if sign else ''}{text[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02}"


def _text(value: object, _: int) -> str:
    match value:
        case str():
            return value
        case bytes() | bytearray():
            return bytes(value).decode(errors="replace")
        case float():
            return double_text(value)
        case datetime():
            return time_text(value)
        case timedelta():
            return duration_text(value)
    return _nested(value)


def _nested(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return dumps(value).decode()
        case bytes() | bytearray():
            return f'b"{bytes(value).decode(errors="replace")}"'
        case float():
            return "NaN" if math.isnan(value) else f"{value:.6f}"
        case datetime():
            return f'timestamp("{time_text(value)}")'
        case timedelta():
            return f'duration("{duration_text(value)}")'
        case list():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            return f"{{{', '.join(sorted(f'{_nested(key)}:{_nested(item)}' for key, item in value.items()))}}}"
        case int():
            return str(value)
    name = getattr(value, "name", None)
    return _TYPES.get(name().partition("<")[0], name()) if callable(name) else str(value)


_TYPES = {
    **{name.upper(): name for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map")},
    **{"NULL": "null_type", "TIMESTAMP": "google.protobuf.Timestamp", "DURATION": "google.protobuf.Duration"},
}
"""The names of types, by those that the library gives them."""


def _whole(words: str, *, more: type[bool] | None = None) -> Callable[[JSON], int]:
    def number(value: JSON) -> int:
        if not isinstance(value, int) or (isinstance(value, bool) and more is not bool):
            raise TypeError(words)
        return int(value)

    return number


_of_decimal = _whole("decimal clause can only be used on integers")
_of_octal = _whole("octal clause can only be used on integers")
_of_binary = _whole("only integers and bools can be formatted as binary", more=bool)
_of_hex = _whole("only integers, byte buffers, and strings can be formatted as hex")


def _hex(value: JSON, _: int) -> str:
    if isinstance(value, str | bytes | bytearray):
        return (value.encode() if isinstance(value, str) else bytes(value)).hex()
    return f"{_of_hex(value):x}"


def _double(value: JSON, words: str) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if not isinstance(value, float):
        raise TypeError(words)
    return value


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "" if not math.isinf(value) else "∞" if value > 0 else "-∞"


def _fixed(value: JSON, precision: int) -> str:
    number = _double(value, "fixed-point clause can only be used on doubles")
    return _special(number) or f"{number:,.{precision}f}"


def _scientific(value: JSON, _: int) -> str:
    # cel-go does not look at the precision.
    number = _double(value, "scientific clause can only be used on doubles")
    if _special(number):
        return _special(number)
    mantissa, _mark, power = f"{number:.{DEFAULT_PRECISION}e}".partition("e")
    return f"{mantissa}×10{power.lstrip('+').translate(_RAISED)}"


_CLAUSES: dict[str, Callable[[JSON, int], str]] = {
    "s": _text,
    "d": lambda value, _: str(_of_decimal(value)),
    "f": _fixed,
    "e": _scientific,
    "b": lambda value, _: f"{_of_binary(value):b}",
    "x": _hex,
    "X": lambda value, _: _hex(value, 0).upper(),
    "o": lambda value, _: f"{_of_octal(value):o}",
}
