"""Which group a pod belongs to, and what the group asks for. Pure functions of objects in stored form (v1alpha3).

Membership, first that applies (interfaces.md, workload-api.md 2.1):
1. `spec.schedulingGroup.podGroupName`: a PodGroup (v1alpha2 and later).
2. `spec.workloadRef {name, podGroup, podGroupReplicaKey}`: a Workload's template (v1alpha1), one group a replica key.
3. the annotation, then the label `scheduling.muster-k8s.dev/pod-group`: a PodGroup.

A group lives in its pod's namespace. A pod belongs to one group at most.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object
from muster.api.meta import namespace_of
from muster.api.topology import TopologyError, TopologyTerms

POD_GROUP_KEY = "scheduling.muster-k8s.dev/pod-group"
"""Annotation, else label, of pods on servers that do not keep the pod field."""

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition type of a PodGroup in stored form; True is for ever."""

COMPOSITE_INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"
"""The condition type of a CompositePodGroup."""


def initially_scheduled_in(version: str) -> str:
    """The name of that condition in a version of the API."""
    return "PodGroupScheduled" if version == "v1alpha2" else INITIALLY_SCHEDULED


class GroupRef(Struct, frozen=True, order=True):
    """The identity of a group. `name`: the PodGroup's, or `workload/template` or `workload/template/replicaKey`."""

    namespace: str
    name: str
    workload: str = ""
    template: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`: unique, since names of PodGroups have no slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_pod_group(self) -> bool:
        """Whether a PodGroup object stands behind it, not a Workload's template alone."""
        return not self.workload

    @property
    def object_key(self) -> str:
        """The key (`namespace/name`) of the PodGroup, or of the Workload, that says what the group asks for."""
        return f"{self.namespace}/{self.workload}" if self.workload else self.key


STAGES = "stages"
"""A field of templates that stand for owners by rule (`grouping`): their pods come in parts."""


class Stages(Struct, frozen=True):
    """Pods that come one part after the other: `counts` by value of a label, `others` for all other pods together."""

    label: str
    counts: tuple[tuple[str, int], ...]
    others: int

    def part_of(self, metadata: Object) -> str:
        """The part that a pod belongs to; "" for the others."""
        value = str((metadata.get("labels") or {}).get(self.label) or "")
        return value if any(value == name for name, _ in self.counts) else ""

    def size_of(self, part: str) -> int:
        """How many pods a part has."""
        return next((count for name, count in self.counts if name == part), self.others)


class GroupTerms(Struct, frozen=True):
    """What a group asks for. A basic group has min_count 1. `priority` None: that of its pods.

    `parent`: the name of the CompositePodGroup that it is a part of, "" for none.
    `may_preempt`: its policy lets it evict others. `disrupted_together`: its pods are only evicted all together.
    `topology`: what it asks of the topology beyond the one label of `topology_key`. `fault`: what of that cannot be
    read. `stages`: the parts in which its pods come; min_count is then about those that are there (`GroupBook`).
    """

    min_count: int = 1
    is_gang: bool = False
    topology_key: str | None = None
    priority: int | None = None
    may_preempt: bool = True
    disrupted_together: bool = False
    parent: str = ""
    topology: TopologyTerms | None = None
    fault: str = ""
    stages: Stages | None = None

    def with_topology(self, topology: TopologyTerms) -> GroupTerms:
        """The same with what an annotation says. Raises TopologyError if that contradicts the API field."""
        whole = topology.with_required(self.topology_key)
        return replace(self, topology=whole, topology_key=whole.required)


class CompositeTerms(Struct, frozen=True):
    """What a CompositePodGroup asks for: `min_groups` of its children must succeed (1, if it is basic).

    `may_preempt` and `disrupted_together` as for groups, about all groups below it, `fault` as there. `preferred`:
    labels of which one domain should hold all of it, in the order of trial.
    """

    min_groups: int = 1
    topology_key: str | None = None
    priority: int | None = None
    parent: str = ""
    may_preempt: bool = True
    disrupted_together: bool = False
    preferred: tuple[str, ...] = ()
    fault: str = ""

    def with_topology(self, topology: TopologyTerms) -> CompositeTerms:
        """The same with what an annotation says. Raises TopologyError for what only groups of pods may say, too."""
        for field, value in (
            ("subgroups", topology.subgroups),
            ("distribution", topology.distribution),
            ("replicas", topology.spread_over),
        ):
            if value is not None:
                raise TopologyError(f"{field}: not for a composite group, which has groups and no pods of its own")
        whole = topology.with_required(self.topology_key)
        return replace(self, topology_key=whole.required, preferred=whole.preferred)


def group_of(pod: Object) -> GroupRef | None:
    """The group that the pod names, whether it exists or not; None for a plain pod."""
    spec, metadata = pod["spec"], pod["metadata"]
    group = spec.get("schedulingGroup")
    linked = group.get("podGroupName") if group else None
    if linked:
        return GroupRef(namespace_of(pod), linked)
    ref = spec.get("workloadRef")
    if ref:
        return _template_ref(namespace_of(pod), ref)
    for marks in (metadata.get("annotations"), metadata.get("labels")):
        if marks and marks.get(POD_GROUP_KEY):
            return GroupRef(namespace_of(pod), marks[POD_GROUP_KEY])
    return None


def _template_ref(namespace: str, ref: Object) -> GroupRef:
    workload, template = ref.get("name", ""), ref.get("podGroup", "")
    replica = ref.get("podGroupReplicaKey")
    parts = [workload, template, replica] if replica else [workload, template]
    return GroupRef(namespace, "/".join(parts), workload, template)


def terms_of(spec: Object) -> GroupTerms:
    """The terms in the spec of a PodGroup, or in an entry of a Workload's `podGroupTemplates`."""
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    return GroupTerms(
        min_count=1 if gang is None else int(gang.get("minCount") or 1),
        is_gang=gang is not None,
        topology_key=topology[0].get("key") if topology else None,
        priority=spec.get("priority"),
        may_preempt=spec.get("preemptionPolicy") != "Never",
        disrupted_together=_is_disrupted_together(spec.get("disruptionMode")),
        parent=spec.get("parentCompositePodGroupName") or "",
        stages=_stages(spec.get(STAGES)),
    )


def _stages(said: Object | None) -> Stages | None:
    return None if said is None else Stages(said["label"], tuple(sorted(said["counts"].items())), said["others"])


def composite_terms_of(spec: Object) -> CompositeTerms:
    """The terms in the spec of a CompositePodGroup."""
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    return CompositeTerms(
        min_groups=1 if gang is None else int(gang.get("minGroupCount") or 1),
        topology_key=topology[0].get("key") if topology else None,
        priority=spec.get("priority"),
        parent=spec.get("parentCompositePodGroupName") or "",
        may_preempt=spec.get("preemptionPolicy") != "Never",
        disrupted_together=_is_disrupted_together(spec.get("disruptionMode")),
    )


def _is_disrupted_together(mode: JSON) -> bool:
    """`{"all": {}}`, in v1alpha2 `PodGroup`."""
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)


def template_of(workload: Object, name: str) -> Object | None:
    """The entry of `spec.podGroupTemplates` with that name."""
    for entry in workload["spec"].get("podGroupTemplates") or ():
        if entry.get("name") == name:
            found: Object = entry
            return found
    return None


def find_terms(ref: GroupRef, pod_groups: Mapping[str, Object], workloads: Mapping[str, Object]) -> GroupTerms | None:
    """What the group asks for, by the objects known (by key); None while they are missing."""
    if ref.is_pod_group:
        group = pod_groups.get(ref.object_key)
        return None if group is None else terms_of(group["spec"])
    workload = workloads.get(ref.object_key)
    template = None if workload is None else template_of(workload, ref.template)
    return None if template is None else terms_of(template)
