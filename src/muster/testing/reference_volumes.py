"""Reference rules about volumes: claims and the volumes they have or may get, disks, limits, zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.api.codec import Object
from muster.api.meta import controller_of, name_of, namespace_of, uid_of
from muster.api.quantity import parse_quantity
from muster.api.selectors import label_selector, node_selector_term
from muster.testing.reference_nodes import Verdict, labels_of
from muster.testing.reference_pods import World

SELECTED_NODE = "volume.kubernetes.io/selected-node"
ZONE_KEYS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


def _find(world: World, kind: str, name: str, namespace: str = "") -> Object | None:
    for obj in world.objects.get(kind, ()):
        if name_of(obj) == name and namespace_of(obj) == namespace:
            return obj
    return None


def _claim_names(pod: Object) -> list[tuple[str, bool]]:
    """(claim name, whether it is made for the pod) of the pod's volumes."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append((volume["persistentVolumeClaim"]["claimName"], False))
        elif volume.get("ephemeral"):
            found.append((f"{name_of(pod)}-{volume['name']}", True))
    return found


def _class_name(obj: Object) -> str:
    return str(obj["spec"].get("storageClassName") or "")


def _size(obj: Object, *path: str) -> int | None:
    value = obj["spec"]
    for part in path:
        value = value.get(part) or {}
    return parse_quantity(value).units() if value else None


def _is_bound(claim: Object) -> bool:
    done = "pv.kubernetes.io/bind-completed" in (claim["metadata"].get("annotations") or {})
    return bool(claim["spec"].get("volumeName")) and done


def _waits(claim: Object, world: World) -> bool:
    storage_class = _find(world, "storageClasses", _class_name(claim))
    late = storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return late and not claim["spec"].get("volumeName")


# -- before any node -------------------------------------------------------------------------------------------------


def restrictions_verdict(pod: Object, world: World) -> str:
    """Why VolumeRestrictions refuses the pod whatever the nodes are; "" if it does not."""
    for name, ephemeral in _claim_names(pod):
        if not ephemeral and _find(world, "persistentVolumeClaims", name, namespace_of(pod)) is None:
            return f'persistentvolumeclaim "{name}" not found'
    return ""


def binding_verdict(pod: Object, world: World) -> str:
    """Why VolumeBinding does."""
    claims = []
    for name, ephemeral in _claim_names(pod):
        claim = _find(world, "persistentVolumeClaims", name, namespace_of(pod))
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return f'persistentvolumeclaim "{name}" not found'
        if (claim.get("status") or {}).get("phase") == "Lost":
            volume = claim["spec"].get("volumeName")
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
        owner = controller_of(claim)
        if ephemeral and (owner is None or owner.get("uid") != uid_of(pod)):
            where = namespace_of(pod)
            return f"PVC {where}/{name} was not created for pod {where}/{name_of(pod)} (pod is not owner)"
        claims.append(claim)
    if any(not _is_bound(claim) and not _waits(claim, world) for claim in claims):
        return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def zone_verdict(pod: Object, world: World) -> str:
    """Why VolumeZone does."""
    for name, ephemeral in _claim_names(pod):
        claim = None if ephemeral else _find(world, "persistentVolumeClaims", name, namespace_of(pod))
        volume = "" if claim is None else claim["spec"].get("volumeName")
        if volume and _find(world, "persistentVolumes", volume) is None:
            return f'persistentvolume "{volume}" not found'
    return ""


# -- on a node -------------------------------------------------------------------------------------------------------


def disk_conflict(pod: Object, pods: Sequence[Object], world: World) -> Verdict | None:
    """VolumeRestrictions; `pods`: those on the node."""
    for volume in pod["spec"].get("volumes") or ():
        for other in pods:
            if any(_same_disk(volume, its) for its in other["spec"].get("volumes") or ()):
                return ("node(s) had no available disk",), True
    for name, ephemeral in _claim_names(pod):
        claim = _find(world, "persistentVolumeClaims", name, namespace_of(pod))
        alone = claim is not None and "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ())
        if ephemeral or not alone:
            continue
        for other, _ in world.each_pod():
            if namespace_of(other) == namespace_of(pod) and (name, False) in _claim_names(other):
                text = "with ReadWriteOncePod access mode already in-use by another pod"
                return (f"node(s) unavailable due to PersistentVolumeClaim {text}",), True
    return None


def _same_disk(volume: Object, other: Object) -> bool:
    for kind, name in (("gcePersistentDisk", "pdName"), ("awsElasticBlockStore", "volumeID"), ("iscsi", "iqn")):
        one, two = volume.get(kind), other.get(kind)
        if one and two and one[name] == two[name]:
            return kind == "awsElasticBlockStore" or not (one.get("readOnly") and two.get("readOnly"))
    one, two = volume.get("rbd"), other.get("rbd")
    if not one or not two or not set(one["monitors"]) & set(two["monitors"]):
        return False
    same = (one.get("pool") or "rbd", one["image"]) == (two.get("pool") or "rbd", two["image"])
    return bool(same and not (one.get("readOnly") and two.get("readOnly")))


def too_many_volumes(pod: Object, node: Object, pods: Sequence[Object], world: World) -> Verdict | None:
    """NodeVolumeLimits."""
    csi_node = _find(world, "csiNodes", name_of(node))
    drivers = () if csi_node is None else csi_node["spec"].get("drivers") or ()
    limits = {each["name"]: (each.get("allocatable") or {}).get("count") for each in drivers}
    attached = {handle for other in pods for handle in _handles(other, world)}
    new = set(_handles(pod, world)) - attached
    for driver, limit in limits.items():
        adding = [handle for handle in new if handle[0] == driver]
        there = [handle for handle in attached if handle[0] == driver]
        if limit is not None and adding and len(there) + len(adding) > limit:
            return ("node(s) exceed max volume count",), True
    return None


def _handles(pod: Object, world: World) -> list[tuple[str, str]]:
    found = []
    for name, _ in _claim_names(pod):
        claim = _find(world, "persistentVolumeClaims", name, namespace_of(pod))
        if claim is None:
            continue
        volume = _find(world, "persistentVolumes", claim["spec"].get("volumeName") or "")
        storage_class = _find(world, "storageClasses", _class_name(claim))
        if volume is not None:
            if "csi" in volume["spec"]:
                found.append((volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]))
        elif storage_class is not None:
            found.append((storage_class["provisioner"], f"of {namespace_of(pod)}/{name}"))
    return found


def other_zone(pod: Object, node: Object, world: World) -> Verdict | None:
    """VolumeZone."""
    labels = labels_of(node)
    if not any(key in labels for key in ZONE_KEYS):
        return None
    for name, ephemeral in _claim_names(pod):
        claim = None if ephemeral else _find(world, "persistentVolumeClaims", name, namespace_of(pod))
        volume = None
        if claim is not None:
            volume = _find(world, "persistentVolumes", claim["spec"].get("volumeName") or "")
        for key, value in () if volume is None else labels_of(volume).items():
            zones = [zone.strip() for zone in value.split("__")]
            if key in ZONE_KEYS and all(zones) and labels.get(key, labels.get(ZONE_KEYS[key])) not in zones:
                return ("node(s) had no available volume zone",), False
    return None


def unavailable(pod: Object, node: Object, world: World) -> Verdict | None:
    """VolumeBinding."""
    claims = [_find(world, "persistentVolumeClaims", name, namespace_of(pod)) for name, _ in _claim_names(pod)]
    known = [claim for claim in claims if claim is not None]
    reasons = []
    for claim in known:
        if _is_bound(claim):
            volume = _find(world, "persistentVolumes", claim["spec"]["volumeName"])
            if volume is None:
                reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
                break
            if not _reaches(volume, node):
                reasons.append("node(s) didn't match PersistentVolume's node affinity")
                break
    problem = _to_bind([claim for claim in known if not _is_bound(claim)], node, world)
    if problem:
        reasons.append(problem)
    order = ("didn't match", "didn't find", "did not have", "unavailable")
    return (
        (tuple(sorted(reasons, key=lambda text: [mark in text for mark in order].index(True))), False)
        if reasons
        else None
    )


def assumed(pod: Object, node: Object, world: World) -> Mapping[str, Sequence[Object]]:
    """The objects after the pod was given the node: volumes that claims get refer to them, and claims for which volumes
    are to be made name the node (VolumeBinding's Reserve)."""
    volumes: dict[str, Object] = {}
    chosen: dict[tuple[str, str], dict[str, str]] = {}
    found = [_find(world, "persistentVolumeClaims", name, namespace_of(pod)) for name, _ in _claim_names(pod)]
    claims = [claim for claim in found if claim is not None and not _is_bound(claim)]
    for claim in sorted(claims, key=lambda each: _size(each, "resources", "requests", "storage") or 0):
        volume = _smallest(claim, node, world, set(volumes))
        if SELECTED_NODE in (claim["metadata"].get("annotations") or {}):
            continue
        if volume is None:
            chosen[name_of(claim), namespace_of(claim)] = {SELECTED_NODE: name_of(node)}
        else:
            reference = {"name": name_of(claim), "namespace": namespace_of(claim), "uid": uid_of(claim)}
            volumes[name_of(volume)] = {**volume, "spec": {**volume["spec"], "claimRef": reference}}
    objects = world.objects
    return {
        **objects,
        "persistentVolumes": [volumes.get(name_of(each), each) for each in objects.get("persistentVolumes", ())],
        "persistentVolumeClaims": [
            _annotated(each, chosen.get((name_of(each), namespace_of(each)), {}))
            for each in objects.get("persistentVolumeClaims", ())
        ],
    }


def _annotated(claim: Object, marks: Mapping[str, str]) -> Object:
    metadata = claim["metadata"]
    return {**claim, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **marks}}}


def _to_bind(claims: Sequence[Object], node: Object, world: World) -> str:
    to_match, to_provision = [], []
    for claim in claims:
        chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if chosen is None:
            to_match.append(claim)
        elif chosen != name_of(node):
            return "node(s) didn't find available persistent volumes to bind"
        else:
            to_provision.append(claim)
    taken: set[str] = set()
    for claim in sorted(to_match, key=lambda each: _size(each, "resources", "requests", "storage") or 0):
        volume = _smallest(claim, node, world, taken)
        if volume is None:
            to_provision.append(claim)
        else:
            taken.add(name_of(volume))
    for claim in to_provision:
        problem = _cannot_provision(claim, node, world)
        if problem:
            return problem
    return ""


def _reaches(volume: Object, node: Object) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or any(
        node_selector_term(term).matches(labels_of(node), "") for term in required["nodeSelectorTerms"]
    )


def _smallest(claim: Object, node: Object, world: World, taken: set[str]) -> Object | None:
    best: tuple[int, Object] | None = None
    wanted = _size(claim, "resources", "requests", "storage") or 0
    for volume in sorted(world.objects.get("persistentVolumes", ()), key=name_of):
        size = _size(volume, "capacity", "storage") or 0
        if name_of(volume) in taken or size < wanted or volume["metadata"].get("deletionTimestamp"):
            continue
        if (volume["spec"].get("volumeMode") or "Filesystem") != (claim["spec"].get("volumeMode") or "Filesystem"):
            continue
        reference = volume["spec"].get("claimRef")
        if reference:
            if _refers(reference, claim):
                return volume if _reaches(volume, node) else None
            continue
        if _suits(volume, claim) and _reaches(volume, node) and (best is None or size < best[0]):
            best = (size, volume)
    return None if best is None else best[1]


def _refers(reference: Mapping[str, str], claim: Object) -> bool:
    same = (reference["name"], reference["namespace"]) == (name_of(claim), namespace_of(claim))
    return same and (not reference.get("uid") or reference["uid"] == uid_of(claim))


def _suits(volume: Object, claim: Object) -> bool:
    if volume["status"]["phase"] != "Available" or _class_name(volume) != _class_name(claim):
        return False
    if not set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"]):
        return False
    selector = claim["spec"].get("selector")
    return selector is None or label_selector(selector).matches(labels_of(volume))


def _cannot_provision(claim: Object, node: Object, world: World) -> str:
    not_found = "node(s) didn't find available persistent volumes to bind"
    storage_class = _find(world, "storageClasses", _class_name(claim))
    provisioner = "" if storage_class is None else storage_class["provisioner"]
    if storage_class is None or provisioner in ("", "kubernetes.io/no-provisioner"):
        return not_found
    topologies = storage_class.get("allowedTopologies") or ()
    labels = labels_of(node)
    inside = [
        all(labels.get(each["key"]) in each["values"] for each in term["matchLabelExpressions"]) for term in topologies
    ]
    if topologies and not any(inside):
        return not_found
    driver, size = _find(world, "csiDrivers", provisioner), _size(claim, "resources", "requests", "storage")
    if size is None or driver is None or not driver["spec"].get("storageCapacity"):
        return ""
    for capacity in world.objects.get("csiStorageCapacities", ()):
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        topology = capacity.get("nodeTopology")
        if capacity["storageClassName"] != name_of(storage_class) or limit is None or topology is None:
            continue
        if parse_quantity(limit).units() >= size and label_selector(topology).matches(labels):
            return ""
    return "node(s) did not have enough free storage"
