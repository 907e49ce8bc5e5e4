"""The devices that a pod asks for: its claims by name or, if they are its own and empty, by what they say.

Source: `dynamic-resource-allocation/resourceclaim` (Name, IsForPod) and kube-scheduler `dynamicresources` (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import controller_of, key_of, name_of, namespace_of, uid_of
from muster.engine.devices.classes import ClassBook
from muster.engine.devices.extended import Extended, extended_of
from muster.engine.devices.features import OURS, Features
from muster.engine.devices.requests import ClaimSpec, claim_spec

ClaimLookup = Callable[[str], Object | None]
"""A ResourceClaim by `namespace/name`."""


class ClaimUse(Struct, frozen=True):
    """A claim of a pod: `key` (`namespace/name`) of one that others may use or that has devices already, else `spec`.

    `label`: how messages name it; `is_shared`: it may be for several pods.
    """

    key: str
    label: str
    spec: ClaimSpec | None = None
    is_shared: bool = False


class DeviceDemand(Struct, frozen=True):
    """What a pod asks for; pods whose own claims say the same are equal. `problem`: why its claims cannot be used."""

    claims: tuple[ClaimUse, ...] = ()
    extended: Extended | None = None
    extended_label: str = ""
    problem: str = ""
    features: Features = OURS

    @property
    def resources(self) -> frozenset[str]:
        """The extended resources that stand for devices."""
        return frozenset() if self.extended is None else frozenset(name for name, _ in self.extended.classes)


class PodClaim(Struct, frozen=True):
    """An entry of `spec.resourceClaims` with the claim that it means; `is_generated`: from a template."""

    entry: str
    key: str
    is_generated: bool


class ClaimProblem(Exception):
    """The claims of a pod cannot be used yet; the text is kube-scheduler's. Retryable when claims or the pod change."""


def pod_claims(pod: Object) -> Iterator[PodClaim]:
    """The claims of a pod in order, without those that it turned out not to need. Raises ClaimProblem."""
    status = pod.get("status") or {}
    names = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("name") or ""
        if entry.get("resourceClaimName"):
            yield PodClaim(name, f"{namespace_of(pod)}/{entry['resourceClaimName']}", False)
        elif not entry.get("resourceClaimTemplateName"):
            raise ClaimProblem(f'pod "{key_of(pod)}", spec.resourceClaim "{name}": unknown pod resource claim type')
        elif name not in names:
            raise ClaimProblem(f'pod "{key_of(pod)}": ResourceClaim not created yet')
        elif names[name]:
            yield PodClaim(name, f"{namespace_of(pod)}/{names[name]}", True)


def claims_held(pod: Object) -> DeviceDemand | None:
    """The claims of a pod that runs, each by its name; None if they are not known."""
    try:
        return DeviceDemand(tuple(ClaimUse(each.key, each.key) for each in pod_claims(pod)))
    except ClaimProblem:
        return None


def claims_problem(pod: Object, claim: ClaimLookup) -> str:
    """Why the claims of a pod cannot be used yet; "" if they can."""
    try:
        for each in pod_claims(pod):
            _usable(pod, each, claim)
    except ClaimProblem as problem:
        return str(problem)
    return ""


def _usable(pod: Object, use: PodClaim, claim: ClaimLookup) -> Object:
    found = claim(use.key)
    if found is None:
        raise ClaimProblem(f'could not find ResourceClaim "{use.key}"')
    if found["metadata"].get("deletionTimestamp"):
        raise ClaimProblem(f'resourceclaim "{name_of(found)}" is being deleted')
    if use.is_generated and not (is_owned_by(found, pod) or _is_of_group(found, pod)):
        raise ClaimProblem(f"ResourceClaim {use.key} was not created for Pod {key_of(pod)} (Pod is not owner)")
    return found


def is_owned_by(claim: Object, pod: Object) -> bool:
    """Whether the claim was made for the pod."""
    owner = controller_of(claim)
    return owner is not None and owner.get("uid") == uid_of(pod)


def _is_of_group(claim: Object, pod: Object) -> bool:
    """Whether the claim was made for the pod's PodGroup."""
    owner = controller_of(claim)
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return owner is not None and owner.get("kind") == "PodGroup" and bool(group) and owner.get("name") == group


def demand_of(
    pod: Object, claim: ClaimLookup, classes: ClassBook, features: Features = OURS, *, by_name: bool = False
) -> DeviceDemand | None:
    """What a pod asks for with the claims and classes of this moment; None if that is nothing.

    `by_name`: also claims that are its own are given by name.
    """
    extended = extended_of(pod["spec"], classes) if features.extended_resources else None
    if not pod["spec"].get("resourceClaims") and extended is None:
        return None
    uses: list[ClaimUse] = []
    problem = ""
    try:
        for each in pod_claims(pod):
            found = _usable(pod, each, claim)
            use = _use(pod, each, found, features)
            uses.append(ClaimUse(each.key, each.key, None, use.is_shared) if by_name else use)
    except ClaimProblem as error:
        problem = str(error)
    label = f"{namespace_of(pod)}/" if extended is not None else ""
    return DeviceDemand(tuple(uses), extended, label, problem, features)


def _use(pod: Object, use: PodClaim, claim: Object, features: Features) -> ClaimUse:
    is_empty = not (claim.get("status") or {}).get("allocation")
    if use.is_generated and is_empty and is_owned_by(claim, pod) and not features.upstream:
        return ClaimUse("", use.entry, claim_spec(claim))
    return ClaimUse(use.key, use.key, None, not features.upstream and not is_owned_by(claim, pod))
