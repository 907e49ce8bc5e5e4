"""Random clusters and pods that meet every default rule, from a generator of random numbers: small, dense, adversarial.

Few names and few labels, so that rules meet: most pods match some selector, most nodes are nearly full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from muster.api.codec import Object

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NAMESPACES = ("default", "team-a", "team-b")
IMAGES = ("app:v1", "registry.example/tools/web", "side:v2")
TAINTS = (("gpu", "yes"), ("gpu", "no"), ("old", ""))
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
FEATURES = ("taints", "nodeAffinity", "ports", "images", "resources", "spread", "podAffinity", "volumes", "defaults")


@dataclass(frozen=True, slots=True)
class RandomCluster:
    """`objects`: by kind as recordings name them; running `pods` have `spec.nodeName`; `pod` is the one to schedule."""

    nodes: list[Object]
    pods: list[Object]
    objects: dict[str, list[Object]]
    pod: Object


def random_cluster(rng: Random, features: frozenset[str], *, nodes: int, pods: int) -> RandomCluster:
    """A cluster of so many nodes and running pods in which the pods have a choice of the features."""
    made = [_node(rng, f"n{number}", features) for number in range(nodes)]
    names = [node["metadata"]["name"] for node in made]
    objects = _objects(rng, features, names)
    running = []
    for number in range(pods if names else 0):
        pod = _pod(rng, f"p{number}", features, names, objects)
        pod["spec"]["nodeName"] = rng.choice(names)
        if rng.random() < 0.1:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        running.append(pod)
    pod = _pod(rng, "new", features, names, objects, incoming=True)
    return RandomCluster(made, running, objects, pod)


def _maybe(rng: Random, share: float) -> bool:
    return rng.random() < share


def _node(rng: Random, name: str, features: frozenset[str]) -> Object:
    labels = {HOSTNAME: name} if _maybe(rng, 0.9) else {}
    for key, values in ((ZONE, "ab"), ("topology.kubernetes.io/rack", "xyz"), ("disk", "sh")):
        if _maybe(rng, 0.8):
            labels[key] = rng.choice(values)
    if "nodeAffinity" in features and _maybe(rng, 0.7):
        labels["gen"] = rng.choice(("3", "5", "07", "x", "5.5", ""))
    if "volumes" in features and _maybe(rng, 0.3):
        labels["failure-domain.beta.kubernetes.io/zone"] = rng.choice("ab")
    allocatable = {"cpu": rng.choice(("2", "4", "3500m")), "memory": rng.choice(("4Gi", "8Gi", "3000M")), "pods": "8"}
    if "resources" in features:
        allocatable["pods"] = rng.choice(("2", "4", "8"))
        for resource, amount in (("example.com/gpu", "4"), ("hugepages-2Mi", "64Mi"), ("ephemeral-storage", "10Gi")):
            if _maybe(rng, 0.6):
                allocatable[resource] = amount
    node: Object = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}
    if "taints" in features:
        taints = [(key, value, rng.choice(EFFECTS)) for key, value in TAINTS if _maybe(rng, 0.3)]
        node["spec"]["taints"] = [{"key": key, "value": value, "effect": effect} for key, value, effect in taints]
        node["spec"]["unschedulable"] = _maybe(rng, 0.15)
    if "images" in features:
        sizes = {image: rng.choice((10, 90, 800)) * 2**20 for image in IMAGES if _maybe(rng, 0.5)}
        node["status"]["images"] = [{"names": [image], "sizeBytes": size} for image, size in sizes.items()]
    return node


def _pod(
    rng: Random,
    name: str,
    features: frozenset[str],
    nodes: Sequence[str],
    objects: Mapping[str, list[Object]],
    *,
    incoming: bool = False,
) -> Object:
    namespace = rng.choice(NAMESPACES)
    labels: Object = {
        key: rng.choice(values) for key, values in (("app", "wd"), ("tier", "fb"), ("rev", "12")) if _maybe(rng, 0.8)
    }
    containers = [_container(rng, features, number) for number in range(1 if _maybe(rng, 0.7) else 2)]
    pod: Object = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "uid": f"uid-{name}"},
        "spec": {"containers": containers},
    }
    share = 0.9 if incoming else 0.25
    makers: dict[str, Callable[[], None]] = {
        "taints": lambda: _add_tolerations(rng, pod),
        "nodeAffinity": lambda: _add_node_affinity(rng, pod, nodes),
        "resources": lambda: _add_resources(rng, pod, features),
        "spread": lambda: _add_spread(rng, pod),
        "podAffinity": lambda: _add_pod_affinity(rng, pod),
        "volumes": lambda: _add_volumes(rng, pod, objects),
        "defaults": lambda: _add_owner(rng, pod),
    }
    for feature in sorted(features):
        if feature in makers and _maybe(rng, share):
            makers[feature]()
    return pod


def _container(rng: Random, features: frozenset[str], number: int) -> Object:
    requests: Object = {}
    if _maybe(rng, 0.7):
        requests["cpu"] = rng.choice(("100m", "500m", "1", "0"))
    if _maybe(rng, 0.6):
        requests["memory"] = rng.choice(("128Mi", "1Gi", "500M", "0"))
    if "resources" in features:
        for resource, amount in (("example.com/gpu", "1"), ("hugepages-2Mi", "32Mi"), ("ephemeral-storage", "3Gi")):
            if _maybe(rng, 0.15):
                requests[resource] = amount
    container: Object = {"name": f"c{number}", "image": rng.choice(IMAGES), "resources": {"requests": requests}}
    if "ports" in features and _maybe(rng, 0.4):
        port = {"containerPort": 80, "hostPort": rng.choice((80, 81)), "protocol": rng.choice(("TCP", "UDP"))}
        if _maybe(rng, 0.4):
            port["hostIP"] = rng.choice(("10.0.0.1", "0.0.0.0"))
        container["ports"] = [port]
    return container


def _add_tolerations(rng: Random, pod: Object) -> None:
    found: list[Object] = []
    for key, value in TAINTS:
        if _maybe(rng, 0.4):
            toleration: Object = {"key": key, "operator": "Equal", "value": value}
            if _maybe(rng, 0.4):
                toleration = {"key": key, "operator": "Exists"}
            if _maybe(rng, 0.6):
                toleration["effect"] = rng.choice(EFFECTS)
            found.append(toleration)
    if _maybe(rng, 0.1):
        found.append({"operator": "Exists"})
    pod["spec"]["tolerations"] = found


def _add_node_affinity(rng: Random, pod: Object, nodes: Sequence[str]) -> None:
    affinity: Object = {}
    if _maybe(rng, 0.5):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [_node_term(rng, nodes) for _ in range(rng.randint(1, 2))]
        }
    if _maybe(rng, 0.7):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": rng.randint(1, 100), "preference": _node_term(rng, nodes)} for _ in range(rng.randint(1, 3))
        ]
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity
    if _maybe(rng, 0.2):
        pod["spec"]["nodeSelector"] = {"disk": rng.choice("sh")}


def _node_term(rng: Random, nodes: Sequence[str]) -> Object:
    expressions: list[Object] = []
    for _ in range(rng.choice((0, 1, 1, 2))):
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            expressions.append({"key": "gen", "operator": operator, "values": [rng.choice(("4", "6"))]})
            continue
        key = rng.choice(("disk", ZONE))
        expression: Object = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = rng.sample(("s", "h", "a", "b"), rng.randint(1, 2))
        expressions.append(expression)
    term: Object = {"matchExpressions": expressions}
    if nodes and _maybe(rng, 0.2):
        operator = rng.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [rng.choice(nodes)]}]
    return term


def _add_resources(rng: Random, pod: Object, features: frozenset[str]) -> None:
    spec = pod["spec"]
    if _maybe(rng, 0.5):
        inits = [_container(rng, features, number + 10) for number in range(rng.randint(1, 2))]
        for container in inits:
            if _maybe(rng, 0.5):
                container["restartPolicy"] = "Always"
        spec["initContainers"] = inits
    if _maybe(rng, 0.3):
        spec["overhead"] = {"cpu": "100m", "memory": "64Mi"}
    if _maybe(rng, 0.3):
        level = {name: amount for name, amount in (("cpu", "1500m"), ("memory", "2Gi")) if _maybe(rng, 0.6)}
        spec["resources"] = {"requests": level}
    if _maybe(rng, 0.1):
        rules = [{"action": "RestartAllContainers"}]
        spec["containers"][0]["restartPolicyRules"] = rules


def _selector(rng: Random) -> Object | None:
    choice = rng.random()
    if choice < 0.05:
        return None
    if choice < 0.12:
        return {}
    if choice < 0.7:
        return {"matchLabels": {"app": rng.choice("wd")}}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Object = {"key": rng.choice(("tier", "app")), "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = rng.sample("fbwd", rng.randint(1, 3))
    return {"matchExpressions": [expression]}


def _topology_key(rng: Random) -> str:
    return rng.choice((HOSTNAME, ZONE, "topology.kubernetes.io/rack"))


def _add_spread(rng: Random, pod: Object) -> None:
    entries: list[Object] = []
    for _ in range(rng.randint(1, 3)):
        when = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
        entry: Object = {"maxSkew": rng.randint(1, 3), "topologyKey": _topology_key(rng), "whenUnsatisfiable": when}
        if (entry["topologyKey"], when) in [(each["topologyKey"], each["whenUnsatisfiable"]) for each in entries]:
            continue
        selector = _selector(rng)
        if selector is not None:
            entry["labelSelector"] = selector
            if _maybe(rng, 0.3):
                entry["matchLabelKeys"] = ["rev"]
        if when == "DoNotSchedule" and _maybe(rng, 0.3):
            entry["minDomains"] = rng.randint(1, 4)
        if _maybe(rng, 0.4):
            entry["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if _maybe(rng, 0.4):
            entry["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        entries.append(entry)
    pod["spec"]["topologySpreadConstraints"] = entries


def _pod_term(rng: Random) -> Object:
    term: Object = {"topologyKey": _topology_key(rng)}
    selector = _selector(rng)
    if selector is not None:
        term["labelSelector"] = selector
    if _maybe(rng, 0.3):
        term["namespaces"] = rng.sample(NAMESPACES, rng.randint(1, 2))
    if _maybe(rng, 0.3):
        term["namespaceSelector"] = rng.choice(
            (
                {},
                {"matchLabels": {"team": "a"}},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
                {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
            )
        )
    if selector is not None and _maybe(rng, 0.15):
        term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
    return term


def _add_pod_affinity(rng: Random, pod: Object) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        made: Object = {}
        if _maybe(rng, 0.35):
            terms = [_pod_term(rng) for _ in range(rng.randint(1, 2))]
            made["requiredDuringSchedulingIgnoredDuringExecution"] = terms
        if _maybe(rng, 0.4):
            made["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": rng.randint(1, 100), "podAffinityTerm": _pod_term(rng)} for _ in range(rng.randint(1, 2))
            ]
        if made:
            affinity[kind] = made


def _add_owner(rng: Random, pod: Object) -> None:
    kind, version = rng.choice(
        (("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1"), ("Job", "batch/v1"))
    )
    owner = {"apiVersion": version, "kind": kind, "name": rng.choice(("web", "db")), "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]


def _add_volumes(rng: Random, pod: Object, objects: Mapping[str, list[Object]]) -> None:
    namespace = pod["metadata"]["namespace"]
    claims = [
        claim["metadata"]["name"]
        for claim in objects["persistentVolumeClaims"]
        if claim["metadata"]["namespace"] == namespace
    ]
    volumes: list[Object] = []
    for name in rng.sample(claims, min(len(claims), rng.randint(0, 2))):
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
    if _maybe(rng, 0.05):
        volumes.append({"name": "lost", "persistentVolumeClaim": {"claimName": "missing"}})
    for kind, key in (("gcePersistentDisk", "pdName"), ("awsElasticBlockStore", "volumeID"), ("iscsi", "iqn")):
        if _maybe(rng, 0.2):
            volumes.append({"name": kind.lower(), kind: {key: rng.choice("de"), "readOnly": _maybe(rng, 0.5)}})
    if _maybe(rng, 0.2):
        disk = {
            "monitors": rng.sample(("m1", "m2", "m3"), 2),
            "image": "i",
            "pool": "rbd",
            "readOnly": _maybe(rng, 0.5),
        }
        volumes.append({"name": "rbd", "rbd": disk})
    pod["spec"]["volumes"] = volumes


def _objects(rng: Random, features: frozenset[str], nodes: Sequence[str]) -> dict[str, list[Object]]:
    labels: tuple[Object, ...] = ({"team": "core"}, {"team": "a", "env": "prod"}, {})
    spaces = [{"metadata": {"name": name, "labels": own}} for name, own in zip(NAMESPACES, labels, strict=True)]
    objects: dict[str, list[Object]] = {"namespaces": spaces, "persistentVolumeClaims": []}
    if "defaults" in features:
        objects |= _owners(rng)
    if "volumes" in features:
        objects |= _storage(rng, nodes)
    return objects


def _owners(rng: Random) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for kind in ("services", "replicationControllers", "replicaSets", "statefulSets"):
        made = found[kind] = []
        for namespace in NAMESPACES:
            for name in ("web", "db"):
                if not _maybe(rng, 0.4):
                    continue
                equal = {"app": rng.choice("wd")} if _maybe(rng, 0.8) else {"tier": rng.choice("fb")}
                labelled = kind in ("replicaSets", "statefulSets")
                selector = {"matchLabels": equal} if labelled else equal
                made.append({"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}})
    return found


def _storage(rng: Random, nodes: Sequence[str]) -> dict[str, list[Object]]:
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    classes: list[Object] = [
        {"metadata": {"name": "now"}, "provisioner": "csi.example", "volumeBindingMode": "Immediate"},
        {"metadata": {"name": "late"}, "provisioner": "csi.example", **late},
        {"metadata": {"name": "zonal"}, "provisioner": "csi.example", "allowedTopologies": zones, **late},
        {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner", **late},
        {"metadata": {"name": "tracked"}, "provisioner": "cap.example", **late},
    ]
    volumes = [_volume(rng, f"pv{number}", nodes) for number in range(rng.randint(0, 6))]
    claims = [_claim(rng, f"claim{number}", nodes, volumes) for number in range(rng.randint(1, 6))]
    limited = [name for name in nodes if _maybe(rng, 0.6)]
    return {
        "storageClasses": classes,
        "persistentVolumes": volumes,
        "persistentVolumeClaims": claims,
        "csiNodes": [
            {
                "metadata": {"name": name},
                "spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": count}}]},
            }
            for name in limited
            for count in [rng.randint(0, 3)]
        ],
        "csiDrivers": [{"metadata": {"name": "cap.example"}, "spec": {"storageCapacity": _maybe(rng, 0.8)}}],
        "csiStorageCapacities": [
            {
                "metadata": {"name": f"cap{number}", "namespace": "default"},
                "storageClassName": rng.choice(("tracked", "late")),
                "capacity": rng.choice(("1Gi", "20Gi")),
                "nodeTopology": {"matchLabels": {ZONE: rng.choice("ab")}},
            }
            for number in range(rng.randint(0, 3))
        ],
    }


def _volume(rng: Random, name: str, nodes: Sequence[str]) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": rng.choice(("1Gi", "5Gi", "10Gi"))},
        "storageClassName": rng.choice(("local", "late", "now")),
    }
    labels: Object = {}
    if _maybe(rng, 0.5) and nodes:
        hosts = rng.sample(nodes, min(len(nodes), 2))
        expression = {"key": HOSTNAME, "operator": "In", "values": hosts}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if _maybe(rng, 0.6):
        spec["csi"] = {"driver": "csi.example", "volumeHandle": f"h-{name}"}
    if _maybe(rng, 0.3):
        labels[rng.choice((ZONE, "failure-domain.beta.kubernetes.io/zone"))] = rng.choice(("a", "b", "a__b"))
    phase = {"phase": "Available" if _maybe(rng, 0.8) else "Released"}
    return {"metadata": {"name": name, "labels": labels, "uid": f"uid-{name}"}, "spec": spec, "status": phase}


def _claim(rng: Random, name: str, nodes: Sequence[str], volumes: Sequence[Object]) -> Object:
    """A claim, perhaps bound to a volume, which then is bound to it."""
    metadata: Object = {"name": name, "namespace": rng.choice(NAMESPACES), "uid": f"uid-{name}", "annotations": {}}
    spec: Object = {
        "accessModes": ["ReadWriteOncePod" if _maybe(rng, 0.15) else "ReadWriteOnce"],
        "resources": {"requests": {"storage": rng.choice(("1Gi", "2Gi", "6Gi"))}},
        "storageClassName": rng.choice(("late", "zonal", "local", "tracked", "local")),
    }
    free = [volume for volume in volumes if "claimRef" not in volume["spec"]]
    choice = rng.random()
    reference = {"name": name, "namespace": metadata["namespace"]}
    if free and choice < 0.4:
        volume = rng.choice(free)
        volume["spec"]["claimRef"] = {**reference, "uid": metadata["uid"]}
        spec["volumeName"] = volume["metadata"]["name"]
        metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    elif free and choice < 0.5:
        rng.choice(free)["spec"]["claimRef"] = reference
    elif choice < 0.55:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif nodes and choice < 0.62:
        metadata["annotations"]["volume.kubernetes.io/selected-node"] = rng.choice(nodes)
    elif choice < 0.68:
        spec["storageClassName"] = "now"
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
