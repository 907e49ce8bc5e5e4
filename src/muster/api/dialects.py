"""The same group in other schedulers' words: their PodGroup kinds, and how pods name their group.

A group that another scheduler's users have written becomes a PodGroup in stored form (v1alpha3) and back, as pure
functions that name each field that is lost on the way. Sources: the published types of scheduler-plugins
(`scheduling.x-k8s.io/v1alpha1`), Volcano (`scheduling.volcano.sh/v1beta1`, `labels.go`) and KAI
(`scheduling.run.ai/v2alpha2`, `pkg/common/constants`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.api.codec import Object
from muster.api.topology import TOPOLOGY_KEY, TopologyError, TopologyTerms, parse_topology

COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
KAI = "scheduling.run.ai/v2alpha2"

HUB_VERSION = "scheduling.k8s.io/v1alpha3"


class Mark(Struct, frozen=True):
    """Where a pod names its group: `place` (`labels` or `annotations`) and the key."""

    place: str
    key: str

    def of(self, metadata: Object) -> str:
        """The group that is named there, "" for none."""
        return str((metadata.get(self.place) or {}).get(self.key) or "")


class Dialect(Struct, frozen=True):
    """A scheduler whose groups are understood.

    `api_version`: of its PodGroup. `marks`: how pods name their group, the one to write first. `schedulers`: the
    names that pods give to it in `spec.schedulerName`. `said`: the fields of its `spec` that become something here.
    """

    api_version: str
    marks: tuple[Mark, ...]
    schedulers: tuple[str, ...]
    said: tuple[str, ...] = ("minMember",)

    @property
    def group(self) -> str:
        """The API group of its PodGroup."""
        return self.api_version.partition("/")[0]


DIALECTS: Mapping[str, Dialect] = {
    each.api_version: each
    for each in (
        Dialect(
            COSCHEDULING,
            (Mark("labels", "scheduling.x-k8s.io/pod-group"), Mark("labels", "pod-group.scheduling.sigs.k8s.io")),
            ("scheduler-plugins-scheduler",),
        ),
        Dialect(
            VOLCANO,
            (
                Mark("annotations", "scheduling.k8s.io/group-name"),
                Mark("annotations", "scheduling.volcano.sh/group-name"),
            ),
            ("volcano",),
            ("minMember", "priorityClassName"),
        ),
        Dialect(
            KAI,
            (Mark("annotations", "pod-group-name"),),
            ("kai-scheduler",),
            ("minMember", "priorityClassName", "topologyConstraint"),
        ),
    )
}
"""By the version of their PodGroup."""


def dialect_of(obj: Object) -> Dialect | None:
    """The dialect that a PodGroup is written in; any version of its group counts. None for Kubernetes' own kinds."""
    if obj.get("kind") != "PodGroup":
        return None
    group = str(obj.get("apiVersion") or "").partition("/")[0]
    return next((each for each in DIALECTS.values() if each.group == group), None)


def marked_group(metadata: Object) -> tuple[str, Dialect] | None:
    """The group that a pod's labels or annotations name in one of the dialects."""
    for dialect in DIALECTS.values():
        for mark in dialect.marks:
            if name := mark.of(metadata):
                return name, dialect
    return None


def group_to_hub(obj: Object) -> tuple[Object, list[str]]:
    """A PodGroup of a dialect in stored form, and the paths of what is lost. A gang: none of the dialects has others.

    A `minMember` that is no positive number counts as 1, as it does for its own scheduler.
    """
    dialect = dialect_of(obj)
    if dialect is None:
        raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is no PodGroup of another scheduler")
    spec = obj.get("spec") or {}
    least = spec.get("minMember")
    metadata = dict(obj.get("metadata") or {})
    hub_spec: Object = {
        "schedulingPolicy": {"gang": {"minCount": least if isinstance(least, int) and least > 0 else 1}}
    }
    lost = [f"spec.{field}" for field in sorted(spec) if field not in dialect.said]
    if "priorityClassName" in dialect.said and spec.get("priorityClassName"):
        hub_spec["priorityClassName"] = spec["priorityClassName"]
    if "topologyConstraint" in dialect.said:
        lost += _take_topology(spec.get("topologyConstraint") or {}, hub_spec, metadata)
    hub = {**_plain(obj), "apiVersion": HUB_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": hub_spec}
    return hub, lost


def group_from_hub(hub: Object, api_version: str) -> tuple[Object, list[str]]:
    """A PodGroup in stored form as one of a dialect, and the paths of what is lost. A basic group asks for 1 member."""
    dialect = DIALECTS[api_version]
    spec = hub.get("spec") or {}
    policy = spec.get("schedulingPolicy") or {}
    out: Object = {"minMember": (policy.get("gang") or {}).get("minCount") or 1}
    kept = {"schedulingPolicy"}
    if "priorityClassName" in dialect.said and spec.get("priorityClassName"):
        out["priorityClassName"] = spec["priorityClassName"]
        kept.add("priorityClassName")
    keys = (spec.get("schedulingConstraints") or {}).get("topology") or []
    metadata, preferred = _without_preferred(hub.get("metadata") or {})
    if "topologyConstraint" in dialect.said and (keys or preferred):
        levels = {"requiredTopologyLevel": keys[0].get("key") if keys else None, "preferredTopologyLevel": preferred}
        out["topologyConstraint"] = {field: level for field, level in levels.items() if level}
        kept.add("schedulingConstraints")
    else:
        metadata = hub.get("metadata") or {}
    lost = [f"spec.{field}" for field in sorted(spec) if field not in kept]
    lost += [f"metadata.annotations[{TOPOLOGY_KEY}]"] * (TOPOLOGY_KEY in (metadata.get("annotations") or {}))
    return {**_plain(hub), "apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": out}, lost


def _take_topology(constraint: Object, hub_spec: Object, metadata: Object) -> list[str]:
    """The levels: the required one is a field, the preferred one stands in the annotation (docs/howto/topology.md)."""
    required, preferred = constraint.get("requiredTopologyLevel"), constraint.get("preferredTopologyLevel")
    if required:
        hub_spec["schedulingConstraints"] = {"topology": [{"key": required}]}
    if preferred:
        metadata["annotations"] = {TOPOLOGY_KEY: f"preferred: {preferred}", **(metadata.get("annotations") or {})}
    said = ("requiredTopologyLevel", "preferredTopologyLevel")
    return [f"spec.topologyConstraint.{field}" for field in sorted(constraint) if field not in said]


def _without_preferred(metadata: Object) -> tuple[Object, str]:
    """The preferred level in the annotation if that says nothing else, and the metadata without it then."""
    annotations = dict(metadata.get("annotations") or {})
    try:
        terms = parse_topology(annotations.pop(TOPOLOGY_KEY, "{}"))
    except TopologyError:
        return metadata, ""
    if terms is None or len(terms.preferred) != 1 or terms != TopologyTerms(preferred=terms.preferred):
        return metadata, ""
    left = {key: value for key, value in metadata.items() if key != "annotations"}
    return ({**left, "annotations": annotations} if annotations else left), terms.preferred[0]


def _plain(obj: Object) -> Object:
    """The object without what another scheduler has written about it."""
    return {key: value for key, value in obj.items() if key != "status"}
