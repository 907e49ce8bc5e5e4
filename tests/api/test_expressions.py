"""Expressions in CEL, as far as our interface promises them."""

from __future__ import annotations

import pytest

from muster.api.cel_types import DURATION, STRING, TIMESTAMP, Type, list_of, map_of
from muster.api.codec import JSON
from muster.api.expressions import EvaluationFailed, NoProgram, NotAnExpression, compile_expression, compile_typed


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("self.a < 3 || self.b == 'x'", {"a": 3, "b": "x"}, True),
        ("has(self.a) && self.a.exists(i, i.name == 'b')", {"a": [{"name": "b"}]}, True),
        ("self.all(k, self[k] > 0)", {"a": 1, "b": 0}, False),
        ("self.?a.orValue(3)", {}, 3),
        ("self.a.matches('^x+$') ? 'yes' : 'no'", {"a": "xx"}, "yes"),
        ("'%s-%d'.format([self.a, 2])", {"a": "x"}, "x-2"),
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


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("self.all(i, v, v > i)", [1, 2], True),
        ("self.all(k, v, k != v)", {"a": "a"}, False),
        ("self.exists(i, v, i == 1 && v == 2)", [1, 2], True),
        ("self.existsOne(k, v, v == 1)", {"a": 1, "b": 1}, False),
        ("self.exists_one(i, v, v == 1)", [1, 2], True),
        ("self.transformList(i, v, i > 0, v + i)", [1, 2], [3]),
        ("self.transformMap(k, v, k + v)", {"a": "b"}, {"a": "ab"}),
        ("self.transformMap(k, v, v == 'c', k + v)", {"a": "b", "b": "c"}, {"b": "bc"}),
        ("self.transformMapEntry(i, v, {v: i})", ["a", "b"], {"a": 0, "b": 1}),
        ("self.sortBy(x, x.k).map(x, x.k)", [{"k": 2}, {"k": 1}], [1, 2]),
        ("self.sort() + self.reverse() + self.distinct()", [2, 1, 2], [1, 2, 2, 2, 1, 2, 2, 1]),
        ("self.first().orValue(9) - self.last().orValue(9)", [1, 2], -1),
        ("self.last().orValue(9)", [], 9),
        ("format.dns1123Label().validate(self).hasValue()", "a.b", True),
        ("format.named('uuid').value().validate(self).orValue([])", "x", ["does not match the UUID format"]),
        ("format.named('none').hasValue()", "x", False),
        ("has(self.a.b)", {"a": "text"}, False),
        ("optional.of(self).optMap(x, x + 1).orValue(0)", 1, 2),
    ],
)
def test_libraries_of_kubernetes_are_there(text: str, value: JSON, want: JSON) -> None:
    assert compile_expression(text).evaluate({"self": value}) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[1, 'a'] == []", "1:5: expected type 'int' but found 'string'"),
        ("{'a': 1, 2: 3} == {}", "1:10: expected type 'string' but found 'int'"),
        ("'abc'.reverse()", "1:14: found no matching overload for 'reverse' applied to 'string.()'"),
        ("math.greatest(1, 2)", "1:1: undeclared reference to 'math' (in container '')"),
        ("1 && true", "1:1: expected type 'bool' but found 'int'"),
        ("self ? 1 : 'a'", "1:6: found no matching overload for '_?_:_' applied to '(dyn, int, string)'"),
        ("'%d'.format(['a'])", "1:14: error during formatting: decimal clause can only be used on integers"),
        ("'%d %d'.format([1])", "1:15: index 1 out of range"),
        ("'a'.matches('[')", "1:13: invalid matches argument"),
        ("timestamp('x')", "1:11: invalid timestamp argument"),
        ("cel.bind(x, 1, x)", "1:1: undeclared reference to 'cel' (in container '')"),
    ],
)
def test_types_are_checked_in_the_words_of_cel_go(text: str, want: str) -> None:
    with pytest.raises(NotAnExpression) as found:
        compile_expression(text)
    assert f"ERROR: <input>:{want}" in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        "self.times.max() == self.last",
        "self.times.all(t, t <= self.last)",
        "self.times[0] + self.spans[0] < self.last",
        "self.spans.sum() == duration('1h30m') && self.spans.min() == duration('30m')",
        "self.spans.map(s, s.getMinutes()) == [60, 30]",
        "self.times == [timestamp('2026-01-01T00:00:00Z'), self.last]",
        "duration('1500ms').getMilliseconds() == 1500 && string(self.spans[1]) == '1800s'",
        "self.by.all(k, v, v == self.last) && self.by['a'].getFullYear() == 2026",
    ],
)
def test_times_and_durations_are_read_by_their_types(text: str) -> None:
    fields = {
        "times": list_of(TIMESTAMP),
        "last": TIMESTAMP,
        "spans": list_of(DURATION),
        "by": map_of(STRING, TIMESTAMP),
    }
    first, last = "2026-01-01T00:00:00Z", "2026-01-02T03:04:05.5Z"
    value: JSON = {"times": [first, last], "last": last, "spans": ["1h", "30m"], "by": {"a": last}}
    assert compile_typed(text, {"self": Type("object", fields=fields)}).evaluate({"self": value}) is True


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("self || bool('x')", "type conversion error from 'string' to 'bool'"),
        ("int(1e30) == 1", "integer overflow"),
        ("uint(-1) == 1u", "unsigned integer overflow"),
    ],
)
def test_constants_that_cannot_be_converted_are_told(text: str, want: str) -> None:
    compiled = compile_expression(text)
    with pytest.raises(NoProgram, match=want):
        compiled.check_constants()


def test_constants_that_can_be_converted_are_good() -> None:
    compile_expression("int('12') == 12 && bool('true') && string(b'a') == 'a'").check_constants()


def test_errors_come_by_their_places_with_a_mark_under_the_line() -> None:
    with pytest.raises(NotAnExpression) as found:
        compile_expression("self &&\n  one + two(1)")
    assert str(found.value) == (
        "ERROR: <input>:2:3: undeclared reference to 'one' (in container '')\n |   one + two(1)\n | ..^\n"
        "ERROR: <input>:2:12: undeclared reference to 'two' (in container '')\n |   one + two(1)\n | ...........^"
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("self.missing > 1", "no such key: missing"),
        ("1 / 0 == 1", "division by zero"),
        ("self.a.all(x, self.a.all(y, self.a.all(z, x + y + z >= 0)))", "budget"),
    ],
)
def test_an_expression_without_a_value_says_why(text: str, want: str) -> None:
    with pytest.raises(EvaluationFailed, match=want):
        compile_expression(text).evaluate({"self": {"a": list(range(1000))}})
