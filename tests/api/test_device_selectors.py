"""Selectors of devices: what they may say, and what they are about."""

from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.api.device_selectors import compile_selector
from muster.api.expressions import NotAnExpression

DEVICE: Object = {"driver": "d", "attributes": {"d": {"model": "a"}}, "capacity": {"d": {}}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("device.attributes['d'].model == 'a'", True),
        ("has(device.attributes['other'].model)", False),
        ("device.attributes[?'other'].?model.hasValue()", False),
        ("size(device.capacity['a]']) == 0", True),
        ("'b]' in device.attributes[true ? 'other' : 'd']", False),
        ("cel.bind(own, device.attributes['d'], own.model == 'a')", True),
        ("device.attributes['d'].model.includes('a')", True),
    ],
)
def test_unknown_domains_are_empty(text: str, want: bool) -> None:
    assert compile_selector(text).evaluate({"device": DEVICE}) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("device.missing", "1:7: undefined field 'missing'"),
        ("device.driver == 1", "1:15: found no matching overload for '_==_' applied to '(string, int)'"),
        ("device.capacity['a'].b > quantity('1')", "applied to '(kubernetes.Quantity, kubernetes.Quantity)'"),
        ("device.attributes['a'].b.all(x, true)", "expression of type 'any' cannot be range of a comprehension"),
    ],
)
def test_selectors_are_held_to_the_type_of_a_device(text: str, want: str) -> None:
    with pytest.raises(NotAnExpression) as found:
        compile_selector(text)
    assert want in str(found.value)
