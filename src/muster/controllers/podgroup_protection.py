"""podgroup-protection-controller: a PodGroup that is being deleted stays until no active pod belongs to it.

Source of the rules: kube-controller-manager `pkg/controller/scheduling/podgroupprotection` (workload-api.md 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of
from muster.api.resource import POD_GROUPS, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Patch, Result
from muster.controllers.pod_writes import is_finished
from muster.controllers.runner import Request
from muster.controllers.state import State

FINALIZER = "scheduling.k8s.io/podgroup-protection"


class PodGroupProtection:
    """Takes the protection finalizer off groups that are not in use. Keys are those of PodGroups.

    `groups`: the version of PodGroups to speak, one that the server serves.
    """

    name = "podgroup-protection-controller"

    def __init__(self, groups: Resource = POD_GROUPS) -> None:
        self._groups = groups
        self.resources: tuple[Resource, ...] = (PODS, groups)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PODS:
            key = f"{namespace_of(change.object)}/{_group_name(change.object)}"
            group = state[self._groups].get(key)
        else:
            key = key_of(change.object)
            group = change.new
        return [Request(key)] if group is not None and _is_candidate(group) else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        group = state[self._groups].get(key)
        if group is None or not _is_candidate(group):
            return Result()
        name = name_of(group)
        pods = state[PODS].in_namespace(namespace_of(group))
        if any(_group_name(pod) == name and not is_finished(pod) for pod in pods):
            return Result()
        finalizers = [finalizer for finalizer in group["metadata"]["finalizers"] if finalizer != FINALIZER]
        version = group["metadata"].get("resourceVersion")
        patch = {"metadata": {"resourceVersion": version, "finalizers": finalizers or None}}
        return Result((Patch(self._groups, namespace_of(group), name, patch),))


def _is_candidate(group: Object) -> bool:
    return is_deleting(group) and FINALIZER in (group["metadata"].get("finalizers") or ())


def _group_name(pod: Object) -> str:
    link: Object = pod.get("spec", {}).get("schedulingGroup") or {}
    name: str = link.get("podGroupName") or ""
    return name
