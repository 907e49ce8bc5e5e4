"""The JSONPath of columns, as a function."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON, Object
from muster.api.jsonpath import PathError, parse_path

OBJECT: Object = {
    "spec": {"n": 3, "list": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "dotted.name": "x"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (".spec.n", [3]),
        (".spec.missing", []),
        (".spec.n.deeper", []),
        (".spec.list[0].name", ["a"]),
        (".spec.list[-1].name", ["b"]),
        (".spec.list[-1:].name", ["b"]),
        (".spec.list[*].v", [1, 2]),
        (".spec.list[7].v", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        (".spec.list[?(@.v>1)].name", ["b"]),
        (".spec['dotted.name']", ["x"]),
        (r".spec.dotted\.name", ["x"]),
    ],
)
def test_a_path_finds_values_in_order(path: str, want: list[JSON]) -> None:
    assert parse_path(path).find(OBJECT) == want


@pytest.mark.parametrize("text", ["", "spec", ".spec[", ".spec[?(@.a)]", ".a[x]"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(PathError):
        parse_path(text)


def test_plain_fields_are_known_by_name() -> None:
    assert parse_path(".spec.n").names == ("spec", "n")
    assert parse_path(".spec.list[0]").names is None
