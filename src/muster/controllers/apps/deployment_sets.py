"""The ReplicaSets of a Deployment: which is the new one, their revisions and annotations, what a new one looks like.

Source of the rules: kube-controller-manager `pkg/controller/deployment/{sync.go,util/deployment_util.go}`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object, copy_object
from muster.api.meta import name_of, namespace_of, uid_of
from muster.api.names import MAX_NAME
from muster.api.resource import DEPLOYMENTS
from muster.controllers.apps.deployment_sizes import annotation_number, replicas_of, size_annotations, size_of_new
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_templates import same_template, template_hash

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
_HISTORY_LIMIT = 2000
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        HISTORY,
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    }
)


class Sets(Struct, frozen=True):
    """The ReplicaSets of a Deployment, the oldest first. `new`: that of the present template, if there is one."""

    new: Object | None
    old: tuple[Object, ...]

    @property
    def all(self) -> tuple[Object, ...]:
        """All of them."""
        return self.old if self.new is None else (*self.old, self.new)

    @property
    def active(self) -> list[Object]:
        """Those that are to have pods."""
        return [found for found in self.all if replicas_of(found) > 0]

    @property
    def active_old(self) -> list[Object]:
        """The old ones that are to have pods."""
        return [found for found in self.old if replicas_of(found) > 0]


def sets_of(deployment: Object, owned: Sequence[Object]) -> Sets:
    """Tell the new ReplicaSet from the old ones."""
    by_age = sorted(owned, key=lambda found: (found["metadata"].get("creationTimestamp") or "", name_of(found)))
    template = deployment["spec"]["template"]
    new = next((found for found in by_age if same_template(found["spec"]["template"], template, HASH_LABEL)), None)
    return Sets(new, tuple(found for found in by_age if found is not new))


def revision_of(obj: Object) -> int:
    """The revision that an object is annotated with; 0 without."""
    return annotation_number(obj, REVISION) or 0


def next_revision(sets: Sets) -> int:
    """The revision of the new ReplicaSet: one more than that of any old one."""
    return max(map(revision_of, sets.old), default=0) + 1


def annotated(deployment: Object, found: Object, revision: int, *, exists: bool) -> dict[str, str]:
    """The annotations that the new ReplicaSet should have: the Deployment's, its revision and earlier ones."""
    annotations = dict(found["metadata"].get("annotations") or {})
    for key, value in (deployment["metadata"].get("annotations") or {}).items():
        if key not in _NOT_COPIED:
            annotations[key] = value
    before = revision_of(found)
    if before < revision:
        annotations[REVISION] = str(revision)
        if exists and before:
            annotations[HISTORY] = _longer(annotations.get(HISTORY, ""), before)
    if not exists:
        annotations |= size_annotations(deployment)
    return annotations


def _longer(history: str, revision: int) -> str:
    """A history with one more revision; the oldest ones give way to the limit of its length."""
    entries = [*filter(None, history.split(",")), str(revision)]
    while len(entries) > 1 and len(",".join(entries)) > _HISTORY_LIMIT:
        del entries[0]
    return ",".join(entries)


def new_replica_set(deployment: Object, sets: Sets) -> Object:
    """The ReplicaSet of the present template, of the size that it may have at once."""
    spec = deployment["spec"]
    template = copy_object(spec["template"])
    hash_ = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: hash_}
    template["metadata"] = {**metadata, "labels": labels}
    selector = copy_object(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
    wanted: Object = {"replicas": 0, "selector": selector, "template": template}
    if spec.get("minReadySeconds"):
        wanted["minReadySeconds"] = spec["minReadySeconds"]
    found: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)[: MAX_NAME - 1 - len(hash_)]}-{hash_}",
            "namespace": namespace_of(deployment),
            "labels": labels,
            "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
        },
        "spec": wanted,
    }
    wanted["replicas"] = size_of_new(deployment, sets.old, 0)
    found["metadata"]["annotations"] = annotated(deployment, found, next_revision(sets), exists=False)
    return found


def collides(deployment: Object, existing: Object | None) -> bool:
    """Whether a ReplicaSet of the wanted name is another one's, or of another template."""
    if existing is None:
        return False
    owners = existing["metadata"].get("ownerReferences") or ()
    is_ours = any(owner.get("controller") and owner.get("uid") == uid_of(deployment) for owner in owners)
    template = deployment["spec"]["template"]
    return not (is_ours and same_template(existing["spec"]["template"], template, HASH_LABEL))
