from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.manifests import ManifestError, creation_order, load, parse, resource_of

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
"""Nine lines that stand for a thousand million values."""

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"


def test_many_documents_come_in_order_and_empty_ones_are_skipped() -> None:
    found = parse(f"# a comment\n---\n{POD}---\n---\n{POD.replace('a', 'a', 1).replace('name: a', 'name: b')}")

    assert [(item.line, item.object["metadata"]["name"]) for item in found] == [(3, "a"), (9, "b")]


def test_list_stands_for_its_items_with_their_lines() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- "
        + POD.replace("\n", "\n  ").rstrip()
        + "\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n"
    )

    assert [(item.line, item.object["metadata"]["name"]) for item in parse(text)] == [(4, "a"), (8, "b")]


def test_json_documents_may_follow_each_other() -> None:
    pod = '{"apiVersion": "v1",\n "kind": "Pod", "metadata": {"name": "%s"}}'

    found = parse(f"{pod % 'a'}\n{pod % 'b'}{pod % 'c'}\n")

    assert [(item.line, item.object["metadata"]["name"]) for item in found] == [(1, "a"), (3, "b"), (4, "c")]


def test_amount_that_is_no_quantity_is_named() -> None:
    (found,) = parse(POD + "spec:\n  containers:\n  - resources: {requests: {cpu: 1, memory: lots}}\n")

    text = str(found.refused("quantities must match the regular expression '…'"))
    assert "spec.containers[0].resources.requests[memory]: 'lots' is no quantity" in text
    assert str(found.refused("something else")).endswith(": something else")


def test_json_with_tabs_is_read() -> None:
    (found,) = parse('{\n\t"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}\n}')

    assert found.object["kind"] == "Node"


def test_timestamps_stay_text_and_keys_become_text() -> None:
    (found,) = parse(POD + "  creationTimestamp: 2026-01-01T00:00:00Z\n  labels: {2: x, true: y}\n")

    assert found.object["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert found.object["metadata"]["labels"] == {"2": "x", "true": "y"}


@pytest.mark.parametrize(
    ("text", "want_line", "want"),
    [
        pytest.param("", 0, "no object", id="empty"),
        pytest.param("# only a comment\n---\n", 0, "no object", id="comment"),
        pytest.param("a: [1\nb: }\n", 2, "not YAML", id="not-yaml"),
        pytest.param("a: b: c\n", 1, "not YAML", id="colon"),
        pytest.param("a\tb: \x07", 0, "not YAML", id="control-character"),
        pytest.param(f"{POD}---\njust text\n", 6, "not an object", id="scalar"),
        pytest.param("kind: Pod\nmetadata: {name: a}\n", 1, "apiVersion is missing", id="no-version"),
        pytest.param(f"{POD}---\n\napiVersion: v1\nkind: Pud\nmetadata: {{name: a}}\n", 7, "'Pud'", id="kind"),
        pytest.param("apiVersion: v1\nkind: Job\nmetadata: {name: a}\n", 1, "batch", id="wrong-group"),
        pytest.param("apiVersion: v1\nkind: Pod\nspec: {}\n", 1, "metadata.name", id="no-name"),
        pytest.param("apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\n", 1, "quotes", id="number-name"),
        pytest.param("apiVersion: v1\nkind: List\nitems:\n- 1\n", 4, "items[0]", id="item"),
        pytest.param("apiVersion: 1\nkind: Pod\n", 1, "apiVersion must be text, not 1", id="number-version"),
        pytest.param("kind: Pod\nmetadata:\n\tname: a\n", 3, "indent with spaces", id="tab"),
        pytest.param("kind: Pod\na: &a\n  b: *a\n", 1, "alias", id="alias-of-itself"),
        pytest.param('{"kind": "Pod",}\n', 1, "apiVersion is missing", id="flow-style"),
        pytest.param(BOMB, 1, "stand for too much", id="aliases-of-aliases"),
        pytest.param(
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: a}\n",
            1,
            "muster convert",
            id="group-of-another-scheduler",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, want_line: int, want: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text, "x.yaml")

    assert (caught.value.file, caught.value.line) == ("x.yaml", want_line)
    assert want in caught.value.message
    assert "\n" not in str(caught.value)


def test_missing_file_is_named() -> None:
    with pytest.raises(ManifestError, match=r"no-such-file.yaml: cannot be read"):
        load("no-such-file.yaml")


def test_url_is_not_read() -> None:
    with pytest.raises(ManifestError, match="URLs are not read"):
        load(Path("https://example.com/x.yaml"))


def test_order_of_creation_puts_what_others_refer_to_first() -> None:
    kinds = [("v1", "Pod"), ("batch/v1", "Job"), ("scheduling.k8s.io/v1alpha2", "PodGroup"), ("v1", "Node")]
    kinds += [
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("v1", "Namespace"),
        ("scheduling.k8s.io/v1alpha1", "Workload"),
    ]
    text = "---\n".join(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n" for version, kind in kinds)

    ordered = [item.object["kind"] for item in creation_order(parse(text))]

    assert ordered == ["Namespace", "PriorityClass", "Node", "Workload", "PodGroup", "Job", "Pod"]


def test_resource_keeps_the_version_that_was_written() -> None:
    resource = resource_of({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload"})

    assert resource is not None
    assert resource.path("some-ns") == "/apis/scheduling.k8s.io/v1alpha1/namespaces/some-ns/workloads"
