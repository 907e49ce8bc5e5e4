"""What the queue holds: plain pods, groups and trees of groups; how old and urgent each is, and what it asks.

Reads the cache and changes nothing. Keys: `pod:` and the pod's key, `group:` and the group's, `tree:` and the root's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from muster.api.groups import GroupRef
from muster.api.meta import uid_of
from muster.engine.model import Member
from muster.engine.plugins.dynamic_resources import DynamicResources
from muster.engine.plugins.volume_binding import VolumeBinding
from muster.engine.profile import Profile
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.cycle import Ask
from muster.scheduler.hierarchy import LeafFacts, ready_groups
from muster.scheduler.members import Members, PodRecord, scheduler_name_of
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.pre_enqueue import GroupFacts, TreeFacts
from muster.scheduler.tree import Branch, Leaf, leaves_of

POD = "pod:"
GROUP = "group:"
TREE = "tree:"


@dataclass(slots=True)
class Entities:
    """The entities of a cache. `profiles`: those that pods may follow, by the number that questions name."""

    cache: SchedulerCache
    options: SchedulerOptions
    profiles: list[Profile] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in sorted(self.options.scheduler_names):
            profile = self.options.profile_of(name)
            if profile not in self.profiles:
                self.profiles.append(profile)
            self._numbers[name] = self.profiles.index(profile)

    def binds_volumes(self, profile: int) -> bool:
        """Whether the rules of that number bind volumes for pods."""
        return any(isinstance(plugin, VolumeBinding) for plugin in self.profiles[profile].filters)

    def gives_devices(self, profile: int) -> bool:
        """Whether the rules of that number give devices to pods."""
        return any(isinstance(plugin, DynamicResources) for plugin in self.profiles[profile].filters)

    def root_of(self, group: str) -> str | None:
        """The root of the tree that a group is a part of; None if there is none."""
        members = self.cache.groups.get(group)
        chain = None if members is None else self.cache.chain(members.ref)
        return None if chain is None else chain.root

    def of_pod(self, pod: str) -> str:
        """The entity to which a pod belongs."""
        record = self.cache.pods.get(pod)
        if record is None or record.ref is None:
            return POD + pod
        root = self.root_of(record.ref.key)
        return GROUP + record.ref.key if root is None else TREE + root

    def groups(self, entity: str) -> list[Members]:
        """The members of a group or of all groups of a tree, as far as there are any."""
        if entity.startswith(POD):
            return []
        key = entity.removeprefix(GROUP)
        keys: Iterator[str] | list[str] = [key]
        if entity.startswith(TREE):
            keys = self.cache.hierarchy.leaves(entity.removeprefix(TREE))
        return [members for each in keys if (members := self.cache.groups.get(each)) is not None]

    def pods(self, entity: str) -> tuple[str, ...]:
        """Our pending pods of an entity, in the order in which they are placed."""
        if entity.startswith(POD):
            return (entity.removeprefix(POD),)
        return tuple(record.key for members in self.groups(entity) for record in members.to_place())

    def pending(self, entity: str) -> int:
        """How many these are."""
        if entity.startswith(POD):
            return 1
        return sum(record.ours for members in self.groups(entity) for record in members.pending.values())

    def created(self, entity: str) -> tuple[str, int]:
        """When the entity's first pending pod was created; ("", 0) if that is not known.

        Creation times are whole seconds: within one, the pod whose resource version is lower was there first, unless
        somebody has written to it since.
        """
        if entity.startswith(POD):
            record = self.cache.pods.get(entity.removeprefix(POD))
            return ("", 0) if record is None else _age(record)
        firsts = (next(iter(members.pending.values()), None) for members in self.groups(entity))
        return min((_age(record) for record in firsts if record is not None), default=("", 0))

    def priority(self, entity: str) -> int:
        """That of the PodGroup or of the root, else the highest of the pending pods."""
        if entity.startswith(POD):
            record = self.cache.pods.get(entity.removeprefix(POD))
            return 0 if record is None else record.priority
        groups = self.groups(entity)
        if entity.startswith(TREE):
            of_root = self.cache.hierarchy.terms(entity.removeprefix(TREE))
            said = None if of_root is None else of_root.priority
        else:
            terms = self.cache.terms(groups[0].ref) if groups else None
            said = None if terms is None else terms.priority
        if said is not None:
            return said
        return max((record.priority for members in groups for record in members.pending.values()), default=0)

    def preemptor(self, ask: Ask) -> tuple[str, str]:
        """Kind and uid (a key, where there is no object) of an entity for which others are evicted."""
        if ask.entity.startswith(TREE):
            root = self.cache.hierarchy.composites.get(ask.entity.removeprefix(TREE))
            return "compositepodgroup", uid_of(root) if root is not None else ask.entity.removeprefix(TREE)
        if ask.ref is not None:
            group = self.cache.pod_groups.get(ask.ref.key)
            return "podgroup", uid_of(group) if group is not None else ask.ref.key
        return "pod", uid_of(self.cache.pods[ask.members[0].key].pod)

    def may_preempt(self, ask: Ask) -> bool:
        """Whether neither the group nor any of its pods has preemptionPolicy Never."""
        terms = self.cache.terms(ask.ref) if ask.ref is not None else None
        if terms is not None and not terms.may_preempt:
            return False
        records = (self.cache.pods.get(member.key) for member in ask.members)
        return all(each is None or each.pod["spec"].get("preemptionPolicy") != "Never" for each in records)

    def is_satisfied(self, group: str) -> bool:
        """Whether at least minCount members of the group have a node."""
        members = self.cache.groups.get(group)
        terms = self.cache.terms(members.ref) if members is not None else None
        return members is not None and terms is not None and self._scheduled(members) >= terms.min_count

    def composites_above(self, group: str) -> tuple[str, ...]:
        """The keys of the composite groups above a group, the root last."""
        members = self.cache.groups.get(group)
        chain = None if members is None else self.cache.chain(members.ref)
        return () if chain is None or chain.root is None else chain.above

    def is_composite_satisfied(self, key: str) -> bool:
        """Whether enough children of a composite group have enough members with a node."""
        hierarchy = self.cache.hierarchy
        terms = hierarchy.terms(key)
        satisfied = sum(
            self.is_composite_satisfied(child) if is_composite else self.is_satisfied(child)
            for is_composite, child in hierarchy.children(key)
        )
        return terms is not None and satisfied >= terms.min_groups

    # -- what PreEnqueue looks at ------------------------------------------------------------------------------------

    def group_facts(self, members: Members) -> GroupFacts:
        """The facts of a group without a parent."""
        ref, gated = members.ref, self._gated(members)
        return GroupFacts(
            ref,
            self.cache.terms(ref),
            self._known(members),
            gated,
            self._scheduler_names(members),
            has_workload=not ref.is_pod_group and ref.object_key in self.cache.workloads,
            claims=self._claims(gated),
        )

    def _claims(self, gated: Iterable[str]) -> str:
        """Why the claims of the first of these pods that waits for claims cannot be used."""
        problems = self.cache.claim_problems
        return next((problems[key] for key in sorted(gated) if key in problems), "")

    def tree_facts(self, root: str) -> TreeFacts:
        """The facts of a tree."""
        hierarchy = self.cache.hierarchy
        leaves: dict[str, LeafFacts] = {}
        for key in hierarchy.leaves(root):
            members = self.members(key)
            gated, names = self._gated(members), self._scheduler_names(members)
            leaves[key] = LeafFacts(members.ref, self.cache.terms(members.ref), self._known(members), gated, names)
        terms = hierarchy.terms(root)
        composites = (self.cache.composite_terms(key) for key in hierarchy.composites_below(root))
        faults = [each.fault for each in composites if each is not None and each.fault]
        faults += [leaf.terms.fault for leaf in leaves.values() if leaf.terms is not None and leaf.terms.fault]
        return TreeFacts(
            root,
            ready_groups(hierarchy, root, leaves),
            1 if terms is None else terms.min_groups,
            tuple(name for leaf in leaves.values() for name in leaf.gated),
            tuple(dict.fromkeys(name for leaf in leaves.values() for name in leaf.scheduler_names)),
            self._claims(name for leaf in leaves.values() for name in leaf.gated),
            tuple(faults),
        )

    # -- questions ---------------------------------------------------------------------------------------------------

    def ask(self, entity: str) -> Ask | None:
        """The question that an entity asks now; None without any. Raises ValueError for what cannot be read."""
        if entity.startswith(POD):
            return self._pod_ask(entity)
        return self._tree_ask(entity) if entity.startswith(TREE) else self._group_ask(entity)

    def _pod_ask(self, entity: str) -> Ask | None:
        record = self.cache.pods.get(entity.removeprefix(POD))
        if record is None or record.node:
            return None
        return Ask(entity, record.priority, (self._member(record),), profile=self._profile_number(record))

    def _group_ask(self, entity: str) -> Ask | None:
        members = self.cache.groups.get(entity.removeprefix(GROUP))
        terms = None if members is None else self.cache.terms(members.ref)
        if members is None or terms is None:
            return None
        records = self.to_place(members)
        if not records:
            return None
        pending = tuple(self._member(record) for record in records)
        priority, profile = self.priority(entity), self._profile_number(records[0])
        scheduled, topology = self._scheduled(members), self.cache.one_domain(members, terms)
        return Ask(entity, priority, pending, members.ref, terms.min_count, scheduled, profile, topology=topology)

    def _tree_ask(self, entity: str) -> Ask | None:
        tree = self._branch(entity.removeprefix(TREE))
        members = () if tree is None else tuple(member for leaf in leaves_of(tree) for member in leaf.members)
        if tree is None or not members:
            return None
        profile = self._profile_number(self.cache.pods[members[0].key])
        return Ask(entity, self.priority(entity), members, profile=profile, tree=tree)

    def _branch(self, key: str) -> Branch | None:
        """A composite group with all below it; None if it is not known."""
        terms = self.cache.composite_terms(key)
        if terms is None:
            return None
        children = self.cache.hierarchy.children(key)
        found = [self._branch(child) if is_composite else self._leaf(child) for is_composite, child in children]
        children_found = tuple(child for child in found if child is not None)
        return Branch(key, children_found, terms.min_groups, terms.topology_key, terms.preferred)

    def _leaf(self, key: str) -> Leaf | None:
        members = self.members(key)
        terms = self.cache.terms(members.ref)
        if terms is None:
            return None
        pending = tuple(self._member(record) for record in self.to_place(members))
        topology, scheduled = self.cache.one_domain(members, terms), self._scheduled(members)
        placed = tuple((pod, record.node) for pod, record in sorted(members.scheduled.items()) if record.node)
        return Leaf(members.ref, pending, terms.min_count, scheduled, topology, placed)

    def members(self, group: str) -> Members:
        """The members of a PodGroup, which may have none."""
        namespace, _, name = group.partition("/")
        return self.cache.groups.get(group) or Members(GroupRef(namespace, name))

    def to_place(self, members: Members) -> list[PodRecord]:
        """Our pending members in the order in which they are placed; 1.36 goes on without those that are gated."""
        records = members.to_place()
        return [record for record in records if record.key not in members.gated] if self._is_1_36 else records

    @property
    def _is_1_36(self) -> bool:
        return self.options.release == "1.36"

    def _known(self, members: Members) -> int:
        """How many members count as there; those of other schedulers do not for upstream while they are pending."""
        if self.options.release:
            return len(members.scheduled) + sum(record.ours for record in members.pending.values())
        return len(members.pending) + self._scheduled(members)

    def _gated(self, members: Members) -> tuple[str, ...]:
        """The gated members that hold the group."""
        return () if self._is_1_36 and self.to_place(members) else tuple(members.gated)

    def _scheduler_names(self, members: Members) -> tuple[str, ...]:
        """The schedulers that members name; upstream only sees its own."""
        if not self.options.release:
            return tuple(members.scheduler_names)
        return tuple(dict.fromkeys(scheduler_name_of(each.pod) for each in members.pending.values() if each.ours))

    def _scheduled(self, members: Members) -> int:
        return len(self.cache.standing(members)) + self.cache.done(members)

    def _member(self, record: PodRecord) -> Member:
        return Member(record.key, self.cache.shape(record))

    def _profile_number(self, record: PodRecord) -> int:
        """By whose rules the pod is placed; members of a group all name one scheduler, else they are held."""
        return self._numbers[scheduler_name_of(record.pod)]


def _age(record: PodRecord) -> tuple[str, int]:
    version = str(record.pod["metadata"].get("resourceVersion") or "")
    return record.created, int(version) if version.isdecimal() else 0
