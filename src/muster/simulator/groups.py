"""The groups of a finished simulation: members, state and why, from the final objects and the history. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from muster.api.codec import Object, Objects
from muster.api.groups import INITIALLY_SCHEDULED, GroupRef, GroupTerms, find_terms, group_of
from muster.api.meta import condition, controller_of, has_condition, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.scheduler.layouts import TopologyObjects, workload_key
from muster.scheduler.pre_enqueue import GroupFacts, Hold, hold_of_group, is_gated

TOPOLOGIES = "topologies.kueue.x-k8s.io"
"""The collection of Kueue's Topology objects."""
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class GroupView:
    """One group. `pods`: its members that still exist. `object`: its PodGroup or Workload, None while missing.

    `owner`: the object that controls it, if that is known and exists.
    """

    ref: GroupRef
    terms: GroupTerms | None
    object: Object | None
    owner: Object | None
    pods: Objects = field(default_factory=list)

    @cached_property
    def min_count(self) -> int:
        return self.terms.min_count if self.terms is not None else 1

    @property
    def scheduled(self) -> int:
        """Members that have or had a node."""
        return sum(1 for pod in self.pods if pod["spec"].get("nodeName"))

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The labels that the group asks for, the one that the API field demands first."""
        if self.terms is None:
            return ()
        keys = [self.terms.topology_key] if self.terms.topology_key is not None else []
        keys += self.terms.topology.tree if self.terms.topology is not None else ()
        return tuple(dict.fromkeys(keys))

    @property
    def required_key(self) -> str | None:
        """The label of which one domain must hold all members."""
        if self.terms is None:
            return None
        required = None if self.terms.topology is None else self.terms.topology.required
        return self.terms.topology_key or required

    def in_phase(self, phase: str) -> int:
        """Members in that phase."""
        return sum(1 for pod in self.pods if phase_of(pod) == phase)

    @cached_property
    def pending(self) -> Objects:
        """Members that wait for a node."""
        return [pod for pod in self.pods if is_pending(pod)]

    @cached_property
    def hold(self) -> Hold | None:
        """What keeps the whole group from being tried."""
        live = [pod for pod in self.pods if phase_of(pod) not in ENDED]
        facts = GroupFacts(
            self.ref,
            self.terms,
            known=len(live),
            gated=tuple(key_of(pod) for pod in live if is_gated(pod)),
            scheduler_names=tuple(dict.fromkeys(scheduler_of(pod) for pod in live)),
            has_workload=self.object is not None,
        )
        return hold_of_group(facts)


def phase_of(pod: Object) -> str:
    """`status.phase`."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def scheduler_of(pod: Object) -> str:
    """`spec.schedulerName`, or the default."""
    return str(pod["spec"].get("schedulerName") or "default-scheduler")


def is_pending(pod: Object) -> bool:
    """Whether the pod waits for a node."""
    return not pod["spec"].get("nodeName") and phase_of(pod) not in ENDED and not is_deleting(pod)


def find_groups(objects: Mapping[str, Objects]) -> list[GroupView]:
    """All PodGroups, and the groups that pods name besides, by namespace and name. `objects`: by plural."""
    pod_groups = {key_of(group): group for group in objects["podgroups"]}
    workloads = {key_of(workload): workload for workload in objects["workloads"]}
    owners = {uid_of(job): job for job in objects["jobs"]}
    topologies = _topologies(objects)
    refs = {key: GroupRef(namespace_of(group), name_of(group)) for key, group in pod_groups.items()}
    members: dict[str, Objects] = {}
    for pod in objects["pods"]:
        ref = group_of(pod)
        if ref is not None:
            refs.setdefault(ref.key, ref)
            members.setdefault(ref.key, []).append(pod)
    views = []
    for key, ref in sorted(refs.items(), key=lambda item: (item[1].namespace, item[1].name)):
        obj = (pod_groups if ref.is_pod_group else workloads).get(ref.object_key)
        pods = members.get(key, [])
        owner = _owner([obj] if obj is not None and ref.is_pod_group else pods, owners)
        terms = find_terms(ref, pod_groups, workloads)
        if terms is not None:
            group = obj if ref.is_pod_group else None
            terms = topologies.with_topology(terms, ref, group, workloads.get(workload_key(ref, group)), pods)
        views.append(GroupView(ref, terms, obj, owner, pods))
    return views


def _topologies(objects: Mapping[str, Objects]) -> TopologyObjects:
    """What annotations may refer to."""
    found = TopologyObjects()
    for job in objects["jobs"]:
        found.set_job(job, exists=True)
    for topology in objects.get(TOPOLOGIES, ()):
        found.set_topology(topology, exists=True)
    return found


def settled_state(group: GroupView) -> str | None:
    """The state as far as no decision is needed for it; the first rule that holds."""
    if _has_failed(group):
        return "Failed"
    if _has_succeeded(group):
        return "Succeeded"
    if group.terms is not None and group.pods:
        if group.in_phase("Running") >= group.min_count:
            return "Running"
        if group.scheduled >= group.min_count:
            return "Scheduled"
    if group.hold is not None or not group.pods:
        return "Gated"
    return None


def why(group: GroupView, state: str) -> tuple[str, str]:
    """Reason and message, "" where there is nothing to say."""
    if state in ("Failed", "Succeeded"):
        entry = _ending(group.owner)
        return (entry.get("reason") or "", entry.get("message") or "") if entry is not None else ("", "")
    if state in ("Running", "Scheduled"):
        return "", ""
    if state == "Gated" and group.hold is not None:
        return group.hold.reason, group.hold.message
    said = condition(group.object, INITIALLY_SCHEDULED) if group.object is not None else None
    if said is not None and said.get("status") == "False":
        return said.get("reason") or "", said.get("message") or ""
    return first_reason(group.pending)


def first_reason(pods: Iterable[Object]) -> tuple[str, str]:
    """Reason and message of the first pod that says why it waits."""
    for pod in pods:
        entry = condition(pod, "PodScheduled")
        if entry is not None and entry.get("status") == "False":
            return entry.get("reason") or "", entry.get("message") or ""
    return "", ""


def _owner(objs: Objects, owners: Mapping[str, Object]) -> Object | None:
    for obj in objs:
        reference = controller_of(obj)
        if reference is not None and reference.get("uid") in owners:
            return owners[reference["uid"]]
    return None


def _ending(owner: Object | None) -> Object | None:
    """The condition that says how a Job ended."""
    for type_ in ("Failed", "Complete"):
        if owner is not None and has_condition(owner, type_):
            return condition(owner, type_)
    return None


def _has_failed(group: GroupView) -> bool:
    if group.owner is not None:
        return has_condition(group.owner, "Failed")
    failed = group.in_phase("Failed")
    return failed > 0 and group.terms is not None and len(group.pods) - failed < group.min_count


def _has_succeeded(group: GroupView) -> bool:
    if group.owner is not None:
        return has_condition(group.owner, "Complete")
    return bool(group.pods) and group.in_phase("Succeeded") == len(group.pods)
