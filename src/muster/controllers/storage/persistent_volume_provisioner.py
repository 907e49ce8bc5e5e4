"""simulated-volume-provisioner: makes the volumes that storage classes promise, for whatever provisioner they name.

It stands for the drivers of a real cluster, so that claims get volumes where there are none. A volume is made for the
node that the scheduler chose, reachable by the nodes of the same topology, and goes with its claim if the class says
so. Source of the rules: kubernetes-csi `external-provisioner` (controller, topology).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from muster.api.storage import SELECTED_NODE, class_of, waits_for_consumer
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Delete, Emit, Patch, Result
from muster.controllers.runner import Request
from muster.controllers.state import State
from muster.controllers.storage.persistent_volume_binder import PROVISIONERS

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
ZONE = "topology.kubernetes.io/zone"
_VOLUME = "volume "


class SimulatedProvisioner:
    """Reconciles claims (keys `namespace/name`) and volumes (`volume name`)."""

    name = "simulated-volume-provisioner"
    resources: tuple[Resource, ...] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, NODES, CSI_NODES)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PERSISTENT_VOLUME_CLAIMS and change.new is not None:
            return [Request(key_of(change.new))] if _is_asked_for(change.new) else []
        if resource == PERSISTENT_VOLUMES and change.new is not None:
            return [Request(_VOLUME + name_of(change.new))] if _is_to_go(change.new) else []
        return []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        if key.startswith(_VOLUME):
            volume = state[PERSISTENT_VOLUMES].get(key.removeprefix(_VOLUME))
            if volume is None or not _is_to_go(volume):
                return Result()
            return Result(
                (Delete(PERSISTENT_VOLUMES, "", name_of(volume), {"preconditions": {"uid": uid_of(volume)}}),)
            )
        claim = state[PERSISTENT_VOLUME_CLAIMS].get(key)
        if claim is None or not _is_asked_for(claim):
            return Result()
        storage_class = state[STORAGE_CLASSES].get(class_of(claim))
        return Result() if storage_class is None else Result(tuple(_provide(claim, storage_class, state)))


def _is_asked_for(claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return PROVISIONERS[-1] in annotations and not claim["spec"].get("volumeName") and not is_deleting(claim)


def _is_to_go(volume: Object) -> bool:
    """Whether it is a volume of ours whose claim is gone."""
    ours = PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
    released = (volume.get("status") or {}).get("phase") == "Released"
    return ours and released and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"


def _provide(claim: Object, storage_class: Object, state: State) -> Iterator[Action]:
    name = f"pvc-{uid_of(claim)}"
    selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    if state[PERSISTENT_VOLUMES].get(name) is not None or (waits_for_consumer(storage_class) and selected is None):
        return
    node = state[NODES].get(selected) if selected is not None else None
    if selected is not None and node is None:
        # The scheduler is to choose another node.
        yield Emit(claim, "Warning", "ProvisioningFailed", f'error getting selected node: node "{selected}" not found')
        patch = {"metadata": {"uid": uid_of(claim), "annotations": {SELECTED_NODE: None}}}
        yield Patch(PERSISTENT_VOLUME_CLAIMS, namespace_of(claim), name_of(claim), patch)
        return
    volume = _volume(name, claim, storage_class, _topology(storage_class, node, state))
    done = Emit(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
    yield Create(PERSISTENT_VOLUMES, volume, ignore_exists=True, done=done)


def _topology(storage_class: Object, node: Object | None, state: State) -> Mapping[str, list[str]]:
    """The labels that nodes must have to reach the new volume, with their values; none: all nodes reach it.

    By the keys that the driver names on the node (CSINode), else those of the class, else the zone.
    """
    allowed = [
        {expression["key"]: list(expression.get("values") or ()) for expression in term["matchLabelExpressions"]}
        for term in storage_class.get("allowedTopologies") or ()
        if term.get("matchLabelExpressions")
    ]
    if node is None:
        return allowed[0] if allowed else {}
    labels = node["metadata"].get("labels") or {}
    csi_node = state[CSI_NODES].get(name_of(node))
    drivers = () if csi_node is None else (csi_node.get("spec") or {}).get("drivers") or ()
    named = [each.get("topologyKeys") or () for each in drivers if each["name"] == storage_class.get("provisioner")]
    keys = named[0] if named else (sorted({key for term in allowed for key in term}) or (ZONE,))
    return {key: [labels[key]] for key in keys if key in labels}


def _volume(name: str, claim: Object, storage_class: Object, topology: Mapping[str, list[str]]) -> Object:
    provisioner: str = storage_class.get("provisioner") or ""
    spec: Object = {
        "capacity": {"storage": ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")},
        "accessModes": list(claim["spec"].get("accessModes") or ()),
        "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": name_of(storage_class),
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace_of(claim),
            "name": name_of(claim),
            "uid": uid_of(claim),
        },
        "csi": {"driver": provisioner, "volumeHandle": name},
    }
    if claim["spec"].get("volumeAttributesClassName"):
        spec["volumeAttributesClassName"] = claim["spec"]["volumeAttributesClassName"]
    if topology:
        expressions = [{"key": key, "operator": "In", "values": values} for key, values in topology.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
        "spec": spec,
    }
