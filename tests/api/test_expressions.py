"""Expressions in CEL, as far as our interface promises them."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON
from muster.api.expressions import EvaluationFailed, NotAnExpression, NotSupported, compile_expression


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("self.a < 3 || self.b == 'x'", {"a": 3, "b": "x"}, True),
        ("has(self.a) && self.a.exists(i, i.name == 'b')", {"a": [{"name": "b"}]}, True),
        ("self.all(k, self[k] > 0)", {"a": 1, "b": 0}, False),
        ("self.?a.orValue(3)", {}, 3),
        ("self.a.matches('^x+$') ? 'yes' : 'no'", {"a": "xx"}, "yes"),
        ("'%s-%d'.format([self.a, 2])", {"a": "x"}, "x-2"),
        ("cel.bind(x, self.a, x + x)", {"a": 2}, 4),
        ("self.a.lowerAscii().split(',')", {"a": "A,B"}, ["a", "b"]),
        ("self.isSorted() && self.sum() == 6 && self.max() == 3 && self.min() == 1", [1, 2, 3], True),
        ("self.indexOf(2)", [1, 2], 1),
        ("'a1b22'.findAll('[0-9]+')", {}, ["1", "22"]),
        ("self.a == 8.0", {"a": 8}, True),
        ("duration(self) > duration('1s')", "2s", True),
        ("quantity(self).compareTo(quantity('1Gi'))", "1024Mi", 0),
        ("quantity('2').sub(quantity('500m')).isInteger()", {}, False),
        ("quantity('80Gi').add(quantity('1')).isGreaterThan(quantity(self))", "80Gi", True),
        ("isQuantity(self)", "1x", False),
    ],
)
def test_expressions_have_values(text: str, value: JSON, want: JSON) -> None:
    assert compile_expression(text).evaluate({"self": value}) == want


@pytest.mark.parametrize("text", ["self.a +", "unknown(self)", "other.a"])
def test_what_does_not_compile_is_no_expression(text: str) -> None:
    with pytest.raises(NotAnExpression):
        compile_expression(text)


@pytest.mark.parametrize("text", ["format.uuid()", "self.all(i, x, x > i)", "self.sortBy(x, x)"])
def test_what_only_real_servers_know_is_told_apart(text: str) -> None:
    with pytest.raises(NotSupported):
        compile_expression(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("self.missing > 1", "no such key: missing"),
        ("1 / 0 == 1", "divide by zero"),
        ("self.a.all(x, self.a.all(y, self.a.all(z, x + y + z >= 0)))", "budget"),
    ],
)
def test_an_expression_without_a_value_says_why(text: str, want: str) -> None:
    with pytest.raises(EvaluationFailed, match=want):
        compile_expression(text).evaluate({"self": {"a": list(range(1000))}})
