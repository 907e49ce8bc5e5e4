"""Pods made from templates, and hashes that tell templates apart.

Source of the rules: kube-controller-manager `pkg/controller/controller_utils.go` (GetPodFromTemplate, ComputeHash). The
hash is of the template's canonical JSON here, so it differs from upstream's, which is of a Go structure.
"""

from __future__ import annotations

from muster.api.codec import Object, canonical, copy_object
from muster.api.meta import namespace_of
from muster.api.names import MAX_NAME, safe_hash

MAX_GENERATED_BASE = 58
"""The API server cuts `generateName` to this length before it adds its random end."""


def template_hash(template: Object, collisions: int | None) -> str:
    """A hash of a template, another one for each number of collisions."""
    return safe_hash(canonical(template).decode(), "" if collisions is None else str(collisions))


def same_template(first: Object, second: Object, hash_label: str) -> bool:
    """Whether two templates are equal apart from their hash labels."""
    return _without_label(first, hash_label) == _without_label(second, hash_label)


def _without_label(template: Object, label: str) -> Object:
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value not in (None, {}, [])}
    labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != label}
    return {**template, "metadata": {**metadata, "labels": labels}}


def pod_from_template(template: Object, owner: Object, reference: Object) -> Object:
    """A new pod controlled by `owner`, with labels, annotations, finalizers and spec of the template."""
    copied = copy_object(template)
    given = copied.get("metadata") or {}
    metadata: Object = {key: given[key] for key in ("labels", "annotations", "finalizers") if given.get(key)}
    metadata["generateName"] = f"{owner['metadata']['name']}-"[:MAX_NAME]
    metadata["namespace"] = namespace_of(owner)
    metadata["ownerReferences"] = [reference]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copied.get("spec") or {}}
