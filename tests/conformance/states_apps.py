"""Write Deployments and the like, budgets, quotas and claims as the recordings of controllers write states."""

from __future__ import annotations

from collections.abc import Callable

from states import Writer, conditions_of, head, present

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.resource import (
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    Resource,
)

_ALWAYS = frozenset(
    {
        "replicas",
        "terminatingReplicas",
        "availableReplicas",
        "collisionCount",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    }
)


def _workload(*shown: str, sorts: bool = False) -> Writer:
    """A writer of a kind with a pod template. `shown`: fields of the spec; `sorts`: conditions by type."""

    def write(obj: Object) -> Object:
        spec, template = obj["spec"], obj["spec"]["template"]
        status = {key: value for key, value in (obj.get("status") or {}).items() if key != "observedGeneration"}
        status = {key: value for key, value in status.items() if value != 0 or key in _ALWAYS}
        conditions = conditions_of(obj, ("type", "status", "reason", "message"))
        if sorts:
            conditions.sort(key=lambda entry: str(entry["type"]))
        return {
            **head(obj, "labels", "annotations", "finalizers", "owners", "deleting"),
            "generation": obj["metadata"].get("generation"),
            "spec": {key: spec[key] for key in shown if spec.get(key) is not None and spec[key] is not False},
            "template": present(
                {
                    "labels": (template.get("metadata") or {}).get("labels"),
                    "image": template["spec"]["containers"][0]["image"],
                }
            ),
            "status": {**status, **({"conditions": conditions} if conditions else {})},
        }

    return write


def _deployment(obj: Object) -> Object:
    """A Deployment of which no replicas are there does not say so."""
    written = _DEPLOYMENT(obj)
    if not written["status"].get("replicas"):
        written["status"].pop("replicas", None)
    if not written["status"].get("availableReplicas"):
        written["status"].pop("availableReplicas", None)
    return written


def _replica_set(obj: Object) -> Object:
    written = _REPLICA_SET(obj)
    if not written["status"].get("availableReplicas"):
        written["status"].pop("availableReplicas", None)
    return written


_DEPLOYMENT = _workload(
    "replicas",
    "strategy",
    "paused",
    "progressDeadlineSeconds",
    "revisionHistoryLimit",
    "minReadySeconds",
    sorts=True,
)
_REPLICA_SET = _workload("replicas", "minReadySeconds", "selector")
_STATEFUL_SET = _workload(
    "replicas",
    "podManagementPolicy",
    "updateStrategy",
    "ordinals",
    "minReadySeconds",
    "persistentVolumeClaimRetentionPolicy",
)
_DAEMON_SET = _workload("updateStrategy", "minReadySeconds")


def write_revision(revision: Object) -> Object:
    """A ControllerRevision."""
    return {
        **head(revision, "labels", "annotations", "finalizers", "owners", "deleting"),
        "revision": revision["revision"],
    }


def write_cron_job(cron_job: Object) -> Object:
    """A CronJob."""
    status = cron_job.get("status") or {}
    return {
        **head(cron_job, "labels", "annotations", "finalizers", "owners", "deleting"),
        "spec": {key: value for key, value in cron_job["spec"].items() if key != "jobTemplate"},
        "status": {
            "active": [reference["name"] for reference in status.get("active") or ()],
            "lastScheduleTime": "lastScheduleTime" in status,
            "lastSuccessfulTime": "lastSuccessfulTime" in status,
        },
    }


def write_budget(budget: Object) -> Object:
    """A PodDisruptionBudget."""
    status = {key: value for key, value in (budget.get("status") or {}).items() if key != "observedGeneration"}
    return {
        **head(budget, "labels", "annotations", "finalizers", "owners", "deleting"),
        "spec": budget["spec"],
        "status": {
            **status,
            "disruptedPods": sorted(status.get("disruptedPods") or ()),
            "conditions": conditions_of(budget, ("type", "status", "reason", "message")),
        },
    }


def write_quota(quota: Object) -> Object:
    """A ResourceQuota."""
    return {"name": name_of(quota), "spec": quota["spec"], "status": quota.get("status") or {}}


def write_claim(claim: Object) -> Object:
    """A PersistentVolumeClaim."""
    return {
        **head(claim, "labels", "finalizers", "owners", "deleting"),
        "annotations": claim["metadata"].get("annotations") or {},
        "phase": (claim.get("status") or {}).get("phase"),
    }


APPS_WRITERS: dict[str, tuple[Resource, Callable[[Object], Object]]] = {
    "Deployment": (DEPLOYMENTS, _deployment),
    "ReplicaSet": (REPLICA_SETS, _replica_set),
    "StatefulSet": (STATEFUL_SETS, _STATEFUL_SET),
    "DaemonSet": (DAEMON_SETS, _DAEMON_SET),
    "ControllerRevision": (CONTROLLER_REVISIONS, write_revision),
    "CronJob": (CRON_JOBS, write_cron_job),
    "PodDisruptionBudget": (POD_DISRUPTION_BUDGETS, write_budget),
    "ResourceQuota": (RESOURCE_QUOTAS, write_quota),
    "PersistentVolumeClaim": (PERSISTENT_VOLUME_CLAIMS, write_claim),
}
