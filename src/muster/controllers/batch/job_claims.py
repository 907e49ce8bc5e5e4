"""Which pods are a Job's: orphans that match are adopted, pods that no longer match are let go.

Source of the rules: kube-controller-manager `pkg/controller/controller_ref_manager.go` (PodControllerRefManager).
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.resource import PODS
from muster.api.selectors import LabelSelector, label_selector
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Patch
from muster.controllers.batch.job_creation import owner_reference
from muster.controllers.batch.job_pods import TRACKING_FINALIZER, has_ended, has_tracking_finalizer


def selector_of(job: Object) -> LabelSelector:
    """What the Job selects: nothing without a selector."""
    return label_selector(job["spec"].get("selector"))


def claims(job: Object, owned: Iterable[Object], orphans: Iterable[Object]) -> list[Patch]:
    """The patches that adopt and release pods."""
    if is_deleting(job):
        return []
    selector = selector_of(job)
    released = [_release(job, pod) for pod in owned if not selector.matches(pod["metadata"].get("labels"))]
    adopted = [
        _adopt(job, pod)
        for pod in orphans
        if not is_deleting(pod) and not has_ended(pod) and selector.matches(pod["metadata"].get("labels"))
    ]
    return [*released, *adopted]


def _adopt(job: Object, pod: Object) -> Patch:
    metadata = {"uid": uid_of(pod), "ownerReferences": [owner_reference(job)], "finalizers": [TRACKING_FINALIZER]}
    return _patch(pod, {"metadata": metadata})


def _release(job: Object, pod: Object) -> Patch:
    metadata: Object = {"uid": uid_of(pod), "ownerReferences": [{"$patch": "delete", "uid": uid_of(job)}]}
    if has_tracking_finalizer(pod):
        metadata["$deleteFromPrimitiveList/finalizers"] = [TRACKING_FINALIZER]
    return _patch(pod, {"metadata": metadata})


def untrack(pod: Object) -> Patch:
    """The patch that takes the tracking finalizer away."""
    metadata = {"uid": uid_of(pod), "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}
    return _patch(pod, {"metadata": metadata})


def _patch(pod: Object, patch: Object) -> Patch:
    return Patch(PODS, namespace_of(pod), name_of(pod), patch, STRATEGIC_MERGE_PATCH)
