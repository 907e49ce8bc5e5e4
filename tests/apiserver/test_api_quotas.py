"""Quotas and limits at admission, and the kinds of the apps group that controllers write."""

from __future__ import annotations

from serving import PODS, Api

from muster.api.codec import Object
from muster.testing.builders import make_pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def quota(hard: dict[str, str], *scopes: str) -> Object:
    spec: Object = {"hard": hard, **({"scopes": list(scopes)} if scopes else {})}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}


def limit_range(**limit: object) -> Object:
    spec = {"limits": [{"type": "Container", **limit}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": spec}


def enforced(api: Api, hard: dict[str, str]) -> None:
    """A quota that the controller has seen."""
    made = api.create(QUOTAS, quota(hard))
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    api.update(f"{QUOTAS}/q/status", {**made, "status": status})


def used(api: Api) -> dict[str, str]:
    amounts: dict[str, str] = api.get(f"{QUOTAS}/q")["status"]["used"]
    return amounts


def test_pods_are_charged_until_the_quota_is_used_up() -> None:
    api = Api()
    enforced(api, {"requests.cpu": "1"})
    api.create(PODS, make_pod("a", cpu="600m"))
    assert used(api) == {"requests.cpu": "600m"}
    refused = api.refuse(403, "POST", PODS, make_pod("b", cpu="600m"))
    want = "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    assert refused["message"].endswith(want)
    api.create(PODS, make_pod("c", cpu="400m"))
    assert used(api) == {"requests.cpu": "1"}


def test_dry_run_and_refused_pods_are_not_charged() -> None:
    api = Api()
    enforced(api, {"pods": "2"})
    api.create(PODS, make_pod("a"), dryRun="All")
    api.create(PODS, make_pod("a"))
    api.refuse(409, "POST", PODS, make_pod("a"))
    assert used(api) == {"pods": "1"}


def test_quota_that_nobody_has_counted_yet_refuses_nothing() -> None:
    api = Api()
    api.create(QUOTAS, quota({"pods": "0"}))
    api.create(PODS, make_pod("a"))


def test_scope_must_fit_what_is_limited() -> None:
    Api().refuse(422, "POST", QUOTAS, quota({"requests.cpu": "1"}, "BestEffort"))


def test_limits_fill_in_what_pods_leave_out() -> None:
    api = Api()
    api.create(RANGES, limit_range(default={"memory": "1Gi"}, max={"cpu": "2"}))
    pod = api.create(PODS, make_pod("a"))
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "2", "memory": "1Gi"} and resources["requests"] == resources["limits"]
    assert "kubernetes.io/limit-ranger" in pod["metadata"]["annotations"]


def test_pod_outside_of_the_limits_is_refused_before_quotas_are_charged() -> None:
    api = Api()
    enforced(api, {"pods": "5"})
    api.create(RANGES, limit_range(min={"cpu": "100m"}))
    refused = api.refuse(403, "POST", PODS, make_pod("a", cpu="50m"))
    want = "minimum cpu usage per Container is 100m, but request is 50m"
    assert refused["message"].endswith(want)
    assert used(api) == {"pods": "0"}


def test_claim_is_pending_and_protected() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    made = Api().create(CLAIMS, claim)
    assert made["status"] == {"phase": "Pending"}
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
