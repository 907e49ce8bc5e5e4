"""Label and field selectors of list and watch requests, as predicates over objects.

The grammar is in `api.selectors`; here errors become answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.selectors import SelectorError, parse_field_selector, parse_label_selector
from muster.apiserver.errors import bad_request

Predicate: TypeAlias = Callable[[Object], bool]
Selectable: TypeAlias = Callable[[Object], Mapping[str, str]]
Term: TypeAlias = tuple[str, str, str]


def label_predicate(text: str) -> Predicate:
    """The predicate of a label selector. Raises StatusError (400) if it cannot be read."""
    try:
        matches = parse_label_selector(text).matches
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return lambda obj: matches(obj["metadata"].get("labels") or {})


def field_terms(text: str) -> list[Term]:
    """The terms of a field selector as (field, `=` or `!=`, value), without repeats. Raises StatusError (400)."""
    try:
        return list(dict.fromkeys(parse_field_selector(text)))
    except SelectorError as error:
        raise bad_request(str(error)) from error


def field_predicate(terms: list[Term], selectable: Selectable) -> Predicate:
    """The predicate of field selector terms over what `selectable` gives."""
    if len(terms) == 1:
        field, operator, value = terms[0]
        if operator == "=":
            return lambda obj: selectable(obj).get(field, "") == value
        return lambda obj: selectable(obj).get(field, "") != value

    def holds(obj: Object) -> bool:
        values = selectable(obj)
        return all((values.get(field, "") == value) == (operator == "=") for field, operator, value in terms)

    return holds
