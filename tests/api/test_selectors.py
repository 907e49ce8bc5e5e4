"""Selectors match as Kubernetes' do and are refused with its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.selectors import (
    LabelSelector,
    SelectorError,
    label_selector,
    node_selector_term,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "web", "tier": "a", "gen": "7", "empty": ""}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("old", False),
        ("!old", True),
        ("app=web", True),
        ("app==web,tier=b", False),
        ("app != web", False),
        ("old!=x", True),
        ("tier in (a, b)", True),
        ("tier notin (a,b)", False),
        ("old notin (a)", True),
        ("gen>6,gen<8", True),
        ("gen>7", False),
        ("app>1", False),
        ("empty=", True),
        ("empty in (,x)", True),
        ("empty", True),
        ("app in (web),!old,gen", True),
    ],
)
def test_label_selector_text_matches(text: str, want: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_malformed_label_selector_is_refused_in_kubernetes_words(text: str, want: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert str(caught.value) == want


def test_missing_selector_matches_nothing_and_empty_selector_everything() -> None:
    assert not label_selector(None).matches({})
    assert label_selector({}).matches(None)


def test_selector_object_joins_labels_and_expressions() -> None:
    selector = label_selector(
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}]}
    )

    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web", "tier": "b"})


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Gt", "values": ["1"]},
        {"key": "a", "operator": "In", "values": []},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a b", "operator": "Exists"},
        {"key": "a", "operator": "In", "values": ["-x"]},
    ],
)
def test_wrong_expression_is_refused(expression: dict[str, object]) -> None:
    with pytest.raises(SelectorError):
        label_selector({"matchExpressions": [expression]})


def test_empty_node_selector_term_matches_nothing() -> None:
    assert not node_selector_term({}).matches(LABELS, "n")


def test_node_selector_term_needs_labels_and_name() -> None:
    term = node_selector_term(
        {
            "matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["6"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
        }
    )

    assert term.matches(LABELS, "n")
    assert not term.matches(LABELS, "m")
    assert not term.matches({}, "n")


def test_field_selector_gives_terms_and_undoes_escapes() -> None:
    assert parse_field_selector("spec.nodeName=a,status.phase!=Failed,x==b\\,c") == [
        ("spec.nodeName", "=", "a"),
        ("status.phase", "!=", "Failed"),
        ("x", "=", "b,c"),
    ]
    assert parse_field_selector("") == []


@pytest.mark.parametrize("text", ["x", "a=b=c", "a=b\\", "a=\\x"])
def test_malformed_field_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_field_selector(text)


@given(st.text(alphabet="ab=!,()<> inot", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_label_selector(text), LabelSelector)
    except SelectorError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a/b/c=x", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of'),
        ("!-a", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("a=-x", 'unable to parse requirement: values[0][a]: Invalid value: "-x": a valid label must'),
        ("a in (-x,-y)", 'unable to parse requirement: [values[0][a]: Invalid value: "-x": a valid label must'),
    ],
)
def test_errors_of_texts_are_worded_as_upstream(text: str, start: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert str(caught.value).startswith(start)


def test_empty_parentheses_are_the_empty_value() -> None:
    selector = parse_label_selector("a in ()")
    assert selector.matches({"a": ""}) and not selector.matches({"a": "x"}) and not selector.matches({})
