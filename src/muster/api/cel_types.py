"""Types of CEL: their names, and which may stand for which.

Source: cel-go `common/types/types.go` and `checker/types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Type:
    """A type by its name. `fields`: of an object with known fields; two objects are the same by their names."""

    name: str
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, hash=False)

    @property
    def is_variable(self) -> bool:
        """Whether another type may be put in its place."""
        return self.name.startswith("$")

    def __str__(self) -> str:
        name = self.name.removeprefix("$")
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


BOOL, INT, UINT, DOUBLE, STRING, BYTES = map(Type, ("bool", "int", "uint", "double", "string", "bytes"))
DYN, ANY, ERROR, NULL = Type("dyn"), Type("any"), Type("!error!"), Type("null")
DURATION, TIMESTAMP = Type("duration"), Type("timestamp")
TYPE = Type("type")
_SIMPLE = frozenset((BOOL, INT, UINT, DOUBLE, STRING, BYTES, DURATION, TIMESTAMP))
_NEVER_NULL = frozenset(("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"))


def list_of(item: Type) -> Type:
    """The type of lists of a type."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of what may be absent."""
    return Type("optional_type", (value,))


def kind(type_: Type) -> str:
    """The name that a value of the type has at run time, for messages."""
    return _KINDS.get(type_, type_.name)


_KINDS = {
    NULL: "null_type",
    ANY: "google.protobuf.Any",
    DURATION: "google.protobuf.Duration",
    TIMESTAMP: "google.protobuf.Timestamp",
}


class Bindings:
    """What stands for the variables of types."""

    def __init__(self) -> None:
        self._found: dict[str, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        """A variable that nothing stands for."""
        self._count += 1
        return Type(f"$_var{self._count - 1}")

    def instance(self, types: Sequence[Type]) -> list[Type]:
        """The types with fresh variables in place of their own."""
        own: dict[str, Type] = {}

        def renamed(type_: Type) -> Type:
            if type_.is_variable:
                return own[type_.name] if type_.name in own else own.setdefault(type_.name, self.fresh())
            return replace(type_, params=tuple(map(renamed, type_.params))) if type_.params else type_

        return [renamed(type_) for type_ in types]

    def resolved(self, type_: Type, *, rest_is_dyn: bool = False) -> Type:
        """The type with what stands for its variables."""
        if type_.is_variable:
            if type_.name in self._found:
                return self.resolved(self._found[type_.name], rest_is_dyn=rest_is_dyn)
            return DYN if rest_is_dyn else type_
        if not type_.params:
            return type_
        return replace(type_, params=tuple(self.resolved(each, rest_is_dyn=rest_is_dyn) for each in type_.params))

    def accept(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether values of the given types may stand where these are wanted; binds variables if so."""
        before = dict(self._found)
        if len(given) == len(wanted) and all(self._accepts(a, b) for a, b in zip(given, wanted, strict=True)):
            return True
        self._found = before
        return False

    def _accepts(self, one: Type, other: Type) -> bool:
        if other.is_variable:
            valid, is_bound = self._may_stand_for(one, other)
            if valid or is_bound:
                return valid
        if one.is_variable:
            return self._may_stand_for(other, one)[0]
        if {one.name, other.name} & {"dyn", "any", "!error!"}:
            return True
        if NULL in (one, other):
            return one == other or (other if one == NULL else one).name not in _NEVER_NULL
        if one in _SIMPLE or not one.params:
            return one.name == other.name
        return (
            one.name == other.name
            and len(one.params) == len(other.params)
            and all(self._accepts(a, b) for a, b in zip(one.params, other.params, strict=True))
        )

    def _may_stand_for(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        """Whether a type may stand for a variable, and whether anything does already."""
        if type_ == variable:
            return True, True
        bound = self._found.get(variable.name)
        if bound is not None:
            if type_ == bound:
                return True, True
            if self._accepts(type_, bound):
                general = most_general(type_, bound)
                if not self._mentions(general, variable):
                    self._found[variable.name] = general
                return True, True
            return False, True
        if self._mentions(type_, variable):
            return False, False
        self._found[variable.name] = type_
        return True, False

    def _mentions(self, type_: Type, variable: Type) -> bool:
        if type_ == variable:
            return True
        if type_.is_variable:
            return type_.name in self._found and self._mentions(self._found[type_.name], variable)
        return any(self._mentions(each, variable) for each in type_.params)


def most_general(one: Type, other: Type) -> Type:
    """The less specific of two types that agree."""
    return one if _is_less_specific(one, other) or not _is_less_specific(other, one) else other


def _is_less_specific(one: Type, other: Type) -> bool:
    if one in (DYN, ANY, ERROR) or one.is_variable:
        return True
    if (
        other in (DYN, ANY, ERROR)
        or other.is_variable
        or one.name != other.name
        or len(one.params) != len(other.params)
    ):
        return False
    return all(_is_less_specific(a, b) for a, b in zip(one.params, other.params, strict=True))


def read_type(text: str) -> Type:
    """The type that a text such as `map(string, list(A))` names; a single capital letter is a variable."""
    type_, rest = _read(text)
    assert not rest, text
    return type_


def read_types(text: str) -> tuple[Type, ...]:
    """The types of a list with commas."""
    found: list[Type] = []
    rest = text.strip()
    while rest:
        type_, rest = _read(rest)
        found.append(type_)
        rest = rest.removeprefix(",").strip()
    return tuple(found)


def _read(text: str) -> tuple[Type, str]:
    end = next((at for at, mark in enumerate(text) if mark in "(),"), len(text))
    name, rest = text[:end].strip(), text[end:]
    name = "optional_type" if name == "optional" else name
    if not rest.startswith("("):
        return Type(f"${name}" if len(name) == 1 and name.isupper() else name), rest
    params: list[Type] = []
    rest = rest[1:]
    while not rest.startswith(")"):
        param, rest = _read(rest.removeprefix(",").strip())
        params.append(param)
    return Type(name, tuple(params)), rest[1:].strip()
