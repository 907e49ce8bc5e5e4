"""resourcequota-controller: says in each ResourceQuota what is used.

Admission charges new objects at once; what was given back, and quotas that are new or changed, are found here.
Source of the rules: kube-controller-manager `pkg/controller/resourcequota`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import key_of, namespace_of
from muster.api.quantity import Quantity
from muster.api.quotas import ZERO, add, counts, covers, usage_of
from muster.api.resource import PODS, RESOURCE_QUOTAS, Resource
from muster.client.informer import Change
from muster.controllers.action import Result, Update
from muster.controllers.kinds import Kinds
from muster.controllers.pod_writes import is_finished
from muster.controllers.runner import Request
from muster.controllers.state import State

REPLENISH_S = 1.0
"""Changes of what is counted are gathered for so long."""

RESYNC_S = 300.0
"""So often everything is counted anew."""


class QuotaController:
    """Reconciles ResourceQuotas; keys are `namespace/name`."""

    name = "resourcequota-controller"

    def __init__(self, kinds: Kinds) -> None:
        self._counted = tuple(resource for resource in kinds.watched if resource.namespaced)
        self.resources: tuple[Resource, ...] = tuple(dict.fromkeys((RESOURCE_QUOTAS, PODS, *self._counted)))

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        found: list[Request] = []
        if resource == RESOURCE_QUOTAS and change.new is not None and _is_unseen(change.new):
            found.append(Request(key_of(change.new)))
        if _gives_back(resource, change):
            quotas = state[RESOURCE_QUOTAS].in_namespace(namespace_of(change.object))
            found += [
                Request(key_of(quota), REPLENISH_S)
                for quota in quotas
                if any(counts(quota, name, resource.group, resource.plural) for name in _hard(quota))
            ]
        return found

    def reconcile(self, key: str, state: State, now: float) -> Result:
        quota = state[RESOURCE_QUOTAS].get(key)
        if quota is None:
            return Result()
        hard = _hard(quota)
        used = self._used(quota, state)
        status = {"hard": dict(hard), "used": {name: str(used.get(name, ZERO)) for name in sorted(hard)}}
        update = Update(RESOURCE_QUOTAS, {**quota, "status": status}, "status")
        is_right = status == (quota.get("status") or {})
        return Result(() if is_right else (update,), RESYNC_S, periodic=True)

    def _used(self, quota: Object, state: State) -> dict[str, Quantity]:
        total: dict[str, Quantity] = {}
        hard = _hard(quota)
        for resource in self._counted:
            names = [name for name in hard if counts(quota, name, resource.group, resource.plural)]
            if not names:
                continue
            for obj in state[resource].in_namespace(namespace_of(quota)):
                if covers(quota, resource.plural, obj):
                    usage = usage_of(resource.group, resource.plural, obj)
                    total = add(total, {name: usage[name] for name in names if name in usage})
        return total


def _hard(quota: Object) -> dict[str, str]:
    hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
    return hard


def _is_unseen(quota: Object) -> bool:
    """Whether the status does not yet show the limits that are asked for."""
    status = quota.get("status") or {}
    return status.get("hard") != _hard(quota) or sorted(status.get("used") or ()) != sorted(_hard(quota))


def _gives_back(resource: Resource, change: Change) -> bool:
    """Whether less may be used after a change, or something else: creations were charged at admission."""
    if change.new is None:
        return True
    if resource == PODS:
        return change.old is not None and is_finished(change.new) and not is_finished(change.old)
    old = change.old
    return old is not None and old.get("spec") != change.new.get("spec")
