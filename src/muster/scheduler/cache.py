"""What the scheduler knows of the cluster: nodes, pods by group, and what is assumed but not yet seen bound.

Informer changes go in, `Effects` come out: what may have become schedulable. Terminal pods count for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from muster.api.codec import Object
from muster.api.grouping import Grouping
from muster.api.groups import GroupRef, GroupTerms, group_of
from muster.api.meta import controller_of, is_deleting, key_of, name_of, uid_of
from muster.client.informer import Change
from muster.engine.devices.demand import ClaimProblem, claims_problem, pod_claims
from muster.engine.devices.features import OURS, Features
from muster.engine.model import Placement
from muster.engine.objects import PERSISTENT_VOLUME, RESOURCE_CLAIM
from muster.engine.shape import Shape
from muster.engine.state import ClusterState
from muster.scheduler.changes import (
    ClusterEvent,
    claim_may_help,
    has_devices,
    has_succeeded,
    is_leaving,
    is_terminal,
    node_events,
    request_differs,
    usage_differs,
)
from muster.scheduler.domains import OneDomain, one_domain
from muster.scheduler.group_book import GroupBook
from muster.scheduler.layouts import layout_of
from muster.scheduler.members import Members, PodRecord, scheduler_name_of


class SchedulerCache(GroupBook):
    """Nodes and pods by key, what is known of groups, and the engine's view of nodes and usage (`state`)."""

    def __init__(
        self,
        scheduler_names: frozenset[str],
        *,
        pod_by_pod: bool = False,
        grouping: Grouping | None = None,
        features: Features = OURS,
    ) -> None:
        super().__init__(grouping)
        self.pods: dict[str, PodRecord] = {}
        self.state = ClusterState(self, features)
        self._waits_for_writes = features.upstream
        self.claim_problems: dict[str, str] = {}
        """Our pending pods whose claims for devices cannot be used yet, and why."""
        self._claim_waiters: dict[str, dict[str, None]] = {}
        self.nodes: dict[str, Object] = {}
        self._scheduler_names = scheduler_names
        self._pod_by_pod = pod_by_pod
        self.assigned_changed: dict[str, None] = {}
        """Pods that came to a node, left one or changed there; whoever keeps books of running pods takes them."""

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
            members = self._members(ref)
            members.succeeded[key_of(pod)] = "" if owner is None else owner["uid"]
            members.ended[key_of(pod)] = pod["metadata"]
        elif ref.key in self.groups:
            self.groups[ref.key].succeeded.pop(key_of(pod), None)
            self.groups[ref.key].ended.pop(key_of(pod), None)

    def apply_objects(self, kind: str, changes: Iterable[Change]) -> None:
        """Take over changes of other objects that rules look at (`engine.objects.KINDS`)."""
        for change in changes:
            if change.new is None:
                changed = self.state.remove_object(kind, key_of(change.object))
            else:
                changed = self.state.set_object(kind, change.new)
            helps = kind != RESOURCE_CLAIM or claim_may_help(
                change.old, change.new, waits_for_writes=self._waits_for_writes
            )
            if changed and helps:
                self._effects.objects[kind] = None
            if kind == RESOURCE_CLAIM:
                self._look_again(key_of(change.object))
                if has_devices(change.old) and not has_devices(change.new):
                    self._effects.freed[key_of(change.object)] = None

    def _look_again(self, claim: str) -> None:
        """A claim is new, changed or gone: whoever waits for it may be tried, or waits for something else."""
        for pod in self._claim_waiters.pop(claim, ()):
            record = self.pods.get(pod)
            if record is None or record.node:
                continue
            before = self.claim_problems.get(pod)
            self._look_at_claims(record)
            if self.claim_problems.get(pod) != before:
                self._touch(record, retry=True)

    def _look_at_claims(self, record: PodRecord) -> None:
        """Note whether the claims of a pending pod can be used; if not, its group is held as if it had a gate."""
        pod, key = record.pod, record.key
        if not pod["spec"].get("resourceClaims"):
            return
        problem = claims_problem(pod, lambda claim: self.state.objects.get(RESOURCE_CLAIM, claim))
        members = self.groups.get(record.ref.key) if record.ref is not None else None
        if not problem:
            self.claim_problems.pop(key, None)
            if members is not None and not pod["spec"].get("schedulingGates"):
                members.gated.pop(key, None)
        else:
            self.claim_problems[key] = problem
            if members is not None and key in members.pending:
                members.gated[key] = record
        with suppress(ClaimProblem):
            for each in pod_claims(pod):
                self._claim_waiters.setdefault(each.key, {})[key] = None

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

    def reserve_devices(self, placements: Sequence[Placement]) -> None:
        """Assume the devices of pods that are placed together, before they are assumed; `forget` undoes it."""
        pods = [(each.pod, self.pods[each.pod].pod, each.node) for each in placements]
        using = [each for each in pods if self.state.devices_of(each[1]) is not None]
        if using:
            self.state.reserve_devices(using)

    def _release_reserved(self, key: str) -> None:
        if self.state.release_volumes(key):
            self._effects.objects[PERSISTENT_VOLUME] = None
        if self.state.release_devices(key):
            self._effects.objects[RESOURCE_CLAIM] = None

    def forget(self, key: str) -> bool:
        """Undo `assume`, unless the pod is seen bound or gone meanwhile; whether it is pending again."""
        record = self.pods.get(key)
        if record is None or not record.assumed:
            return False
        self._release_reserved(key)
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
            self._release_reserved(record.key)
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
        self._release_reserved(key)
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
                identity = self.state.add_pod(record.key, record.pod, node)
                if identity is not None:
                    self._effects.placed[identity] = None
        finally:  # also where it cannot be read what the pod takes
            record.node, record.assumed = node, assumed
        if members is None or (not node and is_leaving(record.pod)):
            if not node and record.ours:
                self._look_at_claims(record)
            return
        (members.scheduled if node else members.pending)[record.key] = record
        members.scheduler_names[scheduler_name_of(record.pod)] += 1
        if not node and record.pod["spec"].get("schedulingGates"):
            members.gated[record.key] = record
        if not node and record.ours:
            self._look_at_claims(record)

    def _leave(self, record: PodRecord) -> None:
        if record.node:
            self.assigned_changed[record.key] = None
            self.state.remove_pod(record.key)
        self.claim_problems.pop(record.key, None)
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

    def _is_ours(self, pod: Object) -> bool:
        return scheduler_name_of(pod) in self._scheduler_names
