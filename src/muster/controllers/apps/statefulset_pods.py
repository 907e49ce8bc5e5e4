"""The pods of a StatefulSet: their ordinals, names and claims.

Source of the rules: kube-controller-manager `pkg/controller/statefulset/stateful_set_utils.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from muster.api.codec import Object, copy_object
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.resource import PODS, STATEFUL_SETS
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_availability import is_available, is_ready, phase_of
from muster.controllers.pod_templates import pod_from_template

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"
_ORDINAL = re.compile(r"(.*)-([0-9]+)")


class Spec(Struct, frozen=True):
    """What decides about the pods of a StatefulSet."""

    replicas: int
    start: int
    is_ordered: bool
    min_ready_s: float
    is_rolling: bool
    partition: int
    max_unavailable: int | str | None
    deletes_when_deleted: bool
    deletes_when_scaled: bool

    @classmethod
    def of(cls, owner: Object) -> Spec:
        """Read a StatefulSet."""
        spec = owner["spec"]
        replicas, strategy = spec.get("replicas"), spec.get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        return cls(
            replicas=1 if replicas is None else replicas,
            start=(spec.get("ordinals") or {}).get("start") or 0,
            is_ordered=spec.get("podManagementPolicy") != "Parallel",
            min_ready_s=float(spec.get("minReadySeconds") or 0),
            is_rolling=strategy.get("type") != "OnDelete",
            partition=rolling.get("partition") or 0,
            max_unavailable=rolling.get("maxUnavailable"),
            deletes_when_deleted=retention.get("whenDeleted") == "Delete",
            deletes_when_scaled=retention.get("whenScaled") == "Delete",
        )

    @property
    def ordinals(self) -> range:
        """The ordinals that are to exist."""
        return range(self.start, self.start + self.replicas)


def ordinal_of(owner: Object, pod: Object) -> int | None:
    """The ordinal in a pod's name; None if it is not named after the StatefulSet."""
    found = _ORDINAL.fullmatch(name_of(pod))
    return int(found.group(2)) if found is not None and found.group(1) == name_of(owner) else None


def revision_name(pod: Object) -> str:
    """The revision that a pod was made of."""
    name: str = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL, "")
    return name


def is_running_ready(pod: Object) -> bool:
    """Whether the pod runs and is ready."""
    return phase_of(pod) == "Running" and is_ready(pod)


def is_running_available(pod: Object, spec: Spec, now: float) -> bool:
    """Whether the pod runs and has been ready for long enough."""
    return phase_of(pod) == "Running" and is_available(pod, spec.min_ready_s, now)


def is_healthy(pod: Object, spec: Spec, now: float) -> bool:
    """Whether the pod is available and stays."""
    return is_running_available(pod, spec, now) and not is_deleting(pod)


def new_pod(owner: Object, template: Object, revision: str, ordinal: int) -> Object:
    """The pod of an ordinal, made of a revision's template."""
    pod = pod_from_template(template, owner, owner_reference(owner, STATEFUL_SETS))
    name = f"{name_of(owner)}-{ordinal}"
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["name"] = name
    metadata["labels"] = {
        **metadata.get("labels", {}),
        POD_NAME_LABEL: name,
        INDEX_LABEL: str(ordinal),
        REVISION_LABEL: revision,
    }
    spec["hostname"] = name
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    volumes = list(_claim_volumes(owner, ordinal))
    claimed = {volume["name"] for volume in volumes}
    volumes += [volume for volume in spec.get("volumes") or () if volume["name"] not in claimed]
    if volumes:
        spec["volumes"] = volumes
    return pod


def missing_labels(pod: Object, ordinal: int) -> dict[str, str]:
    """The labels of its identity that a pod lacks."""
    wanted = {POD_NAME_LABEL: name_of(pod), INDEX_LABEL: str(ordinal)}
    labels = pod["metadata"].get("labels") or {}
    return {key: value for key, value in wanted.items() if labels.get(key) != value}


def claim_name(owner: Object, template: Object, ordinal: int) -> str:
    """The name of a pod's claim."""
    return f"{name_of(template)}-{name_of(owner)}-{ordinal}"


def _claim_volumes(owner: Object, ordinal: int) -> Iterator[Object]:
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        yield {
            "name": name_of(template),
            "persistentVolumeClaim": {"claimName": claim_name(owner, template, ordinal)},
        }


def claims_of(owner: Object, ordinal: int) -> Iterator[Object]:
    """The claims of a pod, as they are made: with the labels that the StatefulSet selects."""
    selected = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        claim = copy_object(template)
        given = claim.get("metadata") or {}
        metadata = {key: given[key] for key in ("annotations",) if given.get(key)}
        metadata["name"] = claim_name(owner, template, ordinal)
        metadata["namespace"] = namespace_of(owner)
        metadata["labels"] = {**(given.get("labels") or {}), **selected}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": claim.get("spec") or {},
        }


def claim_owners(owner: Object, spec: Spec, claim: Object, pod: Object, *, is_condemned: bool) -> list[Object]:
    """The owner references that the retention policy gives to a claim; those of others stay.

    `is_condemned`: the pod goes because the StatefulSet was scaled down.
    """
    names = {("StatefulSet", name_of(owner)), ("Pod", name_of(pod))}
    kept = [
        entry
        for entry in claim["metadata"].get("ownerReferences") or ()
        if (entry.get("kind"), entry.get("name")) not in names
    ]
    if spec.deletes_when_scaled and is_condemned:
        return [*kept, owner_reference(pod, PODS)]
    return [*kept, owner_reference(owner, STATEFUL_SETS)] if spec.deletes_when_deleted else kept


def is_stale(claim: Object, pod_name: str, pod: Object | None) -> bool:
    """Whether a claim belongs to an earlier pod of that name, and goes with it."""
    uid = uid_of(pod) if pod is not None else ""
    return any(
        entry.get("kind") == "Pod" and entry.get("name") == pod_name and entry.get("uid") != uid
        for entry in claim["metadata"].get("ownerReferences") or ()
    )
