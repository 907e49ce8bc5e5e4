"""resourceclaim-controller: makes the claims that pods and PodGroups ask for by template, and frees those not in use.

Source of the rules: kube-controller-manager `pkg/controller/resourceclaim`, recordings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from muster.client.informer import Change
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Action, Create, Delete, Emit, Patch, Result
from muster.controllers.pod_writes import is_finished
from muster.controllers.runner import Request
from muster.controllers.state import State

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""The annotation that says for which entry of its owner a claim was made."""
FINALIZER = "resource.kubernetes.io/delete-protection"
"""What keeps an allocated claim."""


class ResourceClaimController:
    """Keys are `PLURAL/NAMESPACE/NAME` of pods, groups and claims.

    `groups`: the version of PodGroups to speak; None if the server serves none.
    """

    name = "resourceclaim-controller"

    def __init__(self, groups: Resource | None) -> None:
        self._groups = groups
        self._freed: dict[str, None] = {}
        """Claims, by uid, of which we took the devices: their finalizer is ours to remove. On others without devices
        the scheduler has just put it."""
        more = () if groups is None else (groups,)
        self.resources: tuple[Resource, ...] = (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, *more)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        obj = change.object
        if resource == RESOURCE_CLAIM_TEMPLATES:
            return [
                Request(_key(kind, owner))
                for kind in self._owners()
                for owner in state[kind].in_namespace(namespace_of(obj))
                if any(entry.get("resourceClaimTemplateName") == name_of(obj) for entry in _wanted(owner))
            ]
        if resource == RESOURCE_CLAIMS:
            owner = controller_of(obj)
            kinds = [kind for kind in self._owners() if owner is not None and kind.kind == owner.get("kind")]
            owned = [Request(f"{kind.plural}/{namespace_of(obj)}/{owner['name']}") for kind in kinds if owner]
            return [Request(_key(RESOURCE_CLAIMS, obj)), *owned]
        if not _wanted(obj):
            return []
        used = [Request(f"{RESOURCE_CLAIMS.plural}/{namespace_of(obj)}/{name}") for name in _claims_of(obj)]
        members = [Request(_key(PODS, pod)) for pod in _members(obj, state)] if resource == self._groups else []
        return [Request(_key(resource, obj)), *members, *used]

    def _owners(self) -> tuple[Resource, ...]:
        return (PODS,) if self._groups is None else (PODS, self._groups)

    def reconcile(self, key: str, state: State, now: float) -> Result:
        plural, _, rest = key.partition("/")
        if plural == RESOURCE_CLAIMS.plural:
            return Result(tuple(self._free(state[RESOURCE_CLAIMS].get(rest), state)))
        kind = next(kind for kind in self._owners() if kind.plural == plural)
        owner = state[kind].get(rest)
        if owner is None or is_deleting(owner) or is_finished(owner):
            return Result()
        return Result(tuple(self._serve(kind, owner, state)))

    def _serve(self, kind: Resource, owner: Object, state: State) -> Iterator[Action]:
        """Make the claims that are missing; once all are there, write their names into the status."""
        group = self._group_of(owner, state) if kind == PODS else None
        if kind == PODS and group is None and self._names_group(owner):
            return  # which claims are the group's is not known yet
        found: Objects = []
        is_complete = True
        for entry in _wanted(owner):
            template = entry.get("resourceClaimTemplateName")
            if not template:
                continue
            name = name_in_group(group, entry) if is_shared(group, entry) else _made_for(owner, entry, state)
            if name:
                found.append({"name": entry["name"], "resourceClaimName": name})
                continue
            is_complete = False
            if not is_shared(group, entry):
                yield _claim(kind, owner, entry, state)
        known = (owner.get("status") or {}).get("resourceClaimStatuses") or []
        if found and is_complete and found != known:
            order = [{"name": entry["name"]} for entry in found]
            status = {"$setElementOrder/resourceClaimStatuses": order, "resourceClaimStatuses": found}
            patch: Object = {"metadata": {"uid": uid_of(owner)}, "status": status}
            yield Patch(kind, namespace_of(owner), name_of(owner), patch, STRATEGIC_MERGE_PATCH, "status")

    def _names_group(self, pod: Object) -> bool:
        return self._groups is not None and bool((pod["spec"].get("schedulingGroup") or {}).get("podGroupName"))

    def _group_of(self, pod: Object, state: State) -> Object | None:
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        return state[self._groups].get(f"{namespace_of(pod)}/{name}") if self._groups is not None and name else None

    def _free(self, claim: Object | None, state: State) -> Iterator[Action]:
        """Take away consumers that are gone; with the last one the allocation goes, and a claim made for a pod too."""
        if claim is None:
            return
        status: Object = claim.get("status") or {}
        reserved: Objects = status.get("reservedFor") or []
        valid = [consumer for consumer in reserved if self._is_consumer(consumer, namespace_of(claim), state)]
        is_protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        has_devices = status.get("allocation") is not None
        if len(valid) < len(reserved) or (is_deleting(claim) and is_protected and not valid and has_devices):
            if not valid:
                self._freed[uid_of(claim)] = None
            yield from _released(claim, valid, is_protected)
        elif has_devices or not is_protected:
            self._freed.pop(uid_of(claim), None)
        elif is_deleting(claim) or uid_of(claim) in self._freed:
            yield _unprotected(claim)
        owner = controller_of(claim)
        if not valid and not is_deleting(claim) and owner is not None and owner.get("kind") == "Pod":
            pod = state[PODS].get(f"{namespace_of(claim)}/{owner['name']}")
            if pod is not None and uid_of(pod) == owner.get("uid") and _is_done(pod):
                options = {"preconditions": {"uid": uid_of(claim)}}
                yield Delete(RESOURCE_CLAIMS, namespace_of(claim), name_of(claim), options)

    def _is_consumer(self, consumer: Object, namespace: str, state: State) -> bool:
        resource = next((kind for kind in self._owners() if kind.plural == consumer.get("resource")), None)
        if resource is None or resource.group != (consumer.get("apiGroup") or ""):
            return True  # not ours to judge
        found = state[resource].get(f"{namespace}/{consumer.get('name')}")
        if found is None or uid_of(found) != consumer.get("uid"):
            return False
        return resource != PODS or not _is_done(found)


def _key(resource: Resource, obj: Object) -> str:
    return f"{resource.plural}/{key_of(obj)}"


def _wanted(owner: Object) -> Objects:
    """The entries of a pod or a group that ask for claims."""
    found: Objects = (owner.get("spec") or {}).get("resourceClaims") or []
    return found


def _claims_of(owner: Object) -> list[str]:
    """The names of the claims that a pod or a group uses, as far as known."""
    made = (owner.get("status") or {}).get("resourceClaimStatuses") or []
    names = [entry.get("resourceClaimName") for entry in (*_wanted(owner), *made)]
    return list(dict.fromkeys(name for name in names if name))


def _members(group: Object, state: State) -> Objects:
    return [
        pod
        for pod in state[PODS].in_namespace(namespace_of(group))
        if _wanted(pod) and (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == name_of(group)
    ]


def is_shared(group: Object | None, entry: Object) -> bool:
    """Whether a pod's entry means the claim of its group: same name, same template."""
    return group is not None and any(
        other["name"] == entry["name"]
        and other.get("resourceClaimTemplateName") == entry.get("resourceClaimTemplateName")
        for other in _wanted(group)
    )


def name_in_group(group: Object | None, entry: Object) -> str:
    """The name of the group's claim for an entry, or "" if it has none yet."""
    made = ((group or {}).get("status") or {}).get("resourceClaimStatuses") or []
    return next((other.get("resourceClaimName") or "" for other in made if other["name"] == entry["name"]), "")


def _made_for(owner: Object, entry: Object, state: State) -> str:
    """The name of the claim that was made for an entry of its owner, or ""."""
    for claim in state[RESOURCE_CLAIMS].controlled_by(uid_of(owner)):
        annotations = claim["metadata"].get("annotations") or {}
        if annotations.get(POD_CLAIM) == entry["name"] and not is_deleting(claim):
            return name_of(claim)
    return ""


def _claim(kind: Resource, owner: Object, entry: Object, state: State) -> Action:
    """The creation of a claim from its template, or an event that there is no such template."""
    name = entry["resourceClaimTemplateName"]
    template = state[RESOURCE_CLAIM_TEMPLATES].get(f"{namespace_of(owner)}/{name}")
    if template is None:
        text = f'PodResourceClaim {entry["name"]}: resource claim template "{name}" not found'
        return Emit(owner, "Warning", "FailedResourceClaimCreation", text)
    return Create(RESOURCE_CLAIMS, claim_of(kind, owner, entry, template))


def claim_of(kind: Resource, owner: Object, entry: Object, template: Object) -> Object:
    """The claim of a pod or PodGroup for an entry of its `spec.resourceClaims`, as it is created from the template."""
    spec = template["spec"]
    given: Object = copy_object(spec.get("metadata") or {})
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name_of(owner), "uid": uid_of(owner)}
    metadata: Object = {
        "generateName": f"{name_of(owner)}-{entry['name']}-",
        "namespace": namespace_of(owner),
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM: entry["name"]},
        "ownerReferences": [{**reference, "controller": True}],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": metadata,
        "spec": copy_object(spec.get("spec") or {}),
    }


def _released(claim: Object, valid: Objects, is_protected: bool) -> Iterator[Action]:
    status: Object = {"reservedFor": valid or None}
    if not valid and is_protected:
        status["allocation"] = None
    meta = {"uid": uid_of(claim), "resourceVersion": claim["metadata"]["resourceVersion"]}
    patch: Object = {"metadata": meta, "status": status}
    yield Patch(RESOURCE_CLAIMS, namespace_of(claim), name_of(claim), patch, subresource="status")


def _unprotected(claim: Object) -> Action:
    kept = [name for name in claim["metadata"]["finalizers"] if name != FINALIZER]
    meta = {"resourceVersion": claim["metadata"]["resourceVersion"], "finalizers": kept or None}
    return Patch(RESOURCE_CLAIMS, namespace_of(claim), name_of(claim), {"metadata": meta})


def _is_done(pod: Object) -> bool:
    """Whether a pod will not run (any more)."""
    return is_finished(pod) or (is_deleting(pod) and not pod["spec"].get("nodeName"))
