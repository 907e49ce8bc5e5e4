"""Volumes and claims of instances, judged in plain Python: what kube-scheduler lets one pod after the other have.

Shares no code with the engine. A claim that waits takes the smallest free volume that reaches the node of its first
pod, by name at a tie; where its class makes volumes, one is made if none is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from muster.api.codec import Object, Objects

KEPT, MADE = "kept", "made"
"""The classes: only volumes that are there, or new ones as well."""

_KEYS = {"zone": "topology.kubernetes.io/zone", "node": "kubernetes.io/hostname"}


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of class KEPT or MADE, reached from a zone ("": all), or from one node (a position, -1: all)."""

    name: str
    size: int
    zone: str = ""
    node: int = -1
    made_by: str = KEPT

    def reaches(self, at: int, zone: str) -> bool:
        """Whether it can be used on a node."""
        return self.zone in ("", zone) and self.node in (-1, at)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim for so much of a class; `bound`: its volume, "" while it waits for a node. `one_pod`: of mode
    ReadWriteOncePod."""

    name: str
    size: int
    bound: str = ""
    one_pod: bool = False
    made_by: str = KEPT


@dataclass(slots=True)
class Shelf:
    """Who has what. `zones`: of the nodes. `has`: claim → (volume, node of one that was made or -1)."""

    volumes: Sequence[Volume]
    claims: Sequence[Claim]
    zones: Sequence[str]
    has: dict[str, tuple[str, int]] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()

    def copy(self) -> Shelf:
        """The same, to go on by itself."""
        return Shelf(self.volumes, self.claims, self.zones, dict(self.has), dict(self.users), self.gone)

    @property
    def state(self) -> object:
        """What was chosen so far."""
        return tuple(sorted(self.has.items())), self.gone

    def put(self, names: Sequence[str], at: int) -> bool:
        """A pod with these claims comes to a node; False (and nothing changed that matters) if it is not let."""
        by_name = {claim.name: claim for claim in self.claims}
        wanted = [by_name[name] for name in names]
        if any(claim.one_pod and self.users.get(claim.name) for claim in wanted):
            return False
        for claim in sorted(wanted, key=lambda claim: claim.size):
            if not self._reaches(claim, at) and not self._choose(claim, at):
                return False
        for claim in wanted:
            self.users[claim.name] = self.users.get(claim.name, 0) + 1
        return True

    def choices(self, names: Sequence[str], at: int) -> int:
        """How many free volumes the claim with the least choice has; many where one is made."""
        by_name = {claim.name: claim for claim in self.claims}
        open_ = [by_name[name] for name in names if name not in self.has and not by_name[name].bound]
        return min((99 if each.made_by == MADE else len(self._free(each, at)) for each in open_), default=99)

    def _reaches(self, claim: Claim, at: int) -> bool:
        named = claim.bound or self.has.get(claim.name, ("", -1))[0]
        if named:
            return next(each for each in self.volumes if each.name == named).reaches(at, self.zones[at])
        return claim.name in self.has and self.has[claim.name][1] == at

    def _choose(self, claim: Claim, at: int) -> bool:
        if claim.bound or (claim.name in self.has and not self.has[claim.name][0]):
            return False
        # Until a claim is bound, kube-scheduler takes it for one whose volume can still be made elsewhere.
        free = [] if claim.name in self.has else self._free(claim, at)
        if not free and claim.made_by != MADE:
            return False
        self.has[claim.name] = (free[0].name, -1) if free else ("", at)
        self.gone |= {each.name for each in free[:1]}
        return True

    def _free(self, claim: Claim, at: int) -> list[Volume]:
        gone = self.gone | {each.bound for each in self.claims}
        suiting = [
            each
            for each in self.volumes
            if each.name not in gone and each.size >= claim.size and each.made_by == claim.made_by
        ]
        return sorted(
            (each for each in suiting if each.reaches(at, self.zones[at])), key=lambda each: (each.size, each.name)
        )


def storage_objects(
    volumes: Sequence[Volume], claims: Sequence[Claim], node_name: Callable[[int], str]
) -> list[tuple[str, Object]]:
    """(kind, object) of the classes, the volumes and the claims."""
    if not claims:
        return []
    bound = {claim.bound: claim for claim in claims if claim.bound}
    return [
        *(("StorageClass", each) for each in _classes()),
        *(("PersistentVolume", _volume(each, bound.get(each.name), node_name)) for each in volumes),
        *(("PersistentVolumeClaim", _claim(each)) for each in claims),
    ]


def _classes() -> Objects:
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        for name, provisioner in ((KEPT, "kubernetes.io/no-provisioner"), (MADE, "example.com/disks"))
    ]


def _modes(claim: Claim | None) -> list[str]:
    return ["ReadWriteOncePod"] if claim is not None and claim.one_pod else ["ReadWriteOnce"]


def _volume(volume: Volume, claim: Claim | None, node_name: Callable[[int], str]) -> Object:
    spec: Object = {
        "capacity": {"storage": f"{volume.size}Gi"},
        "storageClassName": volume.made_by,
        "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        "csi": {"driver": "example.com/disks", "volumeHandle": volume.name},
    }
    wanted = [("zone", volume.zone)] if volume.zone else []
    wanted += [("node", node_name(volume.node))] if volume.node >= 0 else []
    if wanted:
        terms = [{"key": _KEYS[kind], "operator": "In", "values": [value]} for kind, value in wanted]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    if claim is not None:
        spec["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": claim.name,
            "uid": claim.name,
        }
    status = {"phase": "Available" if claim is None else "Bound"}
    metadata = {"name": volume.name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def _claim(claim: Claim) -> Object:
    spec: Object = {
        "accessModes": _modes(claim),
        "storageClassName": claim.made_by,
        "resources": {"requests": {"storage": f"{claim.size}Gi"}},
    }
    metadata: Object = {"name": claim.name, "namespace": "default", "uid": claim.name}
    if claim.bound:
        spec["volumeName"] = claim.bound
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    status = {"phase": "Bound" if claim.bound else "Pending"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status}
