"""persistentvolumeclaim-protection-controller: lets a deleted claim go once no pod uses it.

Source of the rules: kube-controller-manager `pkg/controller/volume/pvcprotection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PERSISTENT_VOLUME_CLAIMS, PODS, Resource
from muster.client.informer import Change
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Patch, Result
from muster.controllers.pod_availability import FINISHED, phase_of
from muster.controllers.runner import Request
from muster.controllers.state import State

FINALIZER = "kubernetes.io/pvc-protection"


class ClaimProtection:
    """Reconciles claims; keys are `namespace/name`."""

    name = "persistentvolumeclaim-protection-controller"
    resources: tuple[Resource, ...] = (PERSISTENT_VOLUME_CLAIMS, PODS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PERSISTENT_VOLUME_CLAIMS:
            return [Request(key_of(change.new))] if change.new is not None and is_deleting(change.new) else []
        pod = change.object
        if change.new is not None and phase_of(pod) not in FINISHED:
            return []
        return [Request(f"{namespace_of(pod)}/{name}") for name in claims_used(pod)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        claim = state[PERSISTENT_VOLUME_CLAIMS].get(key)
        if claim is None or not is_deleting(claim) or FINALIZER not in (claim["metadata"].get("finalizers") or ()):
            return Result()
        pods = state[PODS].in_namespace(namespace_of(claim))
        if any(name_of(claim) in claims_used(pod) and phase_of(pod) not in FINISHED for pod in pods):
            return Result()
        metadata = {"uid": uid_of(claim), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        patch = {"metadata": metadata}
        return Result(
            (Patch(PERSISTENT_VOLUME_CLAIMS, namespace_of(claim), name_of(claim), patch, STRATEGIC_MERGE_PATCH),)
        )


def claims_used(pod: Object) -> Iterator[str]:
    """The names of the claims that a pod mounts, those of ephemeral volumes among them."""
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim.get("claimName", "")
        elif "ephemeral" in volume:
            yield f"{name_of(pod)}-{volume['name']}"
