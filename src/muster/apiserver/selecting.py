"""Label and field selectors of list and watch requests, as predicates over objects.

Source of the grammar: apimachinery `pkg/labels` and `pkg/fields`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.errors import StatusError, bad_request

Predicate: TypeAlias = Callable[[Object], bool]
Selectable: TypeAlias = Callable[[Object], Mapping[str, str]]

_SET_TERM = re.compile(r"\s*([^\s,!=()]+)\s+(in|notin)\s+\(([^()]*)\)\s*")
_EQUALITY_TERM = re.compile(r"\s*([^\s,!=()<>]+)\s*(==|=|!=|>|<)\s*([^\s,=!()<>]*)\s*")
_EXISTS_TERM = re.compile(r"\s*(!?)\s*([^\s,!=()<>]+)\s*")

_Labels: TypeAlias = Mapping[str, str]
_Test: TypeAlias = Callable[[_Labels], bool]


def label_predicate(text: str) -> Predicate:
    """The predicate of a label selector. Raises StatusError (400) if it cannot be read."""
    tests = []
    position = 0
    while position < len(text):
        test, position = _label_term(text, position)
        tests.append(test)
        if position < len(text):
            if text[position] != ",":
                raise _bad_label_selector(text, text[position:])
            position += 1
            if position == len(text):
                raise _bad_label_selector(text, "")
    return lambda obj: _all_hold(tests, obj["metadata"].get("labels") or {})


def _all_hold(tests: list[_Test], labels: _Labels) -> bool:
    return all(test(labels) for test in tests)


def _bad_label_selector(text: str, found: str) -> StatusError:
    return bad_request(f"unable to parse requirement: found '{found}', expected: ',' or 'end of string' in '{text}'")


def _label_term(text: str, position: int) -> tuple[_Test, int]:
    match = _SET_TERM.match(text, position)
    if match:
        key, operator, inside = match.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        return _set_test(key, operator, values), match.end()
    match = _EQUALITY_TERM.match(text, position)
    if match:
        key, operator, value = match.groups()
        return _equality_test(key, operator, value), match.end()
    match = _EXISTS_TERM.match(text, position)
    if match:
        negated, key = match.groups()
        if negated:
            return (lambda labels: key not in labels), match.end()
        return (lambda labels: key in labels), match.end()
    raise _bad_label_selector(text, text[position:])


def _set_test(key: str, operator: str, values: frozenset[str]) -> _Test:
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: key not in labels or labels[key] not in values


def _equality_test(key: str, operator: str, value: str) -> _Test:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    bound = int(value)

    def compare(labels: _Labels) -> bool:
        try:
            number = int(labels[key])
        except (KeyError, ValueError):
            return False
        return number > bound if operator == ">" else number < bound

    return compare


_FIELD_TERM = re.compile(r"([^=!,]+)(==|=|!=)(.*)")


def field_terms(text: str) -> list[tuple[str, str, str]]:
    """The terms of a field selector as (field, `=` or `!=`, value). Raises StatusError (400)."""
    terms = []
    for part in _split_terms(text):
        match = _FIELD_TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        terms.append((field, "!=" if operator == "!=" else "=", _unescape(value)))
    return terms


def _split_terms(text: str) -> list[str]:
    parts = re.split(r"(?<!\\),", text)
    return [part for part in parts if part]


def _unescape(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


def field_predicate(terms: list[tuple[str, str, str]], selectable: Selectable, known: frozenset[str]) -> Predicate:
    """The predicate of field selector terms over what `selectable` gives. Raises StatusError (400) for a field that is
    not among the `known`."""
    for field, _, _ in terms:
        if field not in known:
            raise bad_request(f"field label not supported: {field}")
    if len(terms) == 1:
        field, operator, value = terms[0]
        if operator == "=":
            return lambda obj: selectable(obj).get(field, "") == value
        return lambda obj: selectable(obj).get(field, "") != value

    def holds(obj: Object) -> bool:
        values = selectable(obj)
        return all((values.get(field, "") == value) == (operator == "=") for field, operator, value in terms)

    return holds
