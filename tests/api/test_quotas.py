"""What objects take of a quota."""

from __future__ import annotations

from typing import cast

import pytest

from muster.api.codec import Object
from muster.api.quantity import parse_quantity
from muster.api.quotas import add, counts, covers, pod_usage, usage_of
from muster.testing.builders import make_pod


def texts(usage: dict[str, object]) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage.items()}


def with_init(pod: Object, cpu: str, *, sidecar: bool = False) -> Object:
    container: Object = {"name": "init", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    if sidecar:
        container["restartPolicy"] = "Always"
    pod["spec"].setdefault("initContainers", []).append(container)
    return pod


def quota(*scopes: str, **expression: object) -> Object:
    spec: Object = {"scopes": list(scopes)}
    if expression:
        spec["scopeSelector"] = {"matchExpressions": [expression]}
    return {"metadata": {"name": "q"}, "spec": spec}


def test_pod_takes_what_it_asks_for() -> None:
    usage = texts(dict(pod_usage(make_pod(cpu="500m", memory="1Gi", **cast("Object", {"nvidia.com/gpu": 2})))))
    assert usage["pods"] == "1" and usage["cpu"] == usage["requests.cpu"] == "500m"
    assert usage["memory"] == "1Gi" and usage["requests.nvidia.com/gpu"] == "2"
    assert "limits.nvidia.com/gpu" not in usage


def test_init_container_counts_only_if_it_needs_more_than_the_others() -> None:
    assert texts(dict(pod_usage(with_init(make_pod(cpu="1"), "500m"))))["cpu"] == "1"
    assert texts(dict(pod_usage(with_init(make_pod(cpu="1"), "3"))))["cpu"] == "3"


def test_sidecar_counts_beside_the_others() -> None:
    assert texts(dict(pod_usage(with_init(make_pod(cpu="1"), "500m", sidecar=True))))["cpu"] == "1500m"


def test_finished_pod_counts_only_as_an_object() -> None:
    pod = make_pod(cpu="1")
    pod["status"]["phase"] = "Succeeded"
    assert texts(dict(usage_of("", "pods", pod))) == {"count/pods": "1"}


def test_claim_takes_storage_of_its_class() -> None:
    claim = {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}}
    usage = texts(dict(usage_of("", "persistentvolumeclaims", claim)))
    assert usage["requests.storage"] == usage["fast.storageclass.storage.k8s.io/requests.storage"] == "5Gi"


@pytest.mark.parametrize(
    ("name", "group", "plural", "want"),
    [
        ("count/jobs.batch", "batch", "jobs", True),
        ("count/jobs.batch", "batch", "cronjobs", False),
        ("pods", "", "pods", True),
        ("requests.example.com/x", "", "pods", True),
        ("requests.storage", "", "pods", False),
        ("requests.storage", "", "persistentvolumeclaims", True),
        ("services.nodeports", "", "services", True),
        ("services", "", "secrets", False),
    ],
)
def test_quota_counts_objects_of_the_kinds_it_names(name: str, group: str, plural: str, want: bool) -> None:
    assert counts(quota(), name, group, plural) is want


def test_scopes_choose_pods() -> None:
    plain, asking = make_pod(), make_pod(cpu="1")
    limited = make_pod(spec={"activeDeadlineSeconds": 5, "priorityClassName": "high"})
    assert covers(quota("BestEffort"), "pods", plain) and not covers(quota("BestEffort"), "pods", asking)
    assert covers(quota("NotBestEffort"), "pods", asking)
    assert covers(quota("Terminating"), "pods", limited) and covers(quota("NotTerminating"), "pods", plain)
    by_class = quota(scopeName="PriorityClass", operator="In", values=["high"])
    assert covers(by_class, "pods", limited) and not covers(by_class, "pods", plain)
    assert not covers(quota("BestEffort"), "configmaps", {})


def test_sum_has_the_format_of_what_is_there() -> None:
    total = add({"memory": parse_quantity("0")}, {"memory": parse_quantity("1536Mi")})
    assert str(add(total, {"memory": parse_quantity("512Mi")})["memory"]) == "2Gi"
