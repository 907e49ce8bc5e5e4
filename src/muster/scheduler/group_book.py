"""What the scheduler knows of groups: their members, and the objects that say what they ask for. Time-free and pure.

Changes go in; which groups and trees they may have made schedulable is noted in `effects`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.grouping import Grouping
from muster.api.groups import CompositeTerms, GroupRef, GroupTerms, Stages, find_terms, terms_of
from muster.api.meta import controller_of, is_deleting, key_of, namespace_of, uid_of
from muster.api.topology import TOPOLOGY_KEY, TopologyTerms
from muster.client.informer import Change
from muster.scheduler.effects import Effects
from muster.scheduler.hierarchy import Chain, Hierarchy, parent_key
from muster.scheduler.layouts import TopologyObjects, template_name, workload_key
from muster.scheduler.members import Members, PodRecord

KEEP_TOGETHER_KEY = "scheduling.muster-k8s.dev/keep-together"
"""The annotation that says how long a gang may run with too few members (see `keeping`)."""


class GroupBook:
    """Members by group, and PodGroups, Workloads, composite groups, Jobs and Topology objects by key.

    `grouping`: which objects of others are seen as Workloads, and may stand in for PodGroups that do not exist.
    """

    def __init__(self, grouping: Grouping | None = None) -> None:
        self.groups: dict[str, Members] = {}
        self.pod_groups: dict[str, Object] = {}
        self.workloads: dict[str, Object] = {}
        self.hierarchy = Hierarchy()
        self.topologies = TopologyObjects()
        self.given_up: dict[str, frozenset[str]] = {}
        """Groups that were evicted as a whole and begin anew, with the uids of those evicted: as long as these, or
        others that are leaving, are there, they count for nothing."""
        self.kept_jobs: dict[str, str] = {}
        """What Jobs say about keeping their gang together, by uid (see `keeping`)."""
        self._grouping = grouping
        self._stand_ins: dict[str, str] = {}
        """For PodGroups that Jobs may have: the key of the Job, as a Workload."""
        self._whole_jobs: dict[str, None] = {}
        self._groups_of_object: dict[tuple[bool, str], dict[str, None]] = {}
        self._read: dict[str, tuple[Object, GroupTerms]] = {}
        """PodGroups by key, with what they say."""
        self._effects = Effects()
        self.terms_changed: dict[str, None] = {}
        """Groups that ask for something else, or are below another composite group; whoever keeps books of what groups
        say takes them."""

    def take_effects(self) -> Effects:
        """What changed since the last call."""
        effects, self._effects = self._effects, Effects()
        return effects

    def terms(self, ref: GroupRef) -> GroupTerms | None:
        """What the group asks for; None while its PodGroup, Workload or template is missing."""
        terms = self._said(ref)
        if terms is None:
            return None
        group = self.pod_groups.get(ref.object_key) if ref.is_pod_group else None
        workload, members = self.workloads.get(workload_key(ref, group)), self.groups.get(ref.key)
        pods = () if members is None else (record.pod for record in members.live())
        whole = self.topologies.with_topology(terms, ref, group, workload, pods)
        return whole if terms.stages is None or members is None else self._in_stages(whole, terms.stages, members)

    def _said(self, ref: GroupRef) -> GroupTerms | None:
        """What the group's PodGroup or template says by itself, or who stands in for it; a PodGroup is read once."""
        group = self.pod_groups.get(ref.object_key) if ref.is_pod_group else None
        if group is not None:
            read = self._read.get(ref.object_key)
            if read is None or read[0] is not group:
                read = self._read[ref.object_key] = (group, terms_of(group["spec"]))
            return read[1]
        stand_in = self.stand_in(ref)
        if stand_in is not None:
            return terms_of(stand_in["spec"]["podGroupTemplates"][0])
        return find_terms(ref, self.pod_groups, self.workloads)

    def _in_stages(self, terms: GroupTerms, stages: Stages, members: Members) -> GroupTerms:
        """The terms of pods that come in parts: of each part that waits, all; whoever else has a seat keeps it."""
        waiting = {stages.part_of(record.pod["metadata"]) for record in members.pending.values()}
        seated = [record.pod["metadata"] for record in self.standing(members).values()]
        seated += [members.ended[key] for key in self._seats_of_ended(members)]
        others = sum(stages.part_of(metadata) not in waiting for metadata in seated)
        return replace(terms, min_count=max(1, others + sum(stages.size_of(part) for part in waiting)))

    def stand_in(self, ref: GroupRef) -> Object | None:
        """The Job, as a Workload, that says what a PodGroup that is not there would say; None for other groups."""
        key = self._stand_ins.get(ref.object_key) if ref.is_pod_group else None
        return None if key is None else self.workloads.get(key)

    def composite_terms(self, key: str) -> CompositeTerms | None:
        """What a composite group asks for, with its annotation; None while it is missing."""
        terms, composite = self.hierarchy.terms(key), self.hierarchy.composites.get(key)
        if terms is None or composite is None:
            return None
        return self.topologies.composite_with_topology(terms, composite, self.workloads.get(_workload_of(composite)))

    def standing(self, members: Members) -> dict[str, PodRecord]:
        """The members with a node that count for their group.

        In one that is there by a rule about owners, not those that leave: owners that start all over delete the old
        pods while they make the next ones, which are to find their nodes together.
        """
        evicted = self.given_up.get(members.ref.key, frozenset() if _is_implied(members.ref) else None)
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
        terms = self._said(ref)
        return self.hierarchy.chain(f"{ref.namespace}/{terms.parent}") if terms is not None and terms.parent else None

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
        for ever if one of its pods fails after another has succeeded. In a group that is there by a rule about owners
        those count, too, whose own controller (the launcher's Job, another job of the JobSet) has no pod that waits.
        """
        return len(self._seats_of_ended(members))

    def _seats_of_ended(self, members: Members) -> list[str]:
        if not members.succeeded:
            return []
        pending = {(controller_of(record.pod) or {}).get("uid", "") for record in members.pending.values()}
        is_implied, had_its_turn = _is_implied(members.ref), self._had_its_turn(members)

        def keeps_seat(key: str, uid: str) -> bool:
            if uid in pending or had_its_turn:
                return uid in self._whole_jobs
            return is_implied and not members.ended[key].get("deletionTimestamp")

        return [key for key, uid in members.succeeded.items() if keeps_seat(key, uid)]

    def _had_its_turn(self, members: Members) -> bool:
        """Whether nobody waits in a group of a tree: it goes on counting for the tree, so that others have theirs."""
        terms = None if members.pending else self._said(members.ref)
        return terms is not None and bool(terms.parent)

    def apply_pod_groups(self, changes: Iterable[Change]) -> None:
        """Take over changes of PodGroups: a new one, or a lower minCount, may release held members."""
        self._apply_group_objects(self.pod_groups, changes, is_pod_group=True)

    def apply_composites(self, changes: Iterable[Change]) -> None:
        """Take over changes of CompositePodGroups: a new one may complete a tree."""
        for change in changes:
            key = key_of(change.object)
            known = self.hierarchy.composites.get(key)
            is_same = not _terms_differ(known, change.new)
            if is_same and _says_topology(known) == _says_topology(change.new):
                continue
            self._touch_above(change.old)
            self.hierarchy.set_composite(key, change.new)
            self._touch_above(change.new)
            for group in self.hierarchy.leaves(key):
                self.terms_changed[group] = None
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
        """Take over changes of Workloads (v1alpha1 pods look at them, and whoever looks for an annotation)."""
        for change in changes:
            key = key_of(change.object)
            if _says_topology(self.workloads.get(key)) != _says_topology(change.new):
                self._touch_composites_of(key)
        self._apply_group_objects(self.workloads, changes, is_pod_group=False)

    def _touch_composites_of(self, workload: str) -> None:
        for key, composite in self.hierarchy.composites.items():
            if _workload_of(composite) == workload:
                for group in self.hierarchy.leaves(key):
                    self._effects.touch_group(group, retry=True)

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
        if self._stand_ins.get(key) not in self.workloads:
            self._stand_ins.pop(key, None)
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
            group_of_job = "" if is_pod_group else self._note_stand_in(change)
            concerned += [group_of_job] if group_of_job in self.groups else []
            if not is_pod_group and _says_topology(objects.get(key)) != _says_topology(change.new):
                concerned += [name for name, group in self.pod_groups.items() if self._is_made_of(name, group, key)]
            before = {group: self.terms(self.groups[group].ref) for group in concerned}
            if is_pod_group and _terms_differ(objects.get(key), change.new):
                self._touch_above(change.old)
                self.hierarchy.set_child((False, key), objects.get(key), change.new)
                self._touch_above(change.new)
            if change.new is None:
                objects.pop(key, None)
                self._read.pop(key, None)
            else:
                objects[key] = change.new
            for group, old in before.items():
                new = self.terms(self.groups[group].ref)
                if old != new:
                    self.terms_changed[group] = None
                    self._effects.touch_group(group, retry=_is_relaxed(old, new))
                elif change.old is None and self.stand_in(self.groups[group].ref) is not None:
                    self._effects.touch_group(group, retry=True)  # so that it says how its members stand

    def _note_stand_in(self, change: Change) -> str:
        """Note whose PodGroup an object stands in for; the group that this concerns, "" for none."""
        group = "" if self._grouping is None else self._grouping.group_for(change.object)
        if group:
            self._stand_ins[group] = key_of(change.object)
            if change.new is None and group not in self.groups:
                del self._stand_ins[group]
        return group

    def _is_made_of(self, key: str, group: Object, workload: str) -> bool:
        members = self.groups.get(key)
        return members is not None and workload_key(members.ref, group) == workload


def _is_implied(ref: GroupRef) -> bool:
    """Whether a group is there by a rule about owners: no real Workload has a colon in its name."""
    return ":" in ref.workload


def _is_relaxed(old: GroupTerms | None, new: GroupTerms | None) -> bool:
    """Whether a group may be schedulable under the new terms though it was not under the old ones."""
    if new is None or old is None:
        return new is not None
    wanted = (new.topology_key, new.topology, new.fault) != (old.topology_key, old.topology, old.fault)
    return new.min_count < old.min_count or wanted or new.priority != old.priority


def _says_topology(obj: Object | None) -> str | None:
    return None if obj is None else (obj["metadata"].get("annotations") or {}).get(TOPOLOGY_KEY)


def _workload_of(composite: Object) -> str:
    """The key of the Workload that a composite group was made from."""
    name = (composite["spec"].get("workloadRef") or {}).get("workloadName")
    return f"{namespace_of(composite)}/{name}" if name else ""


def _terms_differ(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old["spec"] != new["spec"]


def _runs_each_index_once(job: Object) -> bool:
    spec = job["spec"]
    return bool(spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"))
