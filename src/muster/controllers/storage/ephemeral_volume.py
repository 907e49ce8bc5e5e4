"""ephemeral-volume-controller: makes the claims of pods' ephemeral volumes.

Source of the rules: kube-controller-manager `pkg/controller/volume/ephemeral`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object, copy_object
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PERSISTENT_VOLUME_CLAIMS, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Emit, Result
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_availability import FINISHED, phase_of
from muster.controllers.runner import Request
from muster.controllers.state import State


class EphemeralVolumeController:
    """Reconciles pods; keys are `namespace/name`."""

    name = "ephemeral-volume-controller"
    resources: tuple[Resource, ...] = (PODS, PERSISTENT_VOLUME_CLAIMS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PODS:
            pod = change.new
            return [Request(key_of(pod))] if pod is not None and change.old is None and _templates(pod) else []
        owner = controller_of(change.object)
        if change.new is not None or owner is None or owner.get("kind") != PODS.kind:
            return []
        return [Request(f"{namespace_of(change.object)}/{owner['name']}")]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        pod = state[PODS].get(key)
        if pod is None or is_deleting(pod) or phase_of(pod) in FINISHED:
            return Result()
        actions: list[Action] = []
        for name, template in _templates(pod):
            claim = state[PERSISTENT_VOLUME_CLAIMS].get(f"{namespace_of(pod)}/{name}")
            if claim is None:
                actions.append(Create(PERSISTENT_VOLUME_CLAIMS, _claim(name, template, pod), ignore_exists=True))
            elif (controller_of(claim) or {}).get("uid") != uid_of(pod):
                text = f"PVC {key_of(claim)} was not created for pod {key_of(pod)} (pod is not owner)"
                actions.append(Emit(pod, "Warning", "EphemeralVolumeConflict", text))
        return Result(tuple(actions))


def _templates(pod: Object) -> list[tuple[str, Object]]:
    """The claims that a pod's ephemeral volumes need, by name."""
    return [
        (f"{name_of(pod)}-{volume['name']}", volume["ephemeral"]["volumeClaimTemplate"])
        for volume in pod["spec"].get("volumes") or ()
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    ]


def _claim(name: str, template: Object, pod: Object) -> Object:
    given = template.get("metadata") or {}
    metadata: Object = {
        "name": name,
        "namespace": namespace_of(pod),
        "ownerReferences": [owner_reference(pod, PODS)],
        **{key: dict(given[key]) for key in ("labels", "annotations") if given.get(key)},
    }
    spec = copy_object(template.get("spec") or {})
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
