"""Reading a configuration field by field: every fault is noted with its path, and what nobody read is unknown. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from muster.api.codec import JSON, Object

T = TypeVar("T")

INT32 = 2**31 - 1
INT64 = 2**63 - 1

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class Fault(Struct, frozen=True):
    """What is wrong with the field at a path, such as `profiles[0].schedulerName`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Fields:
    """An object of the file. Fields that are null are absent, as in Kubernetes; wrong types are faults.

    `faults` is shared by all objects of one file.
    """

    value: Object
    path: str
    faults: list[Fault]
    _read: set[str] = field(default_factory=set)

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def fault(self, name: str, message: str) -> None:
        """Note that something is wrong with a field; "" is the object itself."""
        self.faults.append(Fault(self.at(name) if name else self.path, message))

    def raw(self, name: str) -> JSON:
        """The value of a field, whatever its type; None if it is absent."""
        self._read.add(name)
        return self.value.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return self.value.get(name) is not None

    def text(self, name: str, default: str = "", *, one_of: Iterable[str] = ()) -> str:
        """A text; `one_of`: the values that it may have."""
        found = self._typed(name, str, "a text", default)
        choices = tuple(one_of)
        if choices and found not in choices:
            self.fault(name, f"unsupported value {found!r}: must be {_or(choices)}")
            return default
        return found

    def boolean(self, name: str, default: bool = False) -> bool:
        """true or false."""
        return self._typed(name, bool, "true or false", default)

    def integer(self, name: str, default: int, low: int = -INT32 - 1, high: int = INT32) -> int:
        """An integer in a range, both ends included."""
        found = self.raw(name)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if found is None:
            return default
        if not isinstance(found, int) or isinstance(found, bool):
            self.fault(name, f"must be an integer, is {_shown(found)}")
            return default
        if not low <= found <= high:
            self.fault(name, f"invalid value {found}: {_range(low, high)}")
            return default
        return found

    def number(self, name: str, default: float) -> float:
        """A number."""
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            self.fault(name, f"must be a number, is {_shown(found)}")
            return default
        return float(found)

    def seconds(self, name: str, default: float, low: float = 0.0) -> float:
        """A duration in Go's notation (`15s`, `1m30s`), in seconds."""
        text = self.text(name)
        if not text:
            return default
        found = parse_duration(text)
        if found is None:
            self.fault(name, f"invalid value {text!r}: must be a duration such as 15s or 1m30s")
            return default
        if found < low:
            self.fault(name, f"invalid value {text!r}: must be at least {low:g}s")
            return default
        return found

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = []
        for index, item in enumerate(self._list(name)):
            if isinstance(item, str):
                found.append(item)
            else:
                self.fault(f"{name}[{index}]", f"must be a text, is {_shown(item)}")
        return found

    def object(self, name: str) -> Fields | None:
        """The object in a field; None if it is absent."""
        found = self.raw(name)
        return None if found is None else self._object(name, found)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        found = [self._object(f"{name}[{index}]", item) for index, item in enumerate(self._list(name))]
        return [item for item in found if item is not None]

    def finish(self) -> None:
        """Note a fault for each field that was not read: it is unknown."""
        for name in self.value:
            if name not in self._read:
                close = difflib.get_close_matches(name, sorted(self._read), n=1)
                self.fault(name, f"unknown field{f', did you mean {close[0]}?' if close else ''}")

    def _object(self, name: str, value: JSON) -> Fields | None:
        if isinstance(value, dict):
            return Fields(value, self.at(name), self.faults)
        self.fault(name, f"must be an object, is {_shown(value)}")
        return None

    def _list(self, name: str) -> Iterator[JSON]:
        found = self.raw(name)
        if found is not None and not isinstance(found, list):
            self.fault(name, f"must be a list, is {_shown(found)}")
            return iter(())
        return iter(found or ())

    def _typed(self, name: str, type_: type[T], words: str, default: T) -> T:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, type_):
            self.fault(name, f"must be {words}, is {_shown(found)}")
            return default
        return found


def parse_duration(text: str) -> float | None:
    """The seconds of a duration as Go writes it; None if it is none."""
    if text in ("0", "+0", "-0"):
        return 0.0
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    parts = _DURATION.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _shown(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)


def _range(low: int, high: int) -> str:
    if high in (INT32, INT64):
        return f"must be {low} or more"
    return f"not in valid range [{low}, {high}]"


def _or(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
