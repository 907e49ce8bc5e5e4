"""PersistentVolumes: one place of the data, a size, who can reach it; what may not change."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object

VOLUMES = "/api/v1/persistentvolumes"


def causes(status: Object) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]


def volume(**fields: JSON) -> Object:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}, **fields}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"accessModes": None}, [("accessModes", "Required value")]),
        ({"capacity": {"storage": "0"}}, [("capacity[storage]", 'Invalid value: "0": must be greater than zero')]),
        ({"capacity": {"storage": "1", "cpu": "1"}}, [("capacity", "Unsupported value")]),
        ({"hostPath": {"path": "/a/../b"}}, [("hostPath.path", "Invalid value: \"/a/../b\": must not contain '..'")]),
        ({"nfs": {"server": "s", "path": "/"}}, [("nfs", "Forbidden: may not specify more than 1 volume type")]),
        ({"persistentVolumeReclaimPolicy": "Keep"}, [("persistentVolumeReclaimPolicy", 'Unsupported value: "Keep"')]),
        ({"nodeAffinity": {}}, [("nodeAffinity.required", "Required value: must specify required node constraints")]),
        (
            {"hostPath": None, "local": {"path": "/disk"}},
            [("nodeAffinity", "Required value: Local volume requires node affinity")],
        ),
        ({"volumeAttributesClassName": "gold"}, [("csi", "Required value: has to be specified when using")]),
    ],
)
def test_volume_that_nobody_could_use_is_refused(fields: Object, want: list[tuple[str, str]]) -> None:
    found = causes(Api().refuse(422, "POST", VOLUMES, volume(**fields)))
    assert [field for field, _ in found] == [f"spec.{field}" for field, _ in want]
    assert all(text.startswith(start) for (_, text), (_, start) in zip(found, want, strict=True))


def test_volume_without_a_place_is_refused() -> None:
    refused = causes(Api().refuse(422, "POST", VOLUMES, volume(hostPath=None)))
    assert refused == [("spec", "Required value: must specify a volume type")]


def test_place_of_a_volume_never_changes_and_its_size_may() -> None:
    api = Api()
    api.create(VOLUMES, volume())
    moved = {"spec": {"hostPath": {"path": "/other"}}}
    refused = causes(api.refuse(422, "PATCH", f"{VOLUMES}/pv", moved, type_="application/merge-patch+json"))
    assert [field for field, _ in refused] == ["spec.persistentvolumesource"]
    assert api.patch(f"{VOLUMES}/pv", {"spec": {"capacity": {"storage": "2Gi"}}})["spec"]["capacity"]


def test_volume_says_when_its_phase_changed() -> None:
    api = Api()
    first = api.create(VOLUMES, volume())["status"]["lastPhaseTransitionTime"]
    api.clock.now_s += 60
    same = api.patch(f"{VOLUMES}/pv/status", {"status": {"message": "fine"}})["status"]
    assert same["lastPhaseTransitionTime"] == first
    bound = api.patch(f"{VOLUMES}/pv/status", {"status": {"phase": "Bound"}})["status"]
    assert bound["lastPhaseTransitionTime"] > first


@pytest.mark.parametrize("operator", ["In", "Exists", "Gt"])
def test_values_of_node_selectors_are_label_values_whatever_the_operator(operator: str) -> None:
    expression = {"key": "a", "operator": operator, "values": ["bad value!"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    refused = causes(Api().refuse(422, "POST", VOLUMES, volume(nodeAffinity=affinity)))
    at = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]"
    assert at in [field for field, _ in refused]
