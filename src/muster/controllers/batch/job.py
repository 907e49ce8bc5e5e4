"""The Job controller: makes the pods of Jobs, counts how they end, and says when a Job is complete or failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import controller_of, key_of, namespace_of, uid_of
from muster.api.resource import JOBS, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Result
from muster.controllers.batch.job_backoff import BackoffRecord
from muster.controllers.batch.job_claims import claims, selector_of, untrack
from muster.controllers.batch.job_groups import TEMPLATE_ANNOTATION, GroupApi, GroupPlan, plan_group
from muster.controllers.batch.job_pods import RemovalTie, has_tracking_finalizer
from muster.controllers.batch.job_spec import JobSpec, is_finished, is_ours
from muster.controllers.batch.job_sync import Look, sync
from muster.controllers.runner import Request
from muster.controllers.state import State

BATCH_S = 1.0
"""Changes of pods are gathered for so long before their Job is looked at."""

_UID_LABEL = "batch.kubernetes.io/controller-uid"

_ORPHAN = "orphan "
"""Begins the keys of pods that may have to lose their finalizer because their Job is gone or finished."""


class _Memory(Struct, frozen=True):
    """What is kept between two looks at a Job."""

    uid: str
    backoff: BackoffRecord


class JobController:
    """Reconciles Jobs (keys `namespace/name`) and pods without one (keys that begin with `orphan`)."""

    name = "job-controller"

    def __init__(self, api: GroupApi, tie: RemovalTie = lambda pod: 0) -> None:
        self._api = api
        self._tie = tie
        self.resources: tuple[Resource, ...] = (JOBS, PODS)
        if api.release != "off":
            self.resources += (api.workloads, api.groups)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        """Which Jobs and pods a change concerns."""
        if resource == JOBS:
            return self._job_requests(change, state)
        if resource == PODS:
            return self._pod_requests(change, state)
        return [Request(key) for key in _controlling_jobs(change.object)]

    def _job_requests(self, change: Change, state: State) -> Iterator[Request]:
        job, old = change.object, change.old
        is_status_only = (
            change.type == "MODIFIED"
            and old is not None
            and old["metadata"].get("generation") == job["metadata"].get("generation")
        )
        if change.new is None or is_finished(job):
            for pod in state[PODS].controlled_by(uid_of(job)):
                if has_tracking_finalizer(pod):
                    yield Request(_ORPHAN + key_of(pod))
        if change.new is None or not is_finished(job):
            yield Request(key_of(job), BATCH_S if is_status_only else 0.0)

    def _pod_requests(self, change: Change, state: State) -> Iterator[Request]:
        keys: dict[str, None] = {}
        for pod in (change.old, change.new):
            if pod is not None:
                keys.update(dict.fromkeys(self._jobs_of(pod, state)))
        for key in keys:
            yield Request(key, BATCH_S)
        pod = change.object
        if change.new is not None and not keys and has_tracking_finalizer(pod):
            yield Request(_ORPHAN + key_of(pod))

    def _jobs_of(self, pod: Object, state: State) -> Iterator[str]:
        """The unfinished Jobs that a pod belongs to, or may be adopted by."""
        if controller_of(pod) is not None:
            job = _job_of(pod, state)
            if job is not None and not is_finished(job):
                yield key_of(job)
        elif labels := pod["metadata"].get("labels"):
            for job in state[JOBS].in_namespace(namespace_of(pod)):
                if not is_finished(job) and _may_select(job, labels) and selector_of(job).matches(labels):
                    yield key_of(job)

    def reconcile(self, key: str, state: State, now: float) -> Result:
        """Look at a Job, or at a pod that may have lost its Job."""
        if key.startswith(_ORPHAN):
            return _reconcile_orphan(state[PODS].get(key.removeprefix(_ORPHAN)), state)
        job = state[JOBS].get(key)
        if job is None or is_finished(job) or not is_ours(job):
            return Result()
        memory = state.memory(key)
        known = memory.backoff if isinstance(memory, _Memory) and memory.uid == uid_of(job) else None
        pods = state[PODS].controlled_by(uid_of(job))
        patches = claims(job, pods, state[PODS].without_controller(namespace_of(job)))
        if patches:
            return Result(tuple(patches), requeue_after_s=0.0, memory=memory)
        plan = self._plan_group(job, pods, state)
        if not plan.is_ready:
            return Result(plan.actions, requeue_after_s=0.0, memory=memory)
        result, backoff = sync(Look.at(job, pods, known, now), self._tie, plan.group)
        kept = _Memory(uid_of(job), backoff)
        return Result((*plan.actions, *result.actions), result.requeue_after_s, memory=kept)

    def _plan_group(self, job: Object, pods: list[Object], state: State) -> GroupPlan:
        if self._api.release == "off":
            return GroupPlan()
        known = state[self._api.workloads]
        # Only a Job that names a template may belong to a Workload that it does not control.
        names_template = TEMPLATE_ANNOTATION in (job["metadata"].get("annotations") or {})
        workloads = known.in_namespace(namespace_of(job)) if names_template else known.controlled_by(uid_of(job))
        groups = state[self._api.groups].controlled_by(uid_of(job))
        return plan_group(job, JobSpec.of(job), pods, workloads, groups, self._api)


def _may_select(job: Object, labels: Object) -> bool:
    """Whether it is worth to evaluate the Job's selector: a generated one asks for the Job's uid."""
    return bool(job["spec"].get("manualSelector")) or labels.get(_UID_LABEL) == uid_of(job)


def _controlling_jobs(obj: Object) -> Iterator[str]:
    owner = controller_of(obj)
    if owner is not None and owner.get("kind") == "Job":
        yield f"{namespace_of(obj)}/{owner['name']}"


def _job_of(pod: Object, state: State) -> Object | None:
    """The Job that controls a pod, if it still exists."""
    owner = controller_of(pod)
    if owner is None or owner.get("kind") != "Job":
        return None
    job = state[JOBS].get(f"{namespace_of(pod)}/{owner['name']}")
    return job if job is not None and uid_of(job) == owner.get("uid") else None


def _reconcile_orphan(pod: Object | None, state: State) -> Result:
    """Take the finalizer from a pod whose Job is gone or has finished."""
    if pod is None or not has_tracking_finalizer(pod):
        return Result()
    owner, job = controller_of(pod), _job_of(pod, state)
    if owner is not None and owner.get("kind") != "Job":
        return Result()
    if job is not None and (not is_finished(job) or not is_ours(job)):
        return Result()
    return Result((untrack(pod),))
