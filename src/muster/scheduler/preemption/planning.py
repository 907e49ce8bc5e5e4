"""Preemption as the scheduler's core sees it: who waits for which victims, and where room is kept for whom. Pure.

            plan                        last victim gone
    (none) ──────► WAITING FOR VICTIMS ─────────────────► RETRY ──► placed, anywhere: all its nominations end
                        │    ▲                              │
                        │    └──────────────────────────────┘ the room is gone again: a new plan, or none
                        └─► gives up (deleted, its node gone): all its nominations end

While an entity waits nobody else is evicted for it. Room that is kept counts as used for everybody of at most its
priority; an entity of higher priority takes it, and the other plans anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import Struct, structs

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.api.meta import is_deleting, uid_of
from muster.engine.defragment import Moves, moves_for
from muster.engine.devices.demand import claims_held
from muster.engine.model import GroupRequest, Member, Placed, Placement
from muster.engine.objects import RESOURCE_CLAIM
from muster.engine.preemption.groups import DEFAULT_CHECKS, GroupPreemptor, TreePreemptor, preempt_group
from muster.engine.preemption.holding import holds
from muster.engine.preemption.model import Nomination, NoPlan, Plan, Unit
from muster.engine.preemption.pods import WAITS, Candidate, Cluster, PodPreemptor, preempt_pod
from muster.engine.profile import DEFAULT_PREEMPTION, Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.upstream.model import Choices, Release
from muster.engine.upstream.preemption import one_by_one
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.domains import OneDomain
from muster.scheduler.errors import error_text
from muster.scheduler.members import PodRecord
from muster.scheduler.preemption.moving import movable
from muster.scheduler.preemption.trees import tree_preemptor
from muster.scheduler.preemption.units import BY_SCHEDULER, Units
from muster.scheduler.tree import Branch

TREE_CHECKS = 60
"""Questions about a tree that a plan may ask: each may take as many of the engine as its groups have choices."""
COMES_BACK_S = 60.0
"""So long room is kept on nodes that are not ready though all victims have gone: a node that starts again ends its pods
before it says that it is ready."""
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
NOT_KEPT = "the room that was found did not hold"


def awaited_claim(key: str) -> str:
    """How a ResourceClaim is named among what is waited for, beside pods."""
    return f"claim {key}"


@dataclass(slots=True)
class Ongoing:
    """An entity for which room was or is being made. `awaited`: key and uid of the pods that have to go first, and
    their claims (`awaited_claim`) that have to lose their devices.

    `kept_until_s`: while nodes of the room are not ready it is kept until then.
    """

    entity: str
    priority: int
    places: dict[str, str]
    shapes: dict[str, Shape]
    awaited: dict[str, str] = field(default_factory=dict)
    kept_until_s: float | None = None
    kept: tuple[Nomination, ...] = ()
    """The room that is kept for those that were pending when it was last looked at."""


class Victim(Struct, frozen=True):
    """A pod to delete. `group`: it goes as a part of this group."""

    record: PodRecord
    uid: str
    group: GroupRef | None = None


class Question(Struct, frozen=True):
    """Who wants to preempt: a plain pod, or the members of a group or tree of which `need` must fit."""

    entity: str
    priority: int
    members: tuple[Member, ...]
    need: int
    is_pod: bool
    may_preempt: bool
    profile: Profile
    topology: OneDomain | None = None
    tree: Branch | None = None
    """A tree of groups: how many of which are enough is its own matter."""


class Preemptions:
    """All preemptions under way in one scheduler."""

    def __init__(
        self,
        cache: SchedulerCache,
        *,
        time_limit_s: float | None = None,
        release: Release | None = None,
        choices: Choices | None = None,
        moves_others: bool = False,
    ) -> None:
        """`release`: the one whose rules apply, if not our own. `moves_others`: who fits elsewhere may be moved."""
        self.units = Units(cache)
        self.cleared: dict[str, None] = {}
        """Pods whose nomination has ended without a node: their status is to say so. Taken by the service."""
        self._cache = cache
        self._time_limit_s = time_limit_s
        self._release = release
        self._choices = choices or Choices()
        self._moves_others = moves_others
        self._ongoing: dict[str, Ongoing] = {}
        self._waiting_for: dict[str, dict[str, None]] = {}
        self._moved: dict[str, None] = {}
        """Groups that have been moved: each is once."""
        self._seen: Snapshot | None = None
        self._views: dict[tuple[int, ...], tuple[Snapshot, Sequence[tuple[Nomination, ...]]]] = {}
        """`_seen` as those find it for whom the same room is taken: by the identities of what is kept."""
        self._ready: dict[str, None] = {}
        """Entities whose plan evicts nobody: they are to be tried at once."""

    def __contains__(self, entity: str) -> bool:
        return entity in self._ongoing

    @property
    def entities(self) -> list[str]:
        """Those for which room is kept or made."""
        return list(self._ongoing)

    def ongoing(self, entity: str) -> Ongoing | None:
        """What is under way for an entity; not to be changed."""
        return self._ongoing.get(entity)

    # -- what others see

    @contextmanager
    def view(self, priority: int, entity: str) -> Iterator[Snapshot]:
        """The cluster as an entity of this priority finds it: with the room taken that is kept for others."""
        snapshot = self._cache.state.snapshot()
        kept = [self._kept(each) for each in self._ongoing.values() if each.entity != entity]
        kept = [each for each in kept if each and each[0].priority >= priority]
        yield self._with_room_taken(snapshot, kept) if kept else snapshot

    def _with_room_taken(self, snapshot: Snapshot, kept: Sequence[tuple[Nomination, ...]]) -> Snapshot:
        """The snapshot with these pods in their places; the same one for all that find the same."""
        if self._seen is not snapshot:
            self._seen, self._views = snapshot, {}
        key = tuple(map(id, kept))
        if key not in self._views:
            view, index = Trial(snapshot), snapshot.table.index
            nominations = (nomination for each in kept for nomination in each)
            view.place_each((each.shape.usage, index[each.node]) for each in nominations if each.node in index)
            self._views[key] = view, kept
        return self._views[key][0]

    def nominations(self, entity: str = "") -> list[Nomination]:
        """Room kept for pending pods, except for those of this entity."""
        kept = (self._kept(each) for each in self._ongoing.values() if each.entity != entity)
        return [nomination for each in kept for nomination in each]

    def _kept(self, ongoing: Ongoing) -> tuple[Nomination, ...]:
        """The room that an entity keeps for its pending pods; the same object as long as these stay the same."""
        pending = [pod for pod in ongoing.places if self._is_pending(pod)]
        if pending != [each.pod for each in ongoing.kept]:
            ongoing.kept = tuple(
                Nomination(pod, ongoing.places[pod], ongoing.priority, ongoing.shapes[pod], ongoing.entity)
                for pod in pending
            )
        return ongoing.kept

    def lower_pods(self, nodes: Sequence[str], priority: int) -> list[str]:
        """The pods on these nodes that a preemptor of this priority may evict, or that leave already."""
        placed = self._cache.state.snapshot().placed
        found = []
        for node in nodes:
            for key in placed.get(node, ()):
                own = self.units.priority(key)
                if own is not None and own < priority:
                    found.append(key)
        return found

    def as_planned(self, entity: str, members: Sequence[Member], snapshot: Snapshot, profile: Profile) -> Placed | None:
        """The placement that the entity's victims went for, if it can be carried out now."""
        ongoing = self._ongoing.get(entity)
        if ongoing is None:
            return None
        planned = [member for member in members if member.key in ongoing.places]
        if not planned or not holds(profile, snapshot, planned, ongoing.places):
            return None
        placements = tuple(Placement(member.key, ongoing.places[member.key]) for member in planned)
        rest = tuple(member.key for member in members if member.key not in ongoing.places)
        return Placed(placements, rest)

    # -- plans

    def plan(self, question: Question, now_s: float) -> Plan | NoPlan:
        """What to do for an entity that fits nowhere. One that waits for victims is told to go on waiting."""
        if self.is_waiting(question.entity):
            return NoPlan(WAITS, is_waiting=True)
        try:
            found = self.search(question, now_s)()
        except Exception as error:  # a fault in one plan must not stop the others; the rejection reports it
            found = NoPlan(error_text(error))
        return self.judged(question, found)

    def is_waiting(self, entity: str) -> bool:
        """Whether an entity waits for its victims, so that nobody else is to be evicted for it."""
        ongoing = self._ongoing.get(entity)
        return ongoing is not None and bool(ongoing.awaited) and self._nodes_stand(ongoing)

    def keeps(self, question: Question, now_s: float) -> bool:
        """Whether the room of an entity that fits nowhere is still kept.

        It is there, or can be made again, on nodes that may come back.
        """
        ongoing = self._ongoing.get(question.entity)
        if ongoing is None or not self._nodes_stand(ongoing):
            return False
        if not any(_is_away(self._cache.nodes[node]) for node in ongoing.places.values()):
            return False
        if ongoing.kept_until_s is None:
            ongoing.kept_until_s = now_s + COMES_BACK_S
        filters = tuple(rule for rule in question.profile.filters if rule.name != "TaintToleration")
        members = [member for member in question.members if member.key in ongoing.places]
        lower = self.lower_pods(sorted(set(ongoing.places.values())), question.priority)
        with self.view(question.priority, question.entity) as snapshot, snapshot.trial() as trial:
            trial.remove(lower)
            fits = holds(structs.replace(question.profile, filters=filters), trial, members, ongoing.places)
        return fits and now_s < ongoing.kept_until_s

    def may_find(self, question: Question) -> bool:
        """Whether there is anything to search for: somebody of lower priority runs."""
        if self._moves_others:
            return question.may_preempt
        return question.may_preempt and self.units.below(question.priority)

    def judged(self, question: Question, found: Plan | NoPlan) -> Plan | NoPlan:
        """What comes of a plan that was found: one that evicts nobody is carried out once."""
        is_empty = isinstance(found, Plan) and not found.victims and not found.waits_for
        if is_empty and question.entity in self._ongoing:
            # It was planned so before and did not hold: trying for ever would help nobody.
            return NoPlan(NOT_KEPT)
        return found

    def stands(self, question: Question, plan: Plan) -> bool:
        """Whether a plan that was made on an earlier state can be carried out now: its victims run, and it helps."""
        pods = self._cache.pods
        victims = [pod for unit in plan.victims for pod in unit.evicted]
        if any(pod.key not in pods or pods[pod.key].node != pod.node for pod in victims):
            return False
        places = {placement.pod: placement.node for placement in plan.placements}
        members = [member for member in question.members if member.key in places]
        with self.view(question.priority, question.entity) as snapshot, snapshot.trial() as trial:
            trial.remove((*plan.evicted, *plan.waits_for))
            return holds(question.profile, trial, members, places)

    def cluster(self, question: Question, now_s: float) -> Cluster:
        """The cluster as a preemptor finds it."""
        arguments = question.profile.preemption
        return Cluster(
            self._cache.state.snapshot(),
            self.units.all(),
            now_s,
            self.units.budgets(),
            self.nominations(question.entity),
            question.profile,
            DEFAULT_PREEMPTION if arguments is None else arguments,
            shape_of=self.units.shape_of,
        )

    def search(self, question: Question, now_s: float) -> Callable[[], Plan | NoPlan]:
        """The search for a plan on the cluster as it is now; what it returns may be called from another thread."""
        cluster = self.cluster(question, now_s)
        if question.is_pod:
            member = question.members[0]
            pod = PodPreemptor(member.key, member.shape, question.priority, question.may_preempt)
            if self._release == "1.36":
                cluster = replace(cluster, units=one_by_one(cluster.units))
            return partial(preempt_pod, cluster, pod, choose=partial(self._choose, member.key))
        group = self._preemptor(question)
        checks = DEFAULT_CHECKS if question.tree is None else TREE_CHECKS
        search = partial(preempt_group, cluster, group, checks=checks, time_limit_s=self._time_limit_s)
        if not self._moves_others or not question.may_preempt or question.need < 2:
            return search
        others = movable(self._cache, self.units, question.priority, self._moved)
        if question.entity in self._moved:
            others = [each for each in others if not each.unit.is_group]
        return partial(_or_moves, search, partial(moves_for, cluster, group, others, time_limit_s=self._time_limit_s))

    def moves(self, question: Question, now_s: float) -> Moves | None:
        """Who could be moved for an entity that fits nowhere; nothing comes of it."""
        if question.is_pod:
            return None
        others = movable(self._cache, self.units, question.priority, ())
        return moves_for(self.cluster(question, now_s), self._preemptor(question), others)

    def _preemptor(self, question: Question) -> GroupPreemptor | TreePreemptor:
        if question.tree is not None:
            return tree_preemptor(
                question.entity, question.tree, question.profile, question.priority, question.may_preempt
            )
        request = GroupRequest(question.entity, question.members, question.need)
        request = request if question.topology is None else question.topology.bind(request)
        return GroupPreemptor(request, question.priority, question.may_preempt)

    def _choose(self, pod: str, candidates: Sequence[Candidate]) -> Candidate:
        """One of equally good nodes."""
        node = self._choices.node(pod, [each.node for each in candidates])
        return next(each for each in candidates if each.node == node)

    def start(self, question: Question, plan: Plan, now_s: float) -> tuple[list[Victim], list[str]]:
        """Carries a plan into the books: the pods to delete, and entities whose room it takes, to be tried again."""
        displaced = self._displaced(question, {placement.node for placement in plan.placements})
        for entity in displaced:
            self.release(entity)
        self._forget(question.entity)
        shapes = {member.key: member.shape for member in question.members}
        places = {placement.pod: placement.node for placement in plan.placements}
        ongoing = Ongoing(question.entity, question.priority, places, shapes)
        self._ongoing[question.entity] = ongoing
        victims = [victim for unit in plan.victims for victim in self._victims(unit)]
        for key in (*(victim.record.key for victim in victims), *plan.waits_for):
            record = self._cache.pods.get(key)
            if record is not None:
                ongoing.awaited[key] = uid_of(record.pod)
                self._waiting_for.setdefault(key, {})[question.entity] = None
        for claim in self._claims_of([victim.record.pod for victim in victims]):
            ongoing.awaited[awaited_claim(claim)] = claim
            self._waiting_for.setdefault(awaited_claim(claim), {})[question.entity] = None
        if not ongoing.awaited:
            self._ready[question.entity] = None
        if any(unit.priority >= question.priority for unit in plan.victims):
            self._moved.update(dict.fromkeys(unit.key for unit in plan.victims if unit.is_group))
        self.units.evicting(victim.record.key for victim in victims)
        for pod in places:
            self.cleared.pop(pod, None)
        return victims, displaced

    def release(self, entity: str) -> None:
        """Gives up the room of an entity; others may have it."""
        ongoing = self._forget(entity)
        if ongoing is None:
            return
        for pod, node in ongoing.places.items():
            if self._is_pending(pod):
                self.cleared[pod] = None
            self._cache.has_more_room(node)

    def gone(self, pods: Iterable[str]) -> list[str]:
        """Pods are gone: the entities that have none left to wait for."""
        ready, self._ready = self._ready, {}
        for pod in pods:
            for entity in self._waiting_for.pop(pod, ()):
                ongoing = self._ongoing.get(entity)
                if ongoing is not None and ongoing.awaited.pop(pod, None) is not None and not ongoing.awaited:
                    ready[entity] = None
        return list(ready)

    def refused(self, pod: str) -> list[str]:
        """A victim cannot be deleted: the entities that waited for it, which have to plan anew."""
        self.units.keep(pod)
        entities = list(self._waiting_for.get(pod, ()))
        for entity in entities:
            self.release(entity)
        return entities

    def adopt(self, entity: str, priority: int, records: Sequence[PodRecord]) -> None:
        """After a restart: takes over nominations that pending pods carry, and the victims that are still leaving."""
        places = {}
        for record in records:
            node = (record.pod.get("status") or {}).get("nominatedNodeName")
            if node and not record.node:
                places[record.key] = node
        if not places or entity in self._ongoing:
            return
        shapes = {record.key: self._cache.shape(record) for record in records if record.key in places}
        ongoing = self._ongoing[entity] = Ongoing(entity, priority, places, shapes)
        nodes = set(places.values())
        for key, record in self._cache.pods.items():
            own = self.units.priority(key)
            if record.node in nodes and own is not None and own < priority and _is_victim(record):
                ongoing.awaited[key] = uid_of(record.pod)
                self._waiting_for.setdefault(key, {})[entity] = None

    # -- inside

    def _forget(self, entity: str) -> Ongoing | None:
        ongoing = self._ongoing.pop(entity, None)
        if ongoing is not None:
            for pod in ongoing.awaited:
                waiting = self._waiting_for.get(pod)
                if waiting is not None:
                    waiting.pop(entity, None)
                    if not waiting:
                        del self._waiting_for[pod]
        return ongoing

    def _displaced(self, question: Question, nodes: set[str]) -> list[str]:
        """Entities of lower priority that keep room on these nodes: they may not count on it any more."""
        return [
            each.entity
            for each in self._ongoing.values()
            if each.priority < question.priority
            and each.entity != question.entity
            and not nodes.isdisjoint(each.places.values())
        ]

    def _victims(self, unit: Unit) -> list[Victim]:
        records = [self._cache.pods[pod.key] for pod in unit.evicted if pod.key in self._cache.pods]
        return [Victim(record, uid_of(record.pod), record.ref if unit.is_group else None) for record in records]

    def _claims_of(self, victims: Sequence[Object]) -> Iterator[str]:
        """The claims whose devices are free once these pods are gone and the controller of claims has seen it."""
        objects, gone = self._cache.state.objects, {uid_of(pod) for pod in victims}
        held = [claims_held(pod) for pod in victims if pod["spec"].get("resourceClaims")]
        for key in dict.fromkeys(use.key for demand in held if demand is not None for use in demand.claims):
            status: Object = (objects.get(RESOURCE_CLAIM, key) or {}).get("status") or {}
            reserved = status.get("reservedFor") or ()
            if status.get("allocation") and reserved and all(each.get("uid") in gone for each in reserved):
                yield key

    def _is_pending(self, pod: str) -> bool:
        record = self._cache.pods.get(pod)
        return record is not None and not record.node

    def _nodes_stand(self, ongoing: Ongoing) -> bool:
        """Whether the nodes are still there and take pods."""
        nodes = self._cache.nodes
        return all(
            node in nodes and not (nodes[node].get("spec") or {}).get("unschedulable")
            for node in ongoing.places.values()
        )


def _is_victim(record: PodRecord) -> bool:
    """Whether the pod is on its way out for a preemption."""
    conditions = (record.pod.get("status") or {}).get("conditions") or ()
    return is_deleting(record.pod) and any(each.get("reason") == BY_SCHEDULER for each in conditions)


def _is_away(node: Object) -> bool:
    """Whether a node is not ready: it may come back."""
    return any(taint.get("key") in _AWAY for taint in (node.get("spec") or {}).get("taints") or ())


def _or_moves(search: Callable[[], Plan | NoPlan], moves: Callable[[], Moves | None]) -> Plan | NoPlan:
    """A plan of preemption, else one that moves pods which fit elsewhere."""
    found = search()
    if isinstance(found, Plan):
        return found
    moved = moves()
    return found if moved is None else Plan(moved.placements, moved.units, 0, (), moved.fewest)
