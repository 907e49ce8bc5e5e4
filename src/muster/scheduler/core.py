"""The scheduler as a state machine: changes of objects in, verdicts and holds out. Synchronous; time is passed in.

The service feeds it (`apply`), asks what to do (`settle`, `decide`) and reports how bindings went (`bound`,
`bind_failed`). It never waits, writes or reads a clock, so a whole history can be replayed on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.api.groups import GroupRef
from muster.engine.decide import decide
from muster.engine.model import Decision, Member
from muster.engine.profile import Profile
from muster.scheduler.cache import Effects, Members, PodRecord, SchedulerCache, scheduler_name_of
from muster.scheduler.changes import is_leaving
from muster.scheduler.cycle import (
    SCHEDULER_ERROR,
    Ask,
    Rejection,
    Signature,
    Verdict,
    failure,
    is_final,
    refusal,
    request_of,
    runs,
    verdicts,
)
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.pre_enqueue import GroupFacts, Hold, hold_of_group, is_gated
from muster.scheduler.queue import SchedulingQueue
from muster.scheduler.requeue import wake_for_nodes

POD = "pod:"
GROUP = "group:"


@dataclass(frozen=True, slots=True)
class Held:
    """A group that PreEnqueue holds, in words that differ from the last ones, and our members that wait with it."""

    ref: GroupRef
    hold: Hold


@dataclass(slots=True)
class SchedulerCore:
    """Cache, queue and the rules between them."""

    options: SchedulerOptions
    cache: SchedulerCache = field(init=False)
    queue: SchedulingQueue = field(init=False)
    holds: dict[str, Hold] = field(default_factory=dict)
    _profiles: list[Profile] = field(default_factory=list)
    _profile_numbers: dict[str, int] = field(default_factory=dict)
    _bind_errors: dict[str, int] = field(default_factory=dict)
    _refused: dict[Signature, Decision] = field(default_factory=dict)
    """Questions that were answered with no, while nothing has happened that could give room."""

    def __post_init__(self) -> None:
        self.cache = SchedulerCache(self.options.scheduler_names, pod_by_pod=self.options.pod_by_pod)
        self.queue = SchedulingQueue(self.options.backoff, flush_after_s=self.options.flush_after_s)
        for name in sorted(self.options.scheduler_names):
            profile = self.options.profile_of(name)
            if profile not in self._profiles:
                self._profiles.append(profile)
            self._profile_numbers[name] = self._profiles.index(profile)

    def settle(self, now: float) -> list[Held]:
        """Move entities for what changed since the last call; the groups that are held for a new reason."""
        effects = self.cache.take_effects()
        held = [news for entity in self._by_age(effects) if (news := self._settle_entity(entity, effects, now))]
        if effects.nodes:
            self._refused.clear()
            wake_for_nodes(self.queue, self.cache.state.snapshot(), effects.nodes, now, self._profiles)
        return held

    def decide(self, now: float) -> list[Verdict]:
        """Try the entities that are next; placements are assumed, everything else is back in the queue."""
        result: list[Verdict] = []
        asks = self._next_asks(now, result)
        for run in runs(asks):
            result += self._decide_run(run, now)
        return result

    def bound(self, pod: str) -> None:
        """The API server has bound a pod that was assumed."""
        self._bind_errors.pop(self._entity_of(pod), None)

    def bind_failed(self, pod: str, now: float) -> None:
        """A pod that was assumed cannot be bound there: it is pending again, and its entity retried after a backoff.

        Other members of its group that are bound or on the way stay: the group decides about the rest with them
        counted as scheduled.
        """
        record = self.cache.pods.get(pod)
        if record is None or not self.cache.forget(pod):
            return
        entity = self._entity_of(pod)
        if entity not in self.queue and record.ours:
            errors = self._bind_errors.get(entity, 0)
            self._bind_errors[entity] = errors + 1
            self.queue.fail(entity, self._priority(record), now, errors=errors)

    def is_satisfied(self, group: str) -> bool:
        """Whether at least minCount members of the group have a node."""
        members = self.cache.groups.get(group)
        terms = self.cache.terms(members.ref) if members is not None else None
        return members is not None and terms is not None and len(members.scheduled) >= terms.min_count

    def hold_of(self, group: str) -> Hold | None:
        """What PreEnqueue holds the group for; None if it is not held."""
        return self.holds.get(GROUP + group)

    def waiting_members(self, group: str) -> list[PodRecord]:
        """Our members that PreEnqueue holds with their group, in order; those with gates of their own are left out."""
        members = self.cache.groups.get(group)
        if members is None or GROUP + group not in self.holds:
            return []
        return [record for record in members.to_place() if record.key not in members.gated]

    # -- PreEnqueue --------------------------------------------------------------------------------------------------

    def _by_age(self, effects: Effects) -> list[str]:
        """The touched entities, oldest first, so that a restart finds the order that there was before."""
        aged = [(self._pod_created(key), POD + key) for key in effects.pods]
        aged += [(self._group_created(key), GROUP + key) for key in effects.groups]
        return [entity for _, entity in sorted(aged, key=lambda item: item[0])]

    def _pod_created(self, key: str) -> str:
        record = self.cache.pods.get(key)
        return "" if record is None else record.created

    def _group_created(self, key: str) -> str:
        members = self.cache.groups.get(key)
        return "" if members is None else next((record.created for record in members.pending.values()), "")

    def _settle_entity(self, entity: str, effects: Effects, now: float) -> Held | None:
        if entity.startswith(POD):
            self._settle_pod(entity, now)
            return None
        key = entity.removeprefix(GROUP)
        members = self.cache.groups.get(key)
        hold = None if members is None else self._settle_group(members, effects.groups[key], now)
        if members is not None:
            self.cache.discard_group_if_empty(key)
        return None if members is None or hold is None else Held(members.ref, hold)

    def _settle_pod(self, entity: str, now: float) -> None:
        record = self.cache.pods.get(entity.removeprefix(POD))
        if record is None or record.node or not record.ours or is_leaving(record.pod):
            self.queue.remove(entity, now)
            if record is None:
                self._bind_errors.pop(entity, None)
        elif is_gated(record.pod):
            self.queue.hold(entity, record.priority, now)
        else:
            self.queue.add(entity, record.priority, now)

    def _settle_group(self, members: Members, retry: bool, now: float) -> Hold | None:
        """Gate, enqueue or drop the group's entity; why it is held, if that is news to some member."""
        entity = GROUP + members.ref.key
        if not any(record.ours for record in members.pending.values()):
            self.queue.remove(entity, now)
            self.holds.pop(entity, None)
            if not members.known:
                self._bind_errors.pop(entity, None)
            return None
        hold = hold_of_group(self._facts(members))
        priority = self._group_priority(members)
        if hold is not None:
            self.queue.hold(entity, priority, now)
            is_news = retry or self.holds.get(entity) != hold
            self.holds[entity] = hold
            return hold if is_news else None
        was_held = self.holds.pop(entity, None) is not None
        if retry or was_held or entity not in self.queue:
            self.queue.add(entity, priority, now)
        return None

    def _facts(self, members: Members) -> GroupFacts:
        ref = members.ref
        return GroupFacts(
            ref,
            self.cache.terms(ref),
            members.known,
            tuple(members.gated),
            tuple(members.scheduler_names),
            has_workload=not ref.is_pod_group and ref.object_key in self.cache.workloads,
        )

    def _group_priority(self, members: Members) -> int:
        terms = self.cache.terms(members.ref)
        if terms is not None and terms.priority is not None:
            return terms.priority
        return max((record.priority for record in members.pending.values()), default=0)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _next_asks(self, now: float, refused: list[Verdict]) -> list[Ask]:
        """What is next in the queue, as long as it takes few passes of the engine.

        What cannot even be asked, for an object says something unreadable, is held until that changes (`refused`).
        """
        asks: list[Ask] = []
        passes: set[Signature] = set()
        while len(asks) < self.options.batch and len(passes) < self.options.passes:
            popped = self.queue.pop(now)
            if not popped:
                break
            try:
                ask = self._ask(popped[0], now)
            except ValueError as error:
                refused.append(self._unreadable(popped[0], str(error), now))
                continue
            if ask is not None:
                asks.append(ask)
                passes.add(ask.signature)
        return asks

    def _unreadable(self, entity: str, error: str, now: float) -> Verdict:
        members = self.cache.groups.get(entity.removeprefix(GROUP)) if entity.startswith(GROUP) else None
        pods = (entity.removeprefix(POD),) if members is None else tuple(each.key for each in members.to_place())
        waiting = self.queue.entity(entity)
        priority = 0 if waiting is None else waiting.priority
        self.queue.hold(entity, priority, now)
        ask = Ask(entity, priority, (), None if members is None else members.ref)
        return Verdict(ask, (), Rejection(pods, SCHEDULER_ERROR, error))

    def _ask(self, entity: str, now: float) -> Ask | None:
        """The question that an entity asks now; one that has nothing to ask leaves the queue."""
        ask = self._pod_ask(entity) if entity.startswith(POD) else self._group_ask(entity)
        if ask is None:
            self.queue.finish(entity, now)
        return ask

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
        records = members.to_place()
        if not records:
            return None
        pending = tuple(self._member(record) for record in records)
        priority, profile = self._group_priority(members), self._profile_number(records[0])
        return Ask(entity, priority, pending, members.ref, terms.min_count, len(members.scheduled), profile)

    def _member(self, record: PodRecord) -> Member:
        return Member(record.key, self.cache.shape(record))

    def _profile_number(self, record: PodRecord) -> int:
        """By whose rules the pod is placed; members of a group all name one scheduler, else they are held."""
        return self._profile_numbers[scheduler_name_of(record.pod)]

    def _decide_run(self, run: list[Ask], now: float) -> list[Verdict]:
        signature = run[0].signature
        decision = self._refused.get(signature)
        try:
            if decision is None:
                profile = self._profiles[signature.profile]
                decision = decide(self.cache.state.snapshot(), request_of(run), profile=profile)
            result = verdicts(run, decision)
        except Exception as error:  # a fault in one decision must not stop the others; the verdict reports it
            result = [failure(ask, f"{type(error).__name__}: {error}") for ask in run]
        if decision is not None and is_final(result[-1]):
            self._refused[signature] = refusal(decision)
        for verdict in result:
            self._carry_out(verdict, now)
        return result

    def _carry_out(self, verdict: Verdict, now: float) -> None:
        entity, rejection = verdict.ask.entity, verdict.rejection
        for placement in verdict.placements:
            self.cache.assume(placement.pod, placement.node)
        if rejection is None:
            self.queue.finish(entity, now)
        elif verdict.placements:
            self.queue.again(entity, now)
        elif rejection.signature is None:
            self.queue.fail(entity, verdict.ask.priority, now)
        else:
            self.queue.reject(entity, rejection.signature, rejection.waits_for, now)

    def _entity_of(self, pod: str) -> str:
        record = self.cache.pods.get(pod)
        return GROUP + record.ref.key if record is not None and record.ref is not None else POD + pod

    def _priority(self, record: PodRecord) -> int:
        members = self.cache.groups.get(record.ref.key) if record.ref is not None else None
        return record.priority if members is None else self._group_priority(members)
