"""The simple JSONPath of printer columns, selectable fields and scale sub-resources: `.spec.items[0].name`.

Source of the dialect: client-go `util/jsonpath` without ranges and templates: fields, quoted fields, indexes, slices,
`[*]`, and filters that compare one field with one literal (`[?(@.type=="Ready")]`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import JSON

Step: TypeAlias = Callable[[JSON], Iterable[JSON]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:[^.\[\]\\]|\\.)+)
    | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    | \["(?P<double>(?:[^"\\]|\\.)*)"\]
    | \[(?P<index>-?\d+)\]
    | \[(?P<slice>-?\d*:-?\d*)\]
    | (?P<all>\[\*\]|\.\*)
    | \[\?\(\s*@(?P<left>[^=!<>]*?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>[^()]*?)\s*\)\]
    """,
    re.VERBOSE,
)


class PathError(ValueError):
    """The text is not a path of this dialect."""


class Path(Struct, frozen=True):
    """A parsed path. `names`: its fields if it consists of plain fields only, else None."""

    text: str
    steps: tuple[Step, ...]
    names: tuple[str, ...] | None

    def find(self, value: JSON) -> list[JSON]:
        """All values at the path, in order; [] where there is none."""
        found: list[JSON] = [value]
        for step in self.steps:
            found = [result for each in found for result in step(each)]
        return found

    def first(self, value: JSON) -> JSON:
        """The first value at the path, None where there is none."""
        found = self.find(value)
        return found[0] if found else None


def parse_path(text: str) -> Path:
    """The path that a text such as `.spec.n` means. Raises PathError."""
    body = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    names: list[str] | None = []
    position = 0
    while position < len(body):
        match = _TOKEN.match(body, position)
        if match is None:
            raise PathError(f"unexpected {body[position : position + 10]!r} in {text!r}")
        name = next((match[group] for group in ("field", "quoted", "double") if match[group] is not None), None)
        if name is not None:
            name = re.sub(r"\\(.)", r"\1", name)
            steps.append(_field(name))
            if names is not None:
                names.append(name)
        else:
            steps.append(_other(match))
            names = None
        position = match.end()
    if not steps:
        raise PathError(f"no field in {text!r}")
    return Path(text, tuple(steps), tuple(names) if names is not None else None)


def _other(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return _index(int(match["index"]))
    if match["slice"] is not None:
        first, _, last = match["slice"].partition(":")
        return _slice(slice(int(first) if first else None, int(last) if last else None))
    if match["all"] is not None:
        return _all
    return _filter(match["left"], match["operator"], match["right"])


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _index(index: int) -> Step:
    def step(value: JSON) -> Iterable[JSON]:
        if not isinstance(value, list) or not -len(value) <= index < len(value):
            return []
        return [value[index]]

    return step


def _slice(wanted: slice) -> Step:
    return lambda value: value[wanted] if isinstance(value, list) else []


def _all(value: JSON) -> Iterable[JSON]:
    if isinstance(value, list):
        return value
    return value.values() if isinstance(value, dict) else []


def _filter(left: str, operator: str, right: str) -> Step:
    path = parse_path(left) if left else None
    literal = _literal(right)

    def step(value: JSON) -> Iterable[JSON]:
        if not isinstance(value, list):
            return []
        return [item for item in value if _holds(path.first(item) if path else item, operator, literal)]

    return step


def _literal(text: str) -> JSON:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError as error:
        raise PathError(f"not a literal: {text!r}") from error


def _holds(value: JSON, operator: str, literal: JSON) -> bool:
    if operator in ("==", "!="):
        return (value == literal and isinstance(value, bool) == isinstance(literal, bool)) == (operator == "==")
    if value is None or isinstance(value, str) != isinstance(literal, str):
        return False
    if operator in ("<", "<="):
        return bool(value < literal or (operator == "<=" and value == literal))
    return bool(value > literal or (operator == ">=" and value == literal))
