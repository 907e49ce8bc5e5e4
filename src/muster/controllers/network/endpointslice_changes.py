"""A plan for slices as writes.

Source of the rules: `k8s.io/endpointslice/reconciler.go` (finalize): slices that would go are turned into new ones.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import ENDPOINT_SLICES
from muster.clock import rfc3339
from muster.controllers.action import Action, Create, Delete, Update
from muster.controllers.network.endpoint_pods import TRIGGER_TIME
from muster.controllers.network.endpointslice_objects import is_owned
from muster.controllers.network.endpointslice_packing import SlicePlan


def writes(plan: SlicePlan, service: Object, changed_s: float | None) -> list[Action]:
    """The writes of a plan. `changed_s`: when what they tell of happened, if it is not just a repair."""
    create, update, delete = list(plan.create), list(plan.update), []
    for slice_ in plan.delete:
        if create and is_owned(slice_, service) and slice_.get("addressType") == create[-1]["addressType"]:
            update.append(recycled(slice_, create.pop()))
        else:
            delete.append(slice_)
    # A Service that is going gets no new slices.
    made = [] if is_deleting(service) else create
    return [
        *(Create(ENDPOINT_SLICES, _at(slice_, changed_s)) for slice_ in made),
        *(Update(ENDPOINT_SLICES, _at(slice_, changed_s)) for slice_ in update),
        *(delete_slice(slice_) for slice_ in delete),
    ]


def recycled(old: Object, new: Object) -> Object:
    """The slice `old` with the content of `new`."""
    kept = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation")
    identity = {key: old["metadata"][key] for key in kept if key in old["metadata"]}
    return {**new, "metadata": {**new["metadata"], **identity}}


def delete_slice(slice_: Object) -> Delete:
    """The deletion of exactly this slice."""
    options = {"preconditions": {"uid": uid_of(slice_)}}
    return Delete(ENDPOINT_SLICES, namespace_of(slice_), name_of(slice_), options)


def _at(slice_: Object, changed_s: float | None) -> Object:
    metadata = slice_["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != TRIGGER_TIME}
    if changed_s is not None:
        annotations[TRIGGER_TIME] = rfc3339(changed_s)
    return {**slice_, "metadata": {**metadata, "annotations": annotations}}


def failure_text(service: Object, action: Action, error: str) -> str:
    """What went wrong, in upstream's words."""
    of = f"EndpointSlice for Service {key_of(service)}: {error}"
    match action:
        case Update(_, slice_):
            return f"failed to update {name_of(slice_)} {of}"
        case Delete(_, _, name):
            return f"failed to delete {name} {of}"
        case _:
            return f"failed to create {of}"
