"""persistentvolume-protection-controller: lets a deleted volume go once it is bound to no claim.

Source of the rules: kube-controller-manager `pkg/controller/volume/pvprotection`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, uid_of
from muster.api.resource import PERSISTENT_VOLUMES, Resource
from muster.client.informer import Change
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Patch, Result
from muster.controllers.runner import Request
from muster.controllers.state import State

FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtection:
    """Reconciles volumes; keys are their names."""

    name = "persistentvolume-protection-controller"
    resources: tuple[Resource, ...] = (PERSISTENT_VOLUMES,)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        return [Request(name_of(change.new))] if change.new is not None and _may_go(change.new) else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        volume = state[PERSISTENT_VOLUMES].get(key)
        if volume is None or not _may_go(volume):
            return Result()
        patch = {"metadata": {"uid": uid_of(volume), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        return Result((Patch(PERSISTENT_VOLUMES, "", key, patch, STRATEGIC_MERGE_PATCH),))


def _may_go(volume: Object) -> bool:
    is_held = FINALIZER in (volume["metadata"].get("finalizers") or ())
    return is_held and is_deleting(volume) and (volume.get("status") or {}).get("phase") != "Bound"
