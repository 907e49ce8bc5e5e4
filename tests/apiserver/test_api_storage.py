"""Storage classes and limit ranges: defaults, what is refused, what may not change."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
RANGES = "/api/v1/namespaces/default/limitranges"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def causes(status: Object) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]


def storage_class(**fields: JSON) -> Object:
    meta = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}}
    return {**meta, "provisioner": "example.com/disk", **fields}


def test_class_has_a_policy_and_a_mode() -> None:
    made = Api().create(CLASSES, storage_class())
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"provisioner": ""}, ("provisioner", "Required value")),
        (
            {"reclaimPolicy": "Recycle"},
            ("reclaimPolicy", 'Unsupported value: "Recycle": supported values: "Delete", "Retain"'),
        ),
        (
            {"volumeBindingMode": "Later"},
            (
                "volumeBindingMode",
                'Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"',
            ),
        ),
        (
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone"}]}]},
            ("allowedTopologies[0].matchLabelExpressions[0].values", "Required value"),
        ),
        (
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}]}]},
            ("allowedTopologies[0].matchLabelExpressions[0].values[1]", 'Duplicate value: "a"'),
        ),
        (
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}] * 2},
            ("allowedTopologies[1].matchLabelExpressions", 'Duplicate value: ""'),
        ),
    ],
)
def test_class_that_says_what_is_unknown_is_refused(fields: Object, want: tuple[str, str]) -> None:
    assert causes(Api().refuse(422, "POST", CLASSES, storage_class(**fields))) == [want]


def test_class_keeps_what_volumes_were_made_with() -> None:
    api = Api()
    made = api.create(CLASSES, storage_class(parameters={"a": "b"}))
    changed = {**made, "provisioner": "x", "parameters": {"b": "c", "a": "b"}, "allowVolumeExpansion": True}
    assert causes(api.refuse(422, "PUT", f"{CLASSES}/fast", changed)) == [
        ("parameters", 'Invalid value: {"a":"b","b":"c"}: field is immutable'),
        ("provisioner", 'Invalid value: "x": field is immutable'),
    ]
    assert api.update(f"{CLASSES}/fast", {**made, "allowVolumeExpansion": True})["allowVolumeExpansion"]


def limit_range(*limits: Object) -> Object:
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": list(limits)}}


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        (
            {"min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}},
            [
                ("min[cpu]", '"2": min value 2 is greater than max value 1'),
                ("defaultRequest[cpu]", '"2": default request value 2 is greater than max value 1'),
                ("default[cpu]", '"1": default value 2 is greater than max value 1'),
            ],
        ),
        (
            {"min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1500m"}},
            [
                ("defaultRequest[cpu]", '"1500m": min value 2 is greater than default request value 1500m'),
                ("defaultRequest[cpu]", '"1500m": default request value 1500m is greater than default limit value 1'),
                ("default[cpu]", '"2": min value 2 is greater than default value 1'),
            ],
        ),
        (
            {"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}},
            [("maxLimitRequestRatio[cpu]", '"3": ratio 3 is greater than max/min = 2.000000')],
        ),
    ],
)
def test_limits_are_in_order(limit: Object, want: list[tuple[str, str]]) -> None:
    refused = Api().refuse(422, "POST", RANGES, limit_range({"type": "Container", **limit}))
    assert causes(refused) == [(f"spec.limits[0].{field}", f"Invalid value: {text}") for field, text in want]


def test_limits_of_claims_bound_storage() -> None:
    refused = Api().refuse(422, "POST", RANGES, limit_range({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}))
    why = "Required value: either minimum or maximum storage value is required, but neither was provided"
    assert causes(refused) == [("spec.limits[0].limits", why)]


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ({"scopeName": "PriorityClass", "operator": "In"}, ["values"]),
        ({"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}, ["values"]),
        ({"scopeName": "Terminating", "operator": "DoesNotExist"}, ["operator"]),
        ({"scopeName": "Odd", "operator": "Near"}, ["scopeName", "operator"]),
        ({"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}, []),
    ],
)
def test_scope_selector_is_checked(expression: Object, want: list[str]) -> None:
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}
    if not want:
        Api().create(QUOTAS, quota)
        return
    found = [field for field, _ in causes(Api().refuse(422, "POST", QUOTAS, quota))]
    assert found == [f"spec.scopeSelector.matchExpressions.{name}" for name in want]


def test_counted_things_are_whole() -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1500m"}},
    }
    why = 'Invalid value: "1500m": must be an integer'
    assert causes(Api().refuse(422, "POST", QUOTAS, quota)) == [("spec.hard[pods]", why)]


DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
NODES_OF_DRIVERS = "/apis/storage.k8s.io/v1/csinodes"


def csi_driver(**spec: JSON) -> Object:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.com"}, "spec": spec}


def csi_node(*drivers: JSON) -> Object:
    meta = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}}
    return {**meta, "spec": {"drivers": list(drivers)}}


def test_driver_is_completed_and_counts_its_changes() -> None:
    api = Api(ServerOptions(emulate="1.36"))
    made = api.create(DRIVERS, csi_driver())
    assert made["spec"] == {
        "attachRequired": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "podInfoOnMount": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "storageCapacity": False,
        "volumeLifecycleModes": ["Persistent"],
    }
    assert "generation" not in made["metadata"]
    changed = api.patch(f"{DRIVERS}/d.com", {"spec": {"podInfoOnMount": True}})
    assert changed["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"fsGroupPolicy": "Mine"}, ["spec.fsGroupPolicy"]),
        ({"volumeLifecycleModes": ["Brief"]}, ["spec.volumeLifecycleModes"]),
        ({"nodeAllocatableUpdatePeriodSeconds": 9}, ["spec.nodeAllocatableUpdatePeriodSeconds"]),
        ({"serviceAccountTokenInSecrets": True}, ["spec.serviceAccountTokenInSecrets"]),
        ({"tokenRequests": [{"audience": "a"}, {"audience": "a"}]}, ["spec.tokenRequests[1].audience"]),
        (
            {"tokenRequests": [{"audience": "a", "expirationSeconds": 599}]},
            ["spec.tokenRequests[0].expirationSeconds"],
        ),
    ],
)
def test_driver_that_makes_no_sense_is_refused(spec: Object, want: list[str]) -> None:
    refused = causes(Api().refuse(422, "POST", DRIVERS, csi_driver(**spec)))
    assert [path for path, _ in refused] == want


def test_entry_of_a_csi_node_changes_in_its_limit_only() -> None:
    api, entry = Api(), {"name": "d.com", "nodeID": "a", "topologyKeys": ["zone"]}
    api.create(NODES_OF_DRIVERS, csi_node(entry))
    assert api.patch(f"{NODES_OF_DRIVERS}/n", csi_node({**entry, "allocatable": {"count": 3}}))
    merge = "application/merge-patch+json"
    refused = api.refuse(422, "PATCH", f"{NODES_OF_DRIVERS}/n", csi_node({**entry, "nodeID": "b"}), type_=merge)
    shown = '{"Name":"d.com","NodeID":"b","TopologyKeys":["zone"],"Allocatable":null}'
    assert causes(refused) == [("spec.drivers", f"Invalid value: {shown}: field is immutable")]


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        ({"nodeID": "a"}, ["spec.drivers[0].name"]),
        ({"name": "d.com"}, ["spec.drivers[0].nodeID"]),
        ({"name": "d.com", "nodeID": "a", "allocatable": {"count": -1}}, ["spec.drivers[0].allocatable.count"]),
        ({"name": "d.com", "nodeID": "a", "topologyKeys": ["zone", "zone"]}, ["spec.drivers[0]"]),
    ],
)
def test_entry_of_a_csi_node_that_makes_no_sense_is_refused(entry: Object, want: list[str]) -> None:
    refused = causes(Api().refuse(422, "POST", NODES_OF_DRIVERS, csi_node(entry)))
    assert [path for path, _ in refused] == want
