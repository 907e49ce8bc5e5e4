"""Label selectors (as texts and as objects), node selector terms and field selectors, with Kubernetes' messages.

Sources of the rules: `apimachinery/pkg/labels/selector.go`, `apimachinery/pkg/apis/meta/v1/helpers.go`,
`apimachinery/pkg/fields/selector.go`, `component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from muster.api.codec import Object
from muster.api.labels import label_key_errors, label_value_errors

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


class SelectorError(ValueError):
    """The selector is malformed. The message is Kubernetes' own. Not retryable."""


class Operator(Enum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class Requirement(Struct, frozen=True):
    """One condition on one label. `values` are sorted and distinct."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it; a missing label satisfies NotIn and DoesNotExist only."""
        return self.accepts(labels.get(self.key))

    def accepts(self, value: str | None) -> bool:
        """Whether a label with this value (None: no such label) satisfies it."""
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER | Operator.LESS:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        actual, limit = to_int64(value), to_int64(self.values[0])
        if actual is None or limit is None:
            return False
        return actual > limit if self.operator is Operator.GREATER else actual < limit


class LabelSelector(Struct, frozen=True):
    """Requirements that must all hold; without any it matches everything. `nothing`: it matches nothing at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the labels satisfy every requirement."""
        if self.nothing:
            return False
        present = labels or {}
        return all(requirement.matches(present) for requirement in self.requirements)


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)


class NodeSelectorTerm(Struct, frozen=True):
    """Conditions on a node's labels and fields (only `metadata.name`); all must hold, and an empty term never does."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name satisfies the term."""
        if not self.labels and not self.fields:
            return False
        return all(each.matches(labels) for each in self.labels) and all(each.accepts(name) for each in self.fields)


def label_selector(obj: Object | None) -> LabelSelector:
    """The selector of a LabelSelector object: None matches nothing, `{}` everything. Raises SelectorError."""
    if obj is None:
        return NOTHING
    equal = [requirement(key, Operator.IN, [value]) for key, value in sorted((obj.get("matchLabels") or {}).items())]
    other = [
        _expression(expression, _SET_OPERATORS, "label selector") for expression in obj.get("matchExpressions") or ()
    ]
    return LabelSelector(tuple(equal + other))


def node_selector_term(obj: Object) -> NodeSelectorTerm:
    """A term of node affinity. Raises SelectorError for what the API refuses."""
    labels = [_expression(each, _ALL_OPERATORS, "node selector") for each in obj.get("matchExpressions") or ()]
    return NodeSelectorTerm(tuple(labels), tuple(_field(each) for each in obj.get("matchFields") or ()))


def parse_label_selector(text: str) -> LabelSelector:
    """The selector of a text such as `app=web,tier in (a, b),!old`. Raises SelectorError."""
    return LabelSelector(tuple(_Parser(text).parse()))


def requirement(key: str, operator: Operator, values: list[str]) -> Requirement:
    """A checked requirement. Raises SelectorError with Kubernetes' message."""
    faults = _key_faults(key)
    faults += _count_faults(operator, values)
    for index, value in enumerate(values):
        if errors := label_value_errors(value):
            faults.append(f"values[{index}][{key}]: Invalid value: {_quoted(value)}: {'; '.join(errors)}")
    if faults:
        distinct = list(dict.fromkeys(faults))
        raise SelectorError(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")
    return Requirement(key, operator, tuple(sorted(set(values))))


def parse_field_selector(text: str) -> list[tuple[str, str, str]]:
    """The (path, operator, value) terms of a text such as `spec.nodeName=a,status.phase!=Failed`.

    The operator is `=` or `!=`; `==` is given as `=`. Raises SelectorError.
    """
    return [_field_term(part, text) for part in _split_unescaped(text) if part]


def to_int64(text: str) -> int | None:
    """The integer of a decimal text as Go's `strconv.ParseInt` reads it, else None."""
    if len(text) > 40 or not _INTEGER.match(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


_SET_OPERATORS = {each.value: each for each in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)}
_ALL_OPERATORS = {each.value: each for each in Operator}


def _expression(obj: Object, operators: Mapping[str, Operator], what: str) -> Requirement:
    operator = operators.get(obj.get("operator", ""))
    if operator is None:
        raise SelectorError(f"{_quoted(obj.get('operator', ''))} is not a valid {what} operator")
    return requirement(obj.get("key", ""), operator, list(obj.get("values") or ()))


def _field(obj: Object) -> Requirement:
    key, values = obj.get("key", ""), list(obj.get("values") or ())
    operator = _ALL_OPERATORS.get(obj.get("operator", ""))
    if operator not in (Operator.IN, Operator.NOT_IN):
        raise SelectorError(f"{_quoted(obj.get('operator', ''))} is not a valid node selector operator")
    if key != "metadata.name":
        raise SelectorError(f"key: Invalid value: {_quoted(key)}: not a valid field selector key")
    if len(values) != 1:
        raise SelectorError(f"values: Invalid value: {json.dumps(values)}: must have one element")
    return Requirement(key, operator, tuple(values))


def _key_faults(key: str) -> list[str]:
    """What is wrong with a key; upstream knows of no field that it stands in, and says so."""
    errors = label_key_errors(key)
    return [f"<nil>: Invalid value: {_quoted(key)}: {'; '.join(errors)}"] if errors else []


def _count_faults(operator: Operator, values: list[str]) -> list[str]:
    shown = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    match operator:
        case Operator.IN | Operator.NOT_IN if not values:
            return [f"values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"]
        case Operator.EXISTS | Operator.DOES_NOT_EXIST if values:
            return [f"values: Invalid value: {shown}: values set must be empty for exists and does not exist"]
        case Operator.GREATER | Operator.LESS if len(values) != 1:
            return [f"values: Invalid value: {shown}: for 'Gt', 'Lt' operators, exactly one value is required"]
        case Operator.GREATER | Operator.LESS if to_int64(values[0]) is None:
            rule = "for 'Gt', 'Lt' operators, the value must be an integer"
            return [f"values[0]: Invalid value: {_quoted(values[0])}: {rule}"]
    return []


def _quoted(text: object) -> str:
    return json.dumps(text, ensure_ascii=False)


# -- texts -----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)|\s+", re.ASCII)
_END = ""
_SPECIAL = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_BINARY = {"=": Operator.IN, "==": Operator.IN, "in": Operator.IN, "!=": Operator.NOT_IN, "notin": Operator.NOT_IN}
_COMPARE = {">": Operator.GREATER, "<": Operator.LESS}


class _Parser:
    """Recursive descent over the tokens of a label selector; `_at` is the next token."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text) if match.group(1)]
        self._at = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (token := self._peek()) != _END:
            if token != "!" and token in _SPECIAL:
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            if (token := self._next()) == _END:
                break
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
            if (token := self._peek()) == _END or (token != "!" and token in _SPECIAL):
                raise SelectorError(f"found '{token}', expected: identifier after ','")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> Requirement:
        try:
            return self._parse_requirement()
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None

    def _parse_requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if key == _END or key in _SPECIAL:
            raise SelectorError(f"found '{key}', expected: identifier")
        if absent or self._peek() in {_END, ","}:
            return requirement(key, Operator.DOES_NOT_EXIST if absent else Operator.EXISTS, [])
        if faults := _key_faults(key):
            raise SelectorError(faults[0])
        token = self._next()
        if (operator := _BINARY.get(token) or _COMPARE.get(token)) is None:
            raise SelectorError(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        return requirement(key, operator, self._values() if token in {"in", "notin"} else [self._exact_value()])

    def _exact_value(self) -> str:
        if self._peek() in {_END, ","}:
            return ""
        if (token := self._next()) in _SPECIAL:
            raise SelectorError(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> list[str]:
        if (token := self._next()) != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        if (token := self._peek()) == _END or (token in _SPECIAL and token not in {")", ","}):
            raise SelectorError(f"found '{token}', expected: ',', ')' or identifier")
        values = self._list()
        if (token := self._next()) != ")":
            raise SelectorError(f"found '{token}', expected: ')'")
        return values

    def _list(self) -> list[str]:
        """Values between parentheses; an empty place between commas, or of all, is the empty value."""
        values: list[str] = []
        while True:
            if self._peek() in {",", ")"}:
                values.append("")
            elif (token := self._next()) == _END or token in _SPECIAL:
                raise SelectorError(f"found '{token}', expected: ',', or identifier")
            else:
                values.append(token)
            if (token := self._peek()) == ")":
                return sorted(set(values))
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or ')'")
            self._next()


def _split_unescaped(text: str) -> list[str]:
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def _field_term(part: str, text: str) -> tuple[str, str, str]:
    for at in range(len(part)):
        for operator in ("!=", "==", "="):
            if part.startswith(operator, at):
                value = _unescaped(part[at + len(operator) :])
                return part[:at], "!=" if operator == "!=" else "=", value
    raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")


def _unescaped(value: str) -> str:
    found, at = "", 0
    while at < len(value):
        char = value[at]
        if char == "\\":
            at += 1
            if at == len(value):
                raise SelectorError(f"invalid field selector value: invalid escape sequence: {value}")
            if value[at] not in "\\,=":
                raise SelectorError(f"invalid field selector value: invalid escape sequence: \\{value[at]}")
            char = value[at]
        elif char in ",=":
            raise SelectorError(f"invalid field selector value: unescaped character: {char}")
        found += char
        at += 1
    return found
