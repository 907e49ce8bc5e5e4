"""One look at one StatefulSet: which pod comes or goes next, and the status.

Source of the rules: kube-controller-manager `pkg/controller/statefulset/stateful_set_control.go` (updateStatefulSet).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of
from muster.api.resource import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Action, Create, Delete, Emit, Patch, Result, Update
from muster.controllers.apps.revisions import template_of
from muster.controllers.apps.statefulset_pods import (
    Spec,
    claim_owners,
    claims_of,
    is_healthy,
    is_running_available,
    is_running_ready,
    is_stale,
    missing_labels,
    new_pod,
    ordinal_of,
    revision_name,
)
from muster.controllers.percentages import scaled
from muster.controllers.pod_availability import FINISHED, next_available_s, phase_of
from muster.controllers.pod_writes import delete_pod


class Look(Struct, frozen=True):
    """A StatefulSet, its pods by ordinal, the claims of its namespace by name, and the two revisions in use."""

    owner: Object
    spec: Spec
    pods: Mapping[int, Object]
    claims: Mapping[str, Object]
    current: Object
    update: Object
    now: float

    @property
    def condemned(self) -> list[Object]:
        """The pods that are too many, the highest ordinal first."""
        wanted = self.spec.ordinals
        return [self.pods[ordinal] for ordinal in sorted(self.pods, reverse=True) if ordinal not in wanted]

    @property
    def first_unhealthy(self) -> Object | None:
        """The lowest pod that is not healthy: scaling down does not wait for it."""
        for ordinal in sorted(self.pods):
            if not is_healthy(self.pods[ordinal], self.spec, self.now):
                return self.pods[ordinal]
        return None


def pods_by_ordinal(owner: Object, pods: Sequence[Object]) -> dict[int, Object]:
    """The pods that are named after the StatefulSet, by ordinal."""
    found = ((ordinal_of(owner, pod), pod) for pod in pods)
    return {ordinal: pod for ordinal, pod in found if ordinal is not None}


def sync(look: Look) -> Result:
    """What to do about a StatefulSet."""
    actions: list[Action] = [] if is_deleting(look.owner) else _manage(look)
    status = status_of(look)
    if status != (look.owner.get("status") or {}):
        actions.append(Update(STATEFUL_SETS, {**look.owner, "status": status}, "status"))
    wait = next_available_s(look.pods.values(), look.spec.min_ready_s, look.now)
    return Result(tuple(actions), requeue_after_s=wait)


def _manage(look: Look) -> list[Action]:
    """Pods of wanted ordinals first, then those that are too many, then those of an old revision."""
    actions: list[Action] = []
    for ordinal in look.spec.ordinals:
        taken, waits = _replica(look, ordinal)
        actions += taken
        if waits and look.spec.is_ordered:
            return actions
    actions += [action for pod in look.condemned for action in _condemned_claims(look, pod)]
    removed, waits = _condemn(look)
    actions += removed
    if actions or waits:
        return actions
    return _roll(look) if look.spec.is_rolling else []


def _replica(look: Look, ordinal: int) -> tuple[list[Action], bool]:
    """What to do about the pod of a wanted ordinal, and whether higher ones must wait for it."""
    pod = look.pods.get(ordinal)
    if pod is None:
        return _create(look, ordinal), True
    if phase_of(pod) in FINISHED:
        return ([] if is_deleting(pod) else [remove_pod(look.owner, pod)]), True
    actions = _missing_claims(look, ordinal, name_of(pod)) if phase_of(pod) == "Pending" else []
    if is_deleting(pod):
        return actions, True
    waits = not is_running_available(pod, look.spec, look.now)
    if waits and look.spec.is_ordered:
        return actions, True
    labels = missing_labels(pod, ordinal)
    if labels:
        patch = {"metadata": {"labels": labels}}
        actions.append(Patch(PODS, namespace_of(pod), name_of(pod), patch, STRATEGIC_MERGE_PATCH))
    return [*actions, *_claim_updates(look, ordinal, pod, is_condemned=False)], waits


def _create(look: Look, ordinal: int) -> list[Action]:
    owner = look.owner
    name = f"{name_of(owner)}-{ordinal}"
    claims = [look.claims.get(name_of(claim)) for claim in claims_of(owner, ordinal)]
    if any(claim is not None and is_stale(claim, name, None) for claim in claims):
        return []
    revision = look.current if _needs_current(look, ordinal) else look.update
    pod = new_pod(owner, template_of(revision), name_of(revision), ordinal)
    create = Create(
        PODS,
        pod,
        done=_event(owner, "SuccessfulCreate", f"Create Pod {name}", "successful"),
        failed=_event(owner, "FailedCreate", f"Create Pod {name}", "failed error: {error}"),
    )
    return [*_missing_claims(look, ordinal, name), create]


def _needs_current(look: Look, ordinal: int) -> bool:
    """Whether a pod is made of the revision before the present one: below the partition of a rolling update."""
    strategy = look.owner["spec"].get("updateStrategy") or {}
    if not look.spec.is_rolling:
        return False
    if strategy.get("rollingUpdate") is None:
        count = (look.owner.get("status") or {}).get("currentReplicas") or 0
        return ordinal < look.spec.start + int(count)
    return ordinal < look.spec.start + look.spec.partition


def _event(owner: Object, reason: str, what: str, how: str) -> Emit:
    type_ = "Warning" if reason.startswith("Failed") else "Normal"
    return Emit(owner, type_, reason, f"{what} in StatefulSet {name_of(owner)} {how}")


def _missing_claims(look: Look, ordinal: int, pod_name: str) -> list[Action]:
    return [
        Create(
            PERSISTENT_VOLUME_CLAIMS,
            claim,
            ignore_exists=True,
            done=_event(look.owner, "SuccessfulCreate", f"Create Claim {name_of(claim)} Pod {pod_name}", "success"),
            failed=_event(
                look.owner, "FailedCreate", f"Create Claim {name_of(claim)} Pod {pod_name}", "failed error: {error}"
            ),
        )
        for claim in claims_of(look.owner, ordinal)
        if name_of(claim) not in look.claims
    ]


def _claim_updates(look: Look, ordinal: int, pod: Object, *, is_condemned: bool) -> list[Action]:
    """The updates that give a pod's claims the owners that the retention policy asks for."""
    updates: list[Action] = []
    for wanted in claims_of(look.owner, ordinal):
        claim = look.claims.get(name_of(wanted))
        if claim is None:
            continue
        owners = claim_owners(look.owner, look.spec, claim, pod, is_condemned=is_condemned)
        if owners != (claim["metadata"].get("ownerReferences") or []):
            metadata = {key: value for key, value in claim["metadata"].items() if key != "ownerReferences"}
            if owners:
                metadata["ownerReferences"] = owners
            updates.append(Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata}))
    return updates


def _condemned_claims(look: Look, pod: Object) -> list[Action]:
    ordinal = ordinal_of(look.owner, pod)
    return [] if ordinal is None else _claim_updates(look, ordinal, pod, is_condemned=True)


def remove_pod(owner: Object, pod: Object) -> Delete:
    """The deletion of a pod, with its events."""
    delete = delete_pod(pod)
    what = f"Delete Pod {delete.name}"
    done = _event(owner, "SuccessfulDelete", what, "successful")
    failed = _event(owner, "FailedDelete", what, "failed error: {error}")
    return Delete(delete.resource, delete.namespace, delete.name, delete.options, done, failed)


def _condemn(look: Look) -> tuple[list[Action], bool]:
    """The deletions of pods that are too many, and whether an update must wait for them."""
    removed: list[Action] = []
    for pod in look.condemned:
        if is_deleting(pod):
            if look.spec.is_ordered:
                return removed, True
            continue
        is_up = is_running_ready(pod) and is_running_available(pod, look.spec, look.now)
        if look.spec.is_ordered and not is_up and pod is not look.first_unhealthy:
            return removed, True
        removed.append(remove_pod(look.owner, pod))
        if look.spec.is_ordered:
            return removed, True
    return removed, False


def _roll(look: Look) -> list[Action]:
    """Delete pods of old revisions from the highest ordinal down, so that not too many are unavailable."""
    limit = look.spec.max_unavailable
    allowed = 1 if limit is None else max(1, scaled(limit, look.spec.replicas, up=True))
    unavailable = sum(
        not is_healthy(look.pods[ordinal], look.spec, look.now)
        for ordinal in look.spec.ordinals
        if ordinal in look.pods
    )
    removed: list[Action] = []
    for ordinal in reversed(look.spec.ordinals):
        if ordinal < look.spec.start + look.spec.partition:
            break
        pod = look.pods.get(ordinal)
        if pod is None:
            break
        healthy = is_healthy(pod, look.spec, look.now)
        if revision_name(pod) != name_of(look.update) and not is_deleting(pod):
            if healthy and unavailable >= allowed:
                break
            removed.append(remove_pod(look.owner, pod))
            unavailable += healthy
            if allowed == 1:
                break
        elif not healthy and allowed == 1:
            break
    return removed


def status_of(look: Look) -> Object:
    """The status that the pods give."""
    pods = list(look.pods.values())
    kept = [revision_name(pod) for pod in pods if not is_deleting(pod)]
    current, update = name_of(look.current), name_of(look.update)
    counts = {
        "readyReplicas": sum(map(is_running_ready, pods)),
        "currentReplicas": kept.count(current),
        "updatedReplicas": kept.count(update),
    }
    wanted = look.spec.replicas
    is_done = counts["updatedReplicas"] == counts["readyReplicas"] == len(pods) == wanted
    if look.spec.is_rolling and is_done and current != update:
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    old = look.owner.get("status") or {}
    return {
        "observedGeneration": look.owner["metadata"].get("generation", 0),
        "replicas": len(pods),
        **{name: count for name, count in counts.items() if count},
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": old.get("collisionCount") or 0,
        "availableReplicas": sum(is_running_available(pod, look.spec, look.now) for pod in pods),
        **({"conditions": old["conditions"]} if old.get("conditions") else {}),
    }
