"""Stored Jobs and their pods, for tests of the Job controller."""

from __future__ import annotations

from typing import cast

from muster.api.codec import Object
from muster.clock import SIMULATION_EPOCH_S, rfc3339
from muster.controllers.batch.job_creation import owner_reference
from muster.controllers.batch.job_pods import INDEX_KEY, TRACKING_FINALIZER
from muster.testing.builders import make_job

NOW = SIMULATION_EPOCH_S


def stored_job(name: str = "job", *, status: Object | None = None, **arguments: object) -> Object:
    """A Job as the API server stores it."""
    job = make_job(name, **cast("Object", arguments))
    job["metadata"]["uid"] = f"uid-of-{name}"
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": f"uid-of-{name}"}}
    job["spec"].setdefault("backoffLimit", 6)
    if status is not None:
        job["status"] = status
    return job


def pod_of(
    job: Object,
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    ended_s: float = 0.0,
    deleted_s: float | None = None,
    counted: bool = False,
    ready: bool = False,
    annotations: dict[str, str] | None = None,
    **status: object,
) -> Object:
    """A pod of a Job. `ended_s`, `deleted_s`: seconds after `NOW`; `counted`: it has lost its finalizer."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "creationTimestamp": rfc3339(NOW),
        "ownerReferences": [owner_reference(job)],
        "annotations": dict(annotations or {}),
        "labels": {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]},
    }
    if not counted:
        metadata["finalizers"] = [TRACKING_FINALIZER]
    if index is not None:
        metadata["annotations"][INDEX_KEY] = str(index)
    if deleted_s is not None:
        metadata["deletionTimestamp"] = rfc3339(NOW + deleted_s + 30)
        metadata["deletionGracePeriodSeconds"] = 30
    state: Object = {"phase": phase, **status}
    if phase in ("Succeeded", "Failed"):
        end = {"exitCode": int(phase == "Failed"), "finishedAt": rfc3339(NOW + ended_s)}
        state.setdefault("containerStatuses", [{"name": "main", "state": {"terminated": end}}])
    if ready:
        state["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(NOW)}]
    spec = {"containers": [{"name": "main"}], "nodeName": "node"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": state}
