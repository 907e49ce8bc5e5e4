"""The TTL-after-finished controller: deletes finished Jobs some time after they ended.

Source of the rules: kube-controller-manager `pkg/controller/ttlafterfinished`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import has_condition, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import JOBS, Resource
from muster.client.informer import Change
from muster.clock import parse_rfc3339
from muster.controllers.action import Delete, Result
from muster.controllers.runner import Request
from muster.controllers.state import State


class TtlAfterFinishedController:
    """Deletes Jobs in the foreground, so that their pods go first."""

    name = "ttl-after-finished-controller"
    resources: tuple[Resource, ...] = (JOBS,)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        """Finished Jobs with a time to live."""
        job = change.new
        return [Request(key_of(job))] if job is not None and expiry_s(job) is not None else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        """Delete the Job if its time is up, else look again when it is."""
        job = state[JOBS].get(key)
        expiry = expiry_s(job) if job is not None else None
        if job is None or expiry is None:
            return Result()
        if now < expiry:
            return Result(requeue_after_s=expiry - now)
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid_of(job)}}
        return Result((Delete(JOBS, namespace_of(job), name_of(job), options),))


def expiry_s(job: Object) -> float | None:
    """When a Job may be deleted, in seconds since the epoch; None if not (yet), or if it is being deleted."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job):
        return None
    for type_ in ("Complete", "Failed"):
        if has_condition(job, type_):
            entry = next(entry for entry in job["status"]["conditions"] if entry["type"] == type_)
            return parse_rfc3339(entry["lastTransitionTime"]) + float(ttl)
    return None
