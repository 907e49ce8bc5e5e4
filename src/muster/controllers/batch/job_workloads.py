"""Workload and PodGroup for Jobs of a cluster whose own Job controller makes none (no gate WorkloadWithJob).

Which Jobs, names, owners and contents are those of kube-controller-manager 1.36 (`job_groups`): Indexed, more than one
pod, all at once, no controller above them. What differs follows from one thing: pods of another Job controller cannot
be made to name the group, so the scheduler finds it by the Job that controls the pod (`api.grouping`).

- Objects are made once the Job has a pod for our scheduler that names no group. So a cluster where the Job controller
  links pods, whatever its release, gets no second group. It does not matter whether the Job has started.
- They follow the Job: minCount where the version lets it change, else they are made anew; they go when the Job is no
  gang any more. Only what carries our label is changed or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muster.api.codec import Object
from muster.api.grouping import GANG_KEY
from muster.api.groups import group_of
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import JOBS, PODS, Resource
from muster.client.informer import Change
from muster.client.transport import MERGE_PATCH
from muster.controllers.action import Action, Delete, Patch, Result
from muster.controllers.batch.job_groups import (
    GroupApi,
    create_group,
    create_workload,
    infers_gang,
    own_groups,
    own_workloads,
)
from muster.controllers.batch.job_spec import JobSpec, is_finished
from muster.controllers.runner import Request
from muster.controllers.state import State

LABEL = ("app.kubernetes.io/managed-by", "muster")
IMMUTABLE_COUNTS = "v1alpha2"
"""The version in which minCount cannot change."""


class JobWorkloads:
    """Reconciles Jobs (keys `namespace/name`). `scheduler_names`: those of pods that are ours."""

    name = "muster-job-workloads"

    def __init__(self, api: GroupApi, scheduler_names: frozenset[str]) -> None:
        self._api = api
        self._scheduler_names = scheduler_names
        self.resources: tuple[Resource, ...] = (JOBS, PODS, api.workloads, api.groups)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        """Which Jobs a change concerns: of pods only that there is another one."""
        if resource == JOBS:
            return [Request(key_of(change.object))]
        if resource == PODS and change.old is not None:
            return []
        return [Request(key) for key in _controlling_jobs(change.object)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        """Look at a Job."""
        found = state[JOBS].get(key)
        if found is None or is_deleting(found) or is_finished(found):
            return Result()
        job = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, **found}  # out of a list it does not say so
        workloads = own_workloads(job, state[self._api.workloads].controlled_by(uid_of(job)))
        groups = [each for each in state[self._api.groups].controlled_by(uid_of(job)) if not is_deleting(each)]
        return Result(tuple(self._steps(job, workloads, groups, state)))

    def _steps(self, job: Object, workloads: list[Object], groups: list[Object], state: State) -> Iterable[Action]:
        spec = JobSpec.of(job)
        if any(not _is_our_own(each) for each in (*workloads, *groups)):
            return ()  # somebody else's, who knows better
        if not is_gang(job, spec):
            return [self._delete(each) for each in (*groups, *workloads)]
        if not workloads:
            pods = state[PODS].controlled_by(uid_of(job))
            return [create_workload(job, spec, self._api)] if self._are_ours(pods) else ()
        workload = workloads[0]
        (template,) = workload["spec"]["podGroupTemplates"]
        found = own_groups(job, workload, groups)
        if template["schedulingPolicy"] != _policy(spec):
            return self._follow(workload, found, spec)
        if not found:
            return [create_group(job, workload, template, self._api, owns_workload=True)]
        return self._follow(None, found, spec) if found[0]["spec"]["schedulingPolicy"] != _policy(spec) else ()

    def _are_ours(self, pods: Sequence[Object]) -> bool:
        """Whether there are pods, all for our scheduler, and none of them names a group itself."""
        names = {pod["spec"].get("schedulerName") or "default-scheduler" for pod in pods}
        return bool(names) and names <= self._scheduler_names and all(group_of(pod) is None for pod in pods)

    def _follow(self, workload: Object | None, groups: list[Object], spec: JobSpec) -> Iterator[Action]:
        """Bring another minCount to the objects; where it cannot change they go, and are made anew."""
        if self._api.groups.version == IMMUTABLE_COUNTS:
            yield from (self._delete(each) for each in (*groups, *([] if workload is None else [workload])))
            return
        policy = {"schedulingPolicy": _policy(spec)}
        if workload is not None:
            templates = [{**each, **policy} for each in workload["spec"]["podGroupTemplates"]]
            yield self._patch(self._api.workloads, workload, {"podGroupTemplates": templates})
        for group in groups:
            yield self._patch(self._api.groups, group, policy)

    def _patch(self, resource: Resource, obj: Object, spec: Object) -> Patch:
        # Custom resources know no strategic merge patches.
        return Patch(resource, namespace_of(obj), name_of(obj), {"spec": spec}, MERGE_PATCH, ignore_missing=True)

    def _delete(self, obj: Object) -> Delete:
        resource = self._api.workloads if "podGroupTemplates" in obj["spec"] else self._api.groups
        return Delete(resource, namespace_of(obj), name_of(obj), {"preconditions": {"uid": uid_of(obj)}})


def is_gang(job: Object, spec: JobSpec) -> bool:
    """Whether a Job is to have objects: a gang as 1.36 infers it, whose template names no group, and not unwanted."""
    marks = job["metadata"].get("annotations") or {}
    is_linked = bool(job["spec"]["template"]["spec"].get("schedulingGroup"))
    return infers_gang(job, spec) and not is_linked and marks.get(GANG_KEY) != "false"


def _policy(spec: JobSpec) -> Object:
    return {"gang": {"minCount": spec.parallelism}}


def _is_our_own(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(LABEL[0]) == LABEL[1]


def _controlling_jobs(obj: Object) -> Iterator[str]:
    owner = controller_of(obj)
    if owner is not None and owner.get("kind") == "Job":
        yield f"{namespace_of(obj)}/{owner['name']}"
