"""taint-eviction-controller: pods leave nodes whose NoExecute taints they do not tolerate, or not any longer.

Source of the rules: kube-controller-manager `pkg/controller/tainteviction` (processPodOnNode, TimedWorkerQueue).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import JSON, Object, Objects
from muster.api.meta import key_of, name_of, uid_of
from muster.api.resource import NODES, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Emit, Result
from muster.controllers.node.taints import no_execute_taints, tolerates_all, toleration_s
from muster.controllers.pod_writes import delete_pod, disruption
from muster.controllers.runner import Request
from muster.controllers.state import State


class Eviction(Struct, frozen=True):
    """A decision to evict the pod of that uid. `due_s` None: it was carried out."""

    uid: str
    due_s: float | None


class TaintEviction:
    """Evicts pods by taint. Keys are those of pods; what is remembered about each is its `Eviction`.

    An eviction that has a date keeps it, whatever happens to tolerations, until the pod tolerates all taints for ever
    or one not at all. One that was carried out is repeated only if the pod was safe in between.
    """

    name = "taint-eviction-controller"
    resources: tuple[Resource, ...] = (PODS, NODES)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == NODES:
            if no_execute_taints(change.old) == no_execute_taints(change.new):
                return []
            return [Request(key_of(pod)) for pod in state[PODS].on_node(name_of(change.object))]
        key = key_of(change.object)
        if change.old is not None and change.new is not None and _placing(change.old) == _placing(change.new):
            return []
        if state.memory(key) is None and not no_execute_taints(state[NODES].get(_node_of(change.object))):
            return []
        return [Request(key)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        remembered = state.memory(key)
        planned = remembered if isinstance(remembered, Eviction) else None
        pod = state[PODS].get(key)
        if pod is None or (planned is not None and planned.uid != uid_of(pod)):
            events = _cancelling(key, planned)
            planned = None
            if pod is None:
                return Result(events)
        else:
            events = ()
        node = state[NODES].get(_node_of(pod))
        if node is None:
            # The pods of a deleted node keep their time; the pod garbage collector looks after them too.
            return _when_due(pod, planned, now, events)
        return self._on_node(pod, no_execute_taints(node), planned, now, events)

    def _on_node(
        self, pod: Object, taints: Objects, planned: Eviction | None, now: float, events: tuple[Action, ...]
    ) -> Result:
        tolerations: Objects = pod["spec"].get("tolerations") or []
        if not tolerates_all(tolerations, taints):
            if planned is not None and planned.due_s is None:
                return Result(events, memory=planned)
            return _evict(pod, now, events + _cancelling(key_of(pod), planned))
        seconds = toleration_s(tolerations, taints)
        if seconds is None:
            return Result(events + _cancelling(key_of(pod), planned))
        return _when_due(pod, planned or Eviction(uid_of(pod), now + seconds), now, events)


def _when_due(pod: Object, planned: Eviction | None, now: float, events: tuple[Action, ...]) -> Result:
    if planned is None or planned.due_s is None:
        return Result(events, memory=planned)
    if now < planned.due_s:
        return Result(events, requeue_after_s=planned.due_s - now, memory=planned)
    return _evict(pod, now, events)


def _evict(pod: Object, now: float, events: tuple[Action, ...]) -> Result:
    marking = _event(key_of(pod), "Marking for deletion Pod")
    return Result((*events, marking, *_writes(pod, now)), memory=Eviction(uid_of(pod), None))


def _writes(pod: Object, now: float) -> tuple[Action, ...]:
    message = "Taint manager: deleting due to NoExecute taint"
    return disruption(pod, now, "DeletionByTaintManager", message), delete_pod(pod)


def _cancelling(key: str, planned: Eviction | None) -> tuple[Action, ...]:
    pending = planned is not None and planned.due_s is not None
    return (_event(key, "Cancelling deletion of Pod"),) if pending else ()


def _event(key: str, what: str) -> Emit:
    namespace, _, name = key.partition("/")
    about: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}}
    return Emit(about, "Normal", "TaintManagerEviction", f"{what} {key}")


def _node_of(pod: Object) -> str:
    node: str = pod["spec"].get("nodeName") or ""
    return node


def _placing(pod: Object) -> tuple[str, JSON]:
    """What of a pod decides about its eviction."""
    return _node_of(pod), pod["spec"].get("tolerations")
