"""Kubernetes quantities ("500m", "1.5Gi", "16e9") as exact numbers, and numbers as quantities.

The grammar and the canonical form are those of `apimachinery/pkg/api/resource/quantity.go`. No floats anywhere.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from muster.api.codec import JSON

NANO = 10**9
MAX = (2**63 - 1) * NANO
_LONGEST = 1000  # no sane quantity is longer, and Python refuses to convert texts of thousands of digits

_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([^0-9.+-][^0-9.+-]*)?([+-]?[0-9]+)?\Z", re.ASCII)
_ALLOWED = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*\Z", re.ASCII)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

WRONG_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's text
)
WRONG_NUMBER = "unable to parse numeric part of quantity"
WRONG_SUFFIX = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """The text is no quantity. The message is Kubernetes' own. Not retryable."""


class Format(Enum):
    """How a quantity was written, which decides how it is written back."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class Quantity(Struct, frozen=True):
    """An exact quantity: `nano` is the value in 1e-9 units (finer values are rounded away from zero when read)."""

    nano: int
    format: Format = Format.DECIMAL_SI

    def units(self) -> int:
        """The value in base units, rounded up (away from zero)."""
        return _divide_up(self.nano, NANO)

    def milli(self) -> int:
        """The value in thousandths, rounded up (away from zero)."""
        return _divide_up(self.nano, NANO // 1000)

    def __str__(self) -> str:
        """The canonical text: no fraction, the largest suffix that keeps it exact, the format it came in."""
        if self.nano == 0:
            return "0"
        whole, rest = divmod(abs(self.nano), NANO)
        if self.format is Format.BINARY_SI and rest == 0 and whole >= 1024:
            return _sign(self.nano) + _binary_text(whole)
        return _sign(self.nano) + _decimal_text(abs(self.nano), self.format)


def parse_quantity(value: JSON) -> Quantity:
    """The quantity of a JSON string or number; raises QuantityError with Kubernetes' message."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(WRONG_FORMAT)
    return _parse(value if isinstance(value, str) else str(value))


def canonical_quantity(value: JSON) -> str:
    """The text that the API server gives back for a quantity; raises QuantityError."""
    return str(parse_quantity(value))


def resource_units(resource: str, value: JSON) -> int:
    """A request or capacity in the canonical unit of its resource, rounded up: cpu in millicores, others in base units.

    Raises QuantityError.
    """
    quantity = parse_quantity(value)
    return quantity.milli() if resource == "cpu" else quantity.units()


def format_units(resource: str, units: int) -> str:
    """The quantity text of a canonical amount: `("cpu", 1500) -> "1500m"`, `("memory", 2**30) -> "1Gi"`."""
    if resource == "cpu":
        return str(Quantity(units * (NANO // 1000)))
    binary = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    return str(Quantity(units * NANO, Format.BINARY_SI if binary else Format.DECIMAL_SI))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if not text or len(text) > _LONGEST:
        raise QuantityError(WRONG_FORMAT)
    match = _SYNTAX.match(text)
    if match is None or not _ALLOWED.match(text):
        raise QuantityError(WRONG_FORMAT)
    sign, whole, fraction, suffix, exponent = match.groups()
    if not whole and not fraction:
        raise QuantityError(WRONG_NUMBER)
    base, power, format_ = _scale(suffix or "", exponent)
    digits = int((whole or "") + (fraction or ""))
    nano = _scaled(digits, base, power, -len(fraction or ""))
    if nano > MAX:
        nano = MAX
    if format_ is Format.BINARY_SI and 0 < nano < NANO:
        format_ = Format.DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, format_)


def _scale(suffix: str, exponent: str | None) -> tuple[int, int, Format]:
    if exponent is None:
        if suffix in _DECIMAL:
            return 10, _DECIMAL[suffix], Format.DECIMAL_SI
        if suffix in _BINARY:
            return 2, _BINARY[suffix], Format.BINARY_SI
    elif suffix in {"e", "E"} and abs(int(exponent)) < 2**31:
        return 10, int(exponent), Format.DECIMAL_EXPONENT
    raise QuantityError(WRONG_SUFFIX)


def _scaled(digits: int, base: int, power: int, decimals: int) -> int:
    """digits * base**power * 10**decimals in nano units, rounded up, capped a little above MAX."""
    if digits == 0:
        return 0
    decimals += 9
    if base == 10:
        decimals, power = decimals + power, 0
    if decimals > 60:  # beyond MAX whatever the digits are, and 10**decimals might not fit into memory
        return MAX + 1
    if decimals >= 0:
        return int(digits * 2**power * 10**decimals)
    if -decimals > len(str(digits)) + 60:
        return 1
    return _divide_up(int(digits * 2**power), int(10**-decimals))


def _divide_up(value: int, divisor: int) -> int:
    magnitude = -(-abs(value) // divisor)
    return magnitude if value >= 0 else -magnitude


def _sign(value: int) -> str:
    return "-" if value < 0 else ""


def _binary_text(whole: int) -> str:
    suffix = ""
    for name in _BINARY:
        if whole % 1024:
            break
        whole //= 1024
        suffix = name
    return f"{whole}{suffix}"


def _decimal_text(nano: int, format_: Format) -> str:
    exponent = -9
    while nano % 1000 == 0 and (exponent < 18 or format_ is Format.DECIMAL_EXPONENT):
        nano //= 1000
        exponent += 3
    if format_ is Format.DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"
