"""What the scheduler knows of the cluster: nodes, pods by group, and what is assumed but not yet seen bound.

Informer changes go in, `Effects` come out: what may have become schedulable. Terminal pods count for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.api.codec import Object
from muster.api.grouping import Grouping
from muster.api.groups import GroupRef, GroupTerms, find_terms, group_of
from muster.api.meta import controller_of, is_deleting, key_of, name_of, uid_of
from muster.api.topology import TOPOLOGY_KEY, TopologyTerms
from muster.client.informer import Change
from muster.engine.model import Placement
from muster.engine.objects import PERSISTENT_VOLUME
from muster.engine.shape import Shape
from muster.engine.state import ClusterState
from muster.scheduler.changes import (
    ClusterEvent,
    has_succeeded,
    is_leaving,
    is_terminal,
    node_events,
    request_differs,
    usage_differs,
)
from muster.scheduler.domains import OneDomain, one_domain
from muster.scheduler.effects import Effects
from muster.scheduler.hierarchy import Chain, Hierarchy, parent_key
from muster.scheduler.layouts import TopologyObjects, layout_of, template_name, workload_key
from muster.scheduler.members import Members, PodRecord, scheduler_name_of

KEEP_TOGETHER_KEY = "scheduling.muster-k8s.dev/keep-together"
"""The annotation that says how long a gang may run with too few members (see `keeping`)."""


class SchedulerCache:
    """Objects by key, members by group, and the engine's view of nodes and usage (`state`)."""

    def __init__(
        self, scheduler_names: frozenset[str], *, pod_by_pod: bool = False, grouping: Grouping | None = None
    ) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.state = ClusterState(self)
        self.nodes: dict[str, Object] = {}
        self.groups: dict[str, Members] = {}
        self.pod_groups: dict[str, Object] = {}
        self.workloads: dict[str, Object] = {}
        self.hierarchy = Hierarchy()
        self.topologies = TopologyObjects()
        self._scheduler_names = scheduler_names
        self._pod_by_pod = pod_by_pod
        self._grouping = grouping
        self._whole_jobs: dict[str, None] = {}
        self.given_up: dict[str, frozenset[str]] = {}
        """Groups that were evicted as a whole and begin anew, with the uids of those evicted: as long as these, or
        others that are leaving, are there, they count for nothing."""
        self.kept_jobs: dict[str, str] = {}
        """What Jobs say about keeping their gang together, by uid (see `keeping`)."""
        self._groups_of_object: dict[tuple[bool, str], dict[str, None]] = {}
        self._effects = Effects()
        self.assigned_changed: dict[str, None] = {}
        """Pods that came to a node, left one or changed there; whoever keeps books of running pods takes them."""

    def take_effects(self) -> Effects:
        """What changed since the last call."""
        effects, self._effects = self._effects, Effects()
        return effects

    def node_of(self, key: str) -> str | None:
        """Where a pod is assigned or assumed; for `state`, as its PodBook."""
        record = self.pods.get(key)
        return None if record is None else record.node

    def metadata_of(self, key: str) -> Object:
        """The metadata of a pod; for `state`, as its PodBook."""
        metadata: Object = self.pods[key].pod["metadata"]
        return metadata

    def group_of(self, pod: Object) -> GroupRef | None:
        """The group that the pod belongs to; None for a plain pod."""
        if self._pod_by_pod:
            return None
        return self._grouping.group_of(pod) if self._grouping is not None and self._is_ours(pod) else group_of(pod)

    def terms(self, ref: GroupRef) -> GroupTerms | None:
        """What the group asks for; None while its PodGroup, Workload or template is missing."""
        terms = find_terms(ref, self.pod_groups, self.workloads)
        if terms is None:
            return None
        group = self.pod_groups.get(ref.object_key) if ref.is_pod_group else None
        workload, members = self.workloads.get(workload_key(ref, group)), self.groups.get(ref.key)
        pods = () if members is None else (record.pod for record in members.live())
        return self.topologies.with_topology(terms, ref, group, workload, pods)

    def one_domain(self, members: Members, terms: GroupTerms) -> OneDomain | None:
        """The topology that a group is bound to; None without a constraint."""
        if terms.topology_key is None and terms.topology is None:
            return None
        if terms.topology is None and not self.standing(members):
            return OneDomain(terms.topology_key)
        table, layout = self.state.snapshot().table, None
        if terms.topology is not None:
            layout = layout_of(members, terms.topology, table, self._siblings(members.ref, terms.topology))
        placed = {key: record.node for key, record in self.standing(members).items()}
        return one_domain(table, terms.topology_key, placed, layout)

    def standing(self, members: Members) -> dict[str, PodRecord]:
        """The members with a node that count for their group."""
        evicted = self.given_up.get(members.ref.key)
        if evicted is None:
            return members.scheduled
        return {
            key: record
            for key, record in members.scheduled.items()
            if not is_deleting(record.pod) and uid_of(record.pod) not in evicted
        }

    def _siblings(self, ref: GroupRef, terms: TopologyTerms) -> list[Members]:
        """The other groups of the same template, if the group is to be spread among them."""
        if terms.spread_over is None:
            return []
        template = self._template(ref)
        return [
            members
            for key, members in sorted(self.groups.items())
            if key != ref.key and template[1] and self._template(members.ref) == template
        ]

    def _template(self, ref: GroupRef) -> tuple[str, str]:
        group = self.pod_groups.get(ref.object_key) if ref.is_pod_group else None
        return workload_key(ref, group), template_name(ref, group)

    def chain(self, ref: GroupRef) -> Chain | None:
        """The composite groups above a group; None if it has no parent, or is not known."""
        terms = self.terms(ref)
        return self.hierarchy.chain(f"{ref.namespace}/{terms.parent}") if terms is not None and terms.parent else None

    def shape(self, record: PodRecord) -> Shape:
        """The shape of a pod."""
        return self.state.shape_of(record.pod)

    def apply_nodes(self, changes: Iterable[Change]) -> None:
        """Take over changes of nodes; heartbeats cost a comparison."""
        for change in changes:
            name = name_of(change.object)
            if change.new is None:
                self._remove_node(name)
            else:
                self._set_node(name, change.new)

    def apply_pods(self, changes: Iterable[Change]) -> None:
        """Take over changes of pods."""
        for change in changes:
            if change.new is None or is_terminal(change.new):
                self._drop_pod(key_of(change.object))
                self._note_end(change)
            else:
                self._see_pod(change.new)

    def _note_end(self, change: Change) -> None:
        """Remember a member that ended well for as long as its pod exists."""
        pod = change.object
        ref, owner = self.group_of(pod), controller_of(pod)
        if ref is None:
            return
        if change.new is not None and has_succeeded(change.new):
            self._members(ref).succeeded[key_of(pod)] = "" if owner is None else owner["uid"]
        elif ref.key in self.groups:
            self.groups[ref.key].succeeded.pop(key_of(pod), None)

    def apply_jobs(self, changes: Iterable[Change]) -> None:
        """Take over changes of Jobs: those that need each of their pods to succeed once are remembered."""
        for change in changes:
            uid = uid_of(change.object)
            text = (change.object["metadata"].get("annotations") or {}).get(KEEP_TOGETHER_KEY)
            if change.new is None or text is None:
                self.kept_jobs.pop(uid, None)
            else:
                self.kept_jobs[uid] = text
            if self.topologies.set_job(change.object, exists=change.new is not None):
                self._touch_groups_of_job(uid)
            if change.new is not None and _runs_each_index_once(change.new):
                self._whole_jobs[uid] = None
            else:
                self._whole_jobs.pop(uid, None)

    def apply_topologies(self, changes: Iterable[Change]) -> None:
        """Take over changes of Kueue's Topology objects."""
        for change in changes:
            self.topologies.set_topology(change.object, exists=change.new is not None)
            for key in self.groups:
                self._effects.touch_group(key, retry=True)

    def _touch_groups_of_job(self, uid: str) -> None:
        for key, members in self.groups.items():
            if any((controller_of(record.pod) or {}).get("uid") == uid for record in members.pending.values()):
                self._effects.touch_group(key, retry=True)

    def done(self, members: Members) -> int:
        """How many seats of the group need no pod any more: members that ended well of a Job that runs each index once.

        Only then is it sure that nobody comes in their place. Upstream never counts them, so that there a gang waits
        for ever if one of its pods fails after another has succeeded.
        """
        if not members.succeeded:
            return 0
        pending = {(controller_of(record.pod) or {}).get("uid") for record in members.pending.values()}
        return sum(uid in pending and uid in self._whole_jobs for uid in members.succeeded.values())

    def apply_pod_groups(self, changes: Iterable[Change]) -> None:
        """Take over changes of PodGroups: a new one, or a lower minCount, may release held members."""
        self._apply_group_objects(self.pod_groups, changes, is_pod_group=True)

    def apply_composites(self, changes: Iterable[Change]) -> None:
        """Take over changes of CompositePodGroups: a new one may complete a tree."""
        for change in changes:
            key = key_of(change.object)
            known = self.hierarchy.composites.get(key)
            if known is not None and change.new is not None and known["spec"] == change.new["spec"]:
                continue
            self._touch_above(change.old)
            self.hierarchy.set_composite(key, change.new)
            self._touch_above(change.new)
            for group in self.hierarchy.leaves(key):
                self._effects.touch_group(group, retry=True)

    def _touch_above(self, obj: Object | None) -> None:
        """The tree that a PodGroup or CompositePodGroup is part of has changed."""
        if obj is None:
            return
        if obj.get("kind") == "CompositePodGroup":
            self._effects.touch_tree(self.hierarchy.chain(key_of(obj)).root or key_of(obj), retry=True)
        elif parent := parent_key(obj):
            self._effects.touch_tree(self.hierarchy.chain(parent).root, retry=True)

    def apply_workloads(self, changes: Iterable[Change]) -> None:
        """Take over changes of Workloads (only v1alpha1 pods look at them)."""
        self._apply_group_objects(self.workloads, changes, is_pod_group=False)

    def apply_objects(self, kind: str, changes: Iterable[Change]) -> None:
        """Take over changes of other objects that rules look at (`engine.objects.KINDS`)."""
        for change in changes:
            if change.new is None:
                changed = self.state.remove_object(kind, key_of(change.object))
            else:
                changed = self.state.set_object(kind, change.new)
            if changed:
                self._effects.objects[kind] = None

    def assume(self, key: str, node: str) -> None:
        """Count a pending pod on a node before the API server knows; `forget` undoes it."""
        record = self.pods[key]
        self._move(record, node, assumed=True)

    def reserve_volumes(self, placements: Sequence[Placement]) -> None:
        """Assume the volumes of pods that are placed together, before they are assumed; `forget` undoes it.

        Of two members one may have only one volume to choose and the other several: who finds nothing chooses first.
        """
        order = [each for each in placements if self.pods[each.pod].pod["spec"].get("volumes")]
        for _ in range(len(order)):
            missing = self._first_without_volume(order)
            if missing is None or missing is order[0]:
                return
            for each in order:
                self.state.release_volumes(each.pod)
            order = [missing, *(each for each in order if each is not missing)]

    def _first_without_volume(self, order: Sequence[Placement]) -> Placement | None:
        for each in order:
            reservation = self.state.reserve_volumes(each.pod, self.pods[each.pod].pod, each.node)
            if reservation is not None and reservation.missing:
                return each
        return None

    def _release_volumes(self, key: str) -> None:
        if self.state.release_volumes(key):
            self._effects.objects[PERSISTENT_VOLUME] = None

    def forget(self, key: str) -> bool:
        """Undo `assume`, unless the pod is seen bound or gone meanwhile; whether it is pending again."""
        record = self.pods.get(key)
        if record is None or not record.assumed:
            return False
        self._release_volumes(key)
        self._move(record, "", assumed=False)
        self._touch(record, retry=True)
        return True

    def has_more_room(self, node: str) -> None:
        """Room on the node that was kept for somebody is free again."""
        self._effects.touch_node(node, (ClusterEvent.POD_REMOVED,))

    def _set_node(self, name: str, node: Object) -> None:
        old = self.nodes.get(name)
        self.nodes[name] = node
        if self.state.set_node(node):
            self._effects.touch_node(name, node_events(old, node))

    def _remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.state.remove_node(name)

    def _see_pod(self, pod: Object) -> None:
        key = key_of(pod)
        record = self.pods.get(key)
        if record is not None and uid_of(record.pod) != uid_of(pod):
            self._drop_pod(key)
            record = None
        if record is None:
            self._add_pod(key, pod)
        else:
            self._update_pod(record, pod)

    def _add_pod(self, key: str, pod: Object) -> None:
        spec = pod["spec"]
        ref = self.group_of(pod)
        record = PodRecord(key, pod, ref, self._is_ours(pod))
        self.pods[key] = record
        self.state.note_rules(pod)
        self._enter(record, spec.get("nodeName") or "", assumed=False)
        self._touch(record, retry=True)

    def _update_pod(self, record: PodRecord, pod: Object) -> None:
        old, record.pod = record.pod, pod
        self.state.note_rules(pod)
        node = pod["spec"].get("nodeName") or ""
        if node:
            self._release_volumes(record.key)
            if record.node == node:
                record.assumed = False
                self.assigned_changed[record.key] = None
                self._update_usage(record, old, pod)
            else:
                self._move(record, node, assumed=False)
                self._touch(record)
        elif not record.node and (request_differs(old, pod) or is_leaving(old) != is_leaving(pod)):
            self._move(record, "", assumed=False)
            self._touch(record, retry=True)

    def _update_usage(self, record: PodRecord, old: Object, new: Object) -> None:
        if usage_differs(old, new):
            self.state.add_pod(record.key, new, record.node)
            self._effects.touch_node(record.node, (ClusterEvent.POD_REMOVED,))
        elif is_deleting(old) != is_deleting(new):  # spreading does not count it any more
            self.state.add_pod(record.key, new, record.node)
            self._effects.touch_node(record.node, (ClusterEvent.POD_LEAVES,))

    def _drop_pod(self, key: str) -> None:
        record = self.pods.get(key)
        if record is None:
            return
        self._release_volumes(key)
        freed = record.node
        self._leave(record)
        del self.pods[key]
        if freed:
            self._effects.gone[key] = None
            self._effects.touch_node(freed, (ClusterEvent.POD_REMOVED,))
        self._touch(record)

    def _move(self, record: PodRecord, node: str, *, assumed: bool) -> None:
        freed = record.node
        self._leave(record)
        self._enter(record, node, assumed=assumed)
        if freed and freed != node and not assumed:
            self._effects.touch_node(freed, (ClusterEvent.POD_REMOVED,))

    def _enter(self, record: PodRecord, node: str, *, assumed: bool) -> None:
        members = self._members(record.ref) if record.ref is not None else None
        try:
            if node:
                self.assigned_changed[record.key] = None
                self.state.add_pod(record.key, record.pod, node)
        finally:  # also where it cannot be read what the pod takes
            record.node, record.assumed = node, assumed
        if node:
            identity = self.state.identity_of(record.key)
            if identity is not None:
                self._effects.placed[identity] = None
        elif is_leaving(record.pod):
            members = None
        if members is None:
            return
        (members.scheduled if node else members.pending)[record.key] = record
        members.scheduler_names[scheduler_name_of(record.pod)] += 1
        if not node and record.pod["spec"].get("schedulingGates"):
            members.gated[record.key] = record

    def _leave(self, record: PodRecord) -> None:
        if record.node:
            self.assigned_changed[record.key] = None
            self.state.remove_pod(record.key)
        members = self.groups.get(record.ref.key) if record.ref is not None else None
        if members is None:
            return
        members.gated.pop(record.key, None)
        left = members.pending.pop(record.key, None) or members.scheduled.pop(record.key, None)
        if left is not None:
            name = scheduler_name_of(left.pod)
            members.scheduler_names[name] -= 1
            if not members.scheduler_names[name]:
                del members.scheduler_names[name]

    def _touch(self, record: PodRecord, *, retry: bool = False) -> None:
        if record.ref is not None:
            self._effects.touch_group(record.ref.key, retry=retry)
        else:
            self._effects.pods[record.key] = None

    def _members(self, ref: GroupRef) -> Members:
        members = self.groups.get(ref.key)
        if members is None:
            members = self.groups[ref.key] = Members(ref)
            self._groups_of_object.setdefault((ref.is_pod_group, ref.object_key), {})[ref.key] = None
        return members

    def discard_group_if_empty(self, key: str) -> None:
        """Forget the members of a group that has none left."""
        members = self.groups.get(key)
        if members is None or members.known or members.succeeded:
            return
        del self.groups[key]
        index = (members.ref.is_pod_group, members.ref.object_key)
        self._groups_of_object[index].pop(key, None)
        if not self._groups_of_object[index]:
            del self._groups_of_object[index]

    def _apply_group_objects(
        self, objects: dict[str, Object], changes: Iterable[Change], *, is_pod_group: bool
    ) -> None:
        for change in changes:
            key = key_of(change.object)
            concerned = list(self._groups_of_object.get((is_pod_group, key), ()))
            if not is_pod_group and _says_topology(objects.get(key)) != _says_topology(change.new):
                concerned += [name for name, group in self.pod_groups.items() if self._is_made_of(name, group, key)]
            before = {group: self.terms(self.groups[group].ref) for group in concerned}
            if is_pod_group and _terms_differ(objects.get(key), change.new):
                self._touch_above(change.old)
                self.hierarchy.set_child((False, key), objects.get(key), change.new)
                self._touch_above(change.new)
            if change.new is None:
                objects.pop(key, None)
            else:
                objects[key] = change.new
            for group, old in before.items():
                new = self.terms(self.groups[group].ref)
                if old != new:
                    self._effects.touch_group(group, retry=_is_relaxed(old, new))

    def _is_made_of(self, key: str, group: Object, workload: str) -> bool:
        members = self.groups.get(key)
        return members is not None and workload_key(members.ref, group) == workload

    def _is_ours(self, pod: Object) -> bool:
        return scheduler_name_of(pod) in self._scheduler_names


def _is_relaxed(old: GroupTerms | None, new: GroupTerms | None) -> bool:
    """Whether a group may be schedulable under the new terms though it was not under the old ones."""
    if new is None or old is None:
        return new is not None
    wanted = (new.topology_key, new.topology, new.fault) != (old.topology_key, old.topology, old.fault)
    return new.min_count < old.min_count or wanted or new.priority != old.priority


def _says_topology(obj: Object | None) -> str | None:
    return None if obj is None else (obj["metadata"].get("annotations") or {}).get(TOPOLOGY_KEY)


def _terms_differ(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old["spec"] != new["spec"]


def _runs_each_index_once(job: Object) -> bool:
    spec = job["spec"]
    return bool(spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"))
