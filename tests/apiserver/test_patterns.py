"""Patterns of Go's dialect (RE2) in Python's."""

from __future__ import annotations

import re

import pytest

from muster.apiserver.custom.patterns import python_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", ["ab", "AB", "a-B"], ["1a", "a-", "ab\n"]),
        ("^(?i)[a-z]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", ["A.b"], ["A..b"]),
        ("^(a(?i)b|c)d$", ["aBd", "Cd", "cd", "abd"], ["Abd", "aBD", "CD"]),
        ("^(?:a(?i:b)c)$", ["aBc"], ["aBC", "ABc"]),
        ("(?i)^x$|y", ["X", "aY"], ["xx"]),
        ("^(?i)a(?-i)b$", ["Ab", "ab"], ["AB", "aB"]),
        ("^[$()|?]+$", ["$(|)?"], ["a"]),
        (r"^\(\?i\)\$$", ["(?i)$"], ["(?I)$", "a"]),
        ("^[[:alpha:]_][[:digit:]]\\z", ["a1", "_9"], ["11", "a1\n"]),
        ("^[^[:space:]]+$", ["ab"], ["a b"]),
        ("^[]a]+$", ["]a"], ["b"]),
        ("(?m)^a$", ["b\na\nc"], ["ba"]),
    ],
)
def test_a_pattern_means_what_it_means_in_go(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = re.compile(python_pattern(pattern))

    assert [text for text in matching if not compiled.search(text)] == []
    assert [text for text in others if compiled.search(text)] == []


@pytest.mark.parametrize("pattern", ["(", "(?i", "a)", "[a", "(?z)a"])
def test_what_is_no_pattern_stays_none(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(python_pattern(pattern))
