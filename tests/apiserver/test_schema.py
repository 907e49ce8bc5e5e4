"""Facts about fields that patches and checks rely on."""

from __future__ import annotations

import pytest

from muster.apiserver.schema import Schema, facts, schema_for


def pod(release: str = "") -> Schema:
    found = schema_for("", "v1", "Pod", release)
    assert found is not None
    return found


def at(schema: Schema, path: str) -> Schema:
    """The schema at a dotted path; `[]` steps into a list."""
    for part in path.split("."):
        child = schema.items if part == "[]" else schema.child(part)
        assert child is not None, part
        schema = child
    return schema


@pytest.mark.parametrize(
    ("path", "want_type", "want_format", "want_merge_key", "want_map_keys"),
    [
        ("spec.containers", "array", "", "name", ("name",)),
        ("spec.containers.[].ports", "array", "", "containerPort", ("containerPort", "protocol")),
        ("spec.tolerations", "array", "", "", ()),
        ("spec.containers.[].resources.limits.cpu", "string", "quantity", "", ()),
        ("spec.containers.[].livenessProbe.httpGet.port", "string", "int-or-string", "", ()),
        ("metadata.labels.anything", "string", "", "", ()),
        ("metadata.creationTimestamp", "string", "date-time", "", ()),
        ("spec.hostNetwork", "boolean", "", "", ()),
        ("spec.priority", "integer", "int32", "", ()),
    ],
)
def test_fields_of_a_pod(
    path: str, want_type: str, want_format: str, want_merge_key: str, want_map_keys: tuple[str, ...]
) -> None:
    found = at(pod(), path)
    assert (found.type, found.format, found.merge_key, found.list_map_keys) == (
        want_type,
        want_format,
        want_merge_key,
        want_map_keys,
    )


def test_volumes_are_merged_and_retain_keys() -> None:
    assert at(pod(), "spec.volumes").patch_strategies == ("merge", "retainKeys")


def test_each_release_has_its_own_group_fields() -> None:
    spec = {release: at(pod(release), "spec").fields for release in ("1.35", "1.36", "1.37", "")}
    assert [("workloadRef" in spec[r], "schedulingGroup" in spec[r]) for r in spec] == [
        (True, False),
        (False, True),
        (False, True),
        (True, True),
    ]
    assert schema_for("scheduling.k8s.io", "v1alpha1", "Workload", "1.36") is None
    assert schema_for("scheduling.k8s.io", "v1alpha1", "Workload") is not None


def test_objects_without_structure_are_open_and_structs_without_fields_are_not() -> None:
    revision = schema_for("apps", "v1", "ControllerRevision")
    assert revision is not None
    assert at(revision, "data").is_open
    assert not facts().definition("io.k8s.api.scheduling.v1beta1.BasicSchedulingPolicy").is_open


def test_owner_references_are_atomic_items() -> None:
    assert at(pod(), "metadata.ownerReferences.[]").is_atomic
    assert not at(pod(), "spec").is_atomic
