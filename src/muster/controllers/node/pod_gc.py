"""pod-garbage-collector-controller: removes pods that nobody else will remove.

These are: pods of nodes that are gone; terminating pods on nodes that are out of service; terminating pods that never
got a node; the oldest finished pods when there are too many.
Source of the rules: kube-controller-manager `pkg/controller/podgc`. It looks at all pods every 20 s; here a pod that
may need removal is looked at 10 s after what made it so, the mean of that, and nothing is done while there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import has_condition, is_deleting, key_of, name_of
from muster.api.resource import NODES, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Patch, Result
from muster.controllers.node.taints import OUT_OF_SERVICE, taints_of
from muster.controllers.pod_writes import delete_pod, disruption, is_finished, patch_status
from muster.controllers.runner import Request
from muster.controllers.state import Read, State

LOOK_AFTER_S = 10.0
QUARANTINE_S = 40.0
"""How long a node must be missing before its pods are removed."""

FINISHED_KEY = "finished"
"""The key of the threshold of finished pods; all others are those of pods and have a slash."""


class PodGarbageCollector:
    """Removes pods. What is remembered about a pod is since when its node was seen missing."""

    name = "pod-garbage-collector-controller"
    resources: tuple[Resource, ...] = (PODS, NODES)

    def __init__(self, terminated_pod_threshold: int = 12500) -> None:
        self._threshold = terminated_pod_threshold

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == NODES:
            if change.new is not None and not _is_out_of_service(change.new):
                return []
            return [Request(key_of(pod), LOOK_AFTER_S) for pod in state[PODS].on_node(name_of(change.object))]
        pod = change.new
        if pod is None:
            return [Request(key_of(change.object))] if state.memory(key_of(change.object)) is not None else []
        found = [Request(key_of(pod), LOOK_AFTER_S)] if _may_need_removal(pod, state) else []
        if 0 < self._threshold < len(state[PODS]) and is_finished(pod):
            found.append(Request(FINISHED_KEY, LOOK_AFTER_S))
        return found

    def reads(self, key: str, state: State) -> Iterable[Read]:
        pod = state[PODS].get(key)
        return [_read_node(pod)] if pod is not None and _is_orphan(pod, state) else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        if key == FINISHED_KEY:
            return Result(tuple(delete_pod(pod, gracePeriodSeconds=0) for pod in self._surplus(state)))
        pod = state[PODS].get(key)
        if pod is None or not _may_need_removal(pod, state):
            return Result()
        if not _is_orphan(pod, state):
            return Result(_fail_and_delete(pod))
        since = state.memory(key)
        if not isinstance(since, float):
            since = now
        if now < since + QUARANTINE_S:
            return Result(requeue_after_s=since + QUARANTINE_S - now, memory=since)
        if not state.was_read(_read_node(pod)) or state.live(_read_node(pod)) is not None:
            return Result(requeue_after_s=QUARANTINE_S, memory=now)
        why = disruption(pod, now, "DeletionByPodGC", "PodGC: node no longer exists", phase="Failed")
        return Result(_fail_and_delete(pod, why))

    def _surplus(self, state: State) -> list[Object]:
        """The finished pods above the threshold: evicted ones first, then the oldest."""
        finished = [pod for pod in state[PODS].all() if is_finished(pod) and not _is_done(pod)]
        number = len(finished) - self._threshold
        return sorted(finished, key=_removal_order)[:number] if number > 0 else []


def _may_need_removal(pod: Object, state: State) -> bool:
    if _is_done(pod):
        return False
    node = _node_of(pod)
    if not node:
        return is_deleting(pod)
    found = state[NODES].get(node)
    return found is None or (is_deleting(pod) and _is_out_of_service(found))


def _is_orphan(pod: Object, state: State) -> bool:
    node = _node_of(pod)
    return bool(node) and state[NODES].get(node) is None


def _is_done(pod: Object) -> bool:
    """Whether all that this controller can do was done: only finalizers keep the pod."""
    return is_deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds") == 0 and is_finished(pod)


def _is_out_of_service(node: Object) -> bool:
    tainted = any(taint.get("key") == OUT_OF_SERVICE for taint in taints_of(node))
    return tainted and not has_condition(node, "Ready")


def _fail_and_delete(pod: Object, why: Patch | None = None) -> tuple[Action, ...]:
    fail = () if is_finished(pod) else (why or patch_status(pod, phase="Failed"),)
    return (*fail, delete_pod(pod, gracePeriodSeconds=0))


def _removal_order(pod: Object) -> tuple[bool, str, str]:
    evicted = pod["status"].get("phase") == "Failed" and pod["status"].get("reason") == "Evicted"
    return not evicted, pod["metadata"].get("creationTimestamp") or "", key_of(pod)


def _read_node(pod: Object) -> Read:
    return Read(NODES, "", _node_of(pod))


def _node_of(pod: Object) -> str:
    node: str = pod["spec"].get("nodeName") or ""
    return node
