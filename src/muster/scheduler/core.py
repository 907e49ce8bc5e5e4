"""The scheduler as a state machine: changes of objects in, verdicts and holds out. Synchronous; time is passed in.

The service feeds it (`apply`), asks what to do (`settle`, `decide`) and reports how bindings went (`bound`,
`bind_failed`). It never waits, writes or reads a clock, so a whole history can be replayed on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.api.meta import uid_of
from muster.clock import Clock
from muster.engine.axis import PODS
from muster.engine.devices.features import OURS, upstream_features
from muster.engine.model import Decision, Infeasible, Member, Placement
from muster.engine.preemption.model import NoPlan, Plan
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import DomainError
from muster.scheduler.answers import Answers
from muster.scheduler.apart import Answer, Apart, group_answer, is_heavy, tree_answer
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.cycle import (
    SCHEDULER_ERROR,
    Ask,
    Rejection,
    Signature,
    Verdict,
    apart_in_domains,
    by_shape,
    failure,
    is_final,
    refusal,
    request_of,
    runs,
    segments,
    tree_rejection,
    tree_verdicts,
    verdicts,
)
from muster.scheduler.entities import GROUP, TREE, Entities
from muster.scheduler.errors import error_text
from muster.scheduler.explaining.hints import cheap_change
from muster.scheduler.gate import Gate, Held
from muster.scheduler.greedy import Attempt, Begun, GreedyGroups
from muster.scheduler.members import PodRecord
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.preemption.apart import Planning
from muster.scheduler.preemption.planning import Preemptions, awaited_claim
from muster.scheduler.preemption.post_filter import PostFilter
from muster.scheduler.queue import Place, SchedulingQueue
from muster.scheduler.requeue import may_hold, wake_for_nodes, wake_for_objects, wake_for_pods
from muster.scheduler.tree import Branch, leaves_of, smallest_need
from muster.scheduler.waiting import ANY

_LONG_RUN = 20
"""So many like pods in a row cost less in a pass for all of them than one after the other."""


@dataclass(slots=True)
class SchedulerCore:
    """Cache, queue and the rules between them."""

    options: SchedulerOptions
    clock: Clock | None = None
    """Where there is one, decisions that take long have a cap in seconds besides that in work."""
    cache: SchedulerCache = field(init=False)
    queue: SchedulingQueue = field(init=False)
    preemptions: Preemptions = field(init=False)
    entities: Entities = field(init=False)
    gate: Gate = field(init=False)
    answers: Answers = field(init=False)
    post_filter: PostFilter = field(init=False)
    greedy: GreedyGroups | None = field(init=False, default=None)
    """Decides about groups where upstream's rules are wanted."""
    fences: dict[str, float] = field(default_factory=dict)
    """Until when entities are not tried, though they could be (see `repair`)."""
    _refused: dict[Signature, Decision] = field(default_factory=dict)
    """Questions that were answered with no, while nothing has happened that could give room."""
    _hints: dict[Signature, str] = field(default_factory=dict)
    """What would help those that were refused on the snapshot `_hinted_on`."""
    _hinted_on: Snapshot | None = None
    _batch: int = 1
    _generation: int = 0
    _apart: list[Apart | Planning] = field(default_factory=list)
    _retried: set[str] = field(default_factory=set)
    """Entities whose answer came too late: they are decided on the loop."""

    def __post_init__(self) -> None:
        self.cache = SchedulerCache(
            self.options.scheduler_names,
            pod_by_pod=self.options.pod_by_pod,
            grouping=self.options.grouping,
            features=OURS if self.options.release is None else upstream_features(),
        )
        self.queue = SchedulingQueue(self.options.backoff, flush_after_s=self.options.flush_after_s)
        self.entities = Entities(self.cache, self.options)
        self.gate = Gate(self.cache, self.queue, self.entities)
        self.preemptions = Preemptions(
            self.cache,
            time_limit_s=self.options.plan_limit_s,
            release=self.options.release,
            choices=self.options.choices,
            moves_others=self.options.allow_consolidation,
        )
        self._batch = self.options.batch
        self.answers = Answers(self.entities, self.preemptions, self.clock, self.options.decide_limit_s)
        self.post_filter = PostFilter(self.entities, self.preemptions, self.answers, self.queue, self.options)
        if self.options.release is not None:
            self.greedy = GreedyGroups(self.entities, self.preemptions, self.options.release, self.options.choices)

    def settle(self, now: float) -> list[Held]:
        """Move entities for what changed since the last call; the groups that are held for a new reason."""
        effects = self.cache.take_effects()
        for group in [each for each in self.cache.given_up if each in effects.groups]:
            self._note_gone(group)
        held = list(self.gate.settle(effects, now))
        for entity in self.preemptions.gone((*effects.gone, *map(awaited_claim, effects.freed))):
            self.queue.activate(entity, now, "VictimsGone")
        for entity in self.preemptions.entities:
            if entity not in self.queue:
                self.preemptions.release(entity)
        if effects.nodes:
            self._generation += 1
            self._refused.clear()
            self.post_filter.room_came()
            snapshot, lower = self.cache.state.snapshot(), self.preemptions.lower_pods
            wake_for_nodes(self.queue, snapshot, effects.nodes, now, self.entities.profiles, lower, self._may_make_room)
        if effects.objects:
            self._generation += 1
            wake_for_objects(self.queue, effects.objects, now)
        if effects.placed:
            wake_for_pods(self.queue, self.cache.state.objects, effects.placed, now)
        return held

    def _may_make_room(self, priority: int) -> bool:
        """Whether somebody may go for an entity of this priority: of lower priority, or who may be moved.

        By upstream's rules whatever makes some room wakes a group.
        """
        if self.greedy is not None or self.options.allow_consolidation:
            return True
        return self.preemptions.units.below(priority)

    def give_up(self, group: str, members: Iterable[PodRecord]) -> None:
        """All members of a group are being evicted: it begins anew, and they count for it no more."""
        self.cache.given_up[group] = frozenset(uid_of(record.pod) for record in members)

    def _note_gone(self, group: str) -> None:
        members = self.cache.groups.get(group)
        if members is None or len(self.cache.standing(members)) == len(members.scheduled):
            del self.cache.given_up[group]

    def adopt_nominations(self) -> None:
        """After a restart: room that was kept for pending pods goes on being kept."""
        records: dict[str, list[PodRecord]] = {}
        for key, record in self.cache.pods.items():
            if record.ours and not record.node and (record.pod.get("status") or {}).get("nominatedNodeName"):
                records.setdefault(self.entities.of_pod(key), []).append(record)
        for entity, pods in records.items():
            if entity in self.queue:
                self.preemptions.adopt(entity, self.entities.priority(entity), pods)

    def eviction_refused(self, pod: str, now: float) -> None:
        """A victim cannot be deleted: whoever waited for it plans anew."""
        for entity in self.preemptions.refused(pod):
            self.queue.activate(entity, now, "EvictionFailed")

    def decide(self, now: float) -> list[Verdict]:
        """Try the entities that are next; placements are assumed, everything else is back in the queue."""
        result: list[Verdict] = []
        left: list[Ask] = []
        for segment in segments(self._next_asks(now, result)):
            if not left:
                decided, left = self._decide_segment(segment, now)
                result += decided
            else:
                left += segment
        for ask in left:
            self.queue.put_back(ask.entity, now)
        # Where much is put back, little is to be taken; more and more again once nothing is.
        self._batch = self.options.passes if left else min(2 * self._batch, self.options.batch)
        return result

    def hint(self, verdict: Verdict) -> str:
        """What would let a group run that was proved not to fit, in words; "" where that is not cheap to know."""
        ask, rejection = verdict.ask, verdict.rejection
        if ask.ref is None or ask.tree is not None or rejection is None or verdict.plan is not None:
            return ""
        if rejection.signature is None or not isinstance(self._refused.get(ask.signature), Infeasible):
            return ""
        if self._hinted_on is not self.cache.state.snapshot():
            self._hinted_on = self.cache.state.snapshot()
            self._hints.clear()
        if ask.signature not in self._hints:
            with self.preemptions.view(ask.priority, ask.entity) as snapshot:
                profile = self.entities.profiles[ask.profile]
                self._hints[ask.signature] = cheap_change(snapshot, request_of([ask]), profile)
        return self._hints[ask.signature]

    def pending_pods(self) -> Counter[Place]:
        """How many pods wait in each place of the queue."""
        found: Counter[Place] = Counter()
        for entity, place in self.queue.places():
            found[place] += self.entities.pending(entity)
        return found

    def take_apart(self) -> list[Apart | Planning]:
        """The questions that are to be decided beside the loop and given to `conclude`."""
        taken, self._apart = self._apart, []
        return taken

    def conclude(
        self, apart: Apart | Planning, answer: Answer | Plan | NoPlan | Exception, now: float
    ) -> list[Verdict]:
        """Carry an answer out that was found beside the loop, if it still means something."""
        entity = apart.question.entity if isinstance(apart, Planning) else apart.ask.entity
        waiting = self.queue.entity(entity)
        is_waiting = waiting is not None and waiting.place is Place.IN_FLIGHT
        if isinstance(apart, Planning):
            assert isinstance(answer, Plan | NoPlan | Exception), "plans are asked for plans"
            if not is_waiting:
                return []
            if apart.begun is not None:
                return self._conclude_greedily(apart.begun, answer, apart.generation, now)
            return self._conclude_plan(apart, answer, now)
        assert not isinstance(answer, Plan | NoPlan), "decisions are asked for decisions"
        apart.end()
        ask = apart.ask
        if not is_waiting:
            return []
        if not self.answers.is_current(apart, answer, self._generation):
            self._retried.add(entity)
            self.queue.put_back(entity, now)
            return []
        return self._decide_run([ask], now, answer)

    def bound(self, pod: str) -> None:
        """The API server has bound a pod that was assumed."""
        self.gate.bind_errors.pop(self.entities.of_pod(pod), None)

    def bind_failed(self, pod: str, now: float) -> None:
        """A pod that was assumed cannot be bound there: it is pending again, and its entity retried after a backoff.

        Other members of its group that are bound or on the way stay: the group decides about the rest with them
        counted as scheduled.
        """
        record = self.cache.pods.get(pod)
        if record is None or not self.cache.forget(pod):
            return
        entity = self.entities.of_pod(pod)
        if entity not in self.queue and record.ours:
            errors = self.gate.bind_errors.get(entity, 0)
            self.gate.bind_errors[entity] = errors + 1
            self.queue.fail(entity, self.entities.priority(entity), now, errors=errors)

    def fence(self, group: str, until_s: float) -> None:
        """Do not try the entity that a group belongs to before a time."""
        self.fences[self.entity_of(group)] = until_s

    def entity_of(self, group: str) -> str:
        """The entity of a group: its own, or that of its tree."""
        root = self.entities.root_of(group)
        return GROUP + group if root is None else TREE + root

    def is_crowded_out(self, pod: str) -> bool:
        """Whether a pod that is assumed on a node has no room there: of what it asks for, more was promised than there
        is, since others placed pods there, too."""
        record = self.cache.pods[pod]
        snapshot = self.cache.state.snapshot()
        table, row = snapshot.table, snapshot.table.index.get(record.node)
        if row is None:
            return False
        requests = self.cache.shape(record).usage.requests
        columns = [PODS, *(table.axis.columns[name] for name, amount in requests if amount)]
        free = table.allocatable[row] - snapshot.requested[row]
        return any(free[column] < 0 for column in columns)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _next_asks(self, now: float, refused: list[Verdict]) -> list[Ask]:
        """What is next in the queue, as long as it takes few passes of the engine, about few pods.

        What cannot even be asked, for an object says something unreadable, is held until that changes (`refused`).
        """
        asks: list[Ask] = []
        alike: set[Signature] = set()
        groups = members = 0
        while len(asks) < self._batch and len(alike) + groups < self.options.passes and members < self._batch:
            popped = self.queue.pop(now)
            if not popped:
                break
            try:
                ask = self._ask(popped[0], now)
            except ValueError as error:
                refused.append(self._unreadable(popped[0], str(error), now))
                continue
            if ask is None:
                continue
            asks.append(ask)
            members += len(ask.members)
            if ask.ref is None and ask.tree is None:
                alike.add(ask.signature)
            else:
                groups += ask.signature not in self._refused  # each takes a pass, however alike they are
            if ask.looks_at_others:  # and so must find those before it in their places
                break
        return asks

    def _is_hopeless(self, ask: Ask) -> bool:
        """Whether an event woke a group in vain: others took the room by now, and nobody goes for it."""
        waiting = self.queue.entity(ask.entity)
        if self.greedy is not None or waiting is None or waiting.woken_from is None:
            return False
        signature = ask.signature
        if signature.is_one_pod or signature != waiting.woken_from:
            return False
        if not waiting.waited_for or ANY in waiting.waited_for:
            return False
        may_plan = not self.preemptions.is_waiting(ask.entity) and self._may_make_room(ask.priority)
        if may_plan:
            return False
        with self.preemptions.view(ask.priority, ask.entity) as snapshot:
            return not may_hold(snapshot, signature, self.entities.profiles[ask.profile])

    def _unreadable(self, entity: str, error: str, now: float) -> Verdict:
        groups = self.entities.groups(entity) if entity.startswith(GROUP) else []
        waiting = self.queue.entity(entity)
        priority = 0 if waiting is None else waiting.priority
        self.queue.hold(entity, priority, now)
        ask = Ask(entity, priority, (), groups[0].ref if groups else None)
        return Verdict(ask, (), Rejection(self.entities.pods(entity), SCHEDULER_ERROR, error))

    def _ask(self, entity: str, now: float) -> Ask | None:
        """The question that an entity asks now; one that has nothing to ask leaves the queue."""
        fence_s = self.fences.get(entity)
        if fence_s is not None:
            if now < fence_s:
                self.queue.fail(entity, self.entities.priority(entity), now)
                return None
            del self.fences[entity]
        ask = self.entities.ask(entity)
        if ask is None:
            self.queue.finish(entity, now)
            return None
        return replace(ask, has_room_kept=True) if entity in self.preemptions else ask

    def _decide_segment(self, segment: list[Ask], now: float) -> tuple[list[Verdict], list[Ask]]:
        """Plain pods of one priority in one pass a shape, if all of them get a node: then their order does not matter.

        Else in strict order, so that the same pods are left over as one by one; what would take too many passes is
        left for the next time (returned).
        """
        open_ = [ask for ask in segment if ask.signature not in self._refused]
        grouped = by_shape(open_)
        result: list[Verdict] = []
        if 0 < len(grouped) < len(runs(open_)) and not self.options.strict_order:
            decisions = self.answers.all_placed(grouped)
            if decisions is not None:
                for run, decision in zip(grouped, decisions, strict=True):
                    for verdict in verdicts(run, decision):
                        self._carry_out(verdict, now)
                        result.append(verdict)
                segment = [ask for ask in segment if ask.signature in self._refused]
        decided, left = self._decide_in_order(segment, now)
        return result + decided, left

    def _decide_in_order(self, segment: list[Ask], now: float) -> tuple[list[Verdict], list[Ask]]:
        """One after the other: all that get a node are found in one go; who gets none is asked about alone."""
        in_order, result, passes = runs(segment), list[Verdict](), 0
        nodes = self._nodes_in_order(in_order)
        for at, run in enumerate(in_order):
            while run and run[0].entity in nodes:
                ask, *run = run
                result.append(Verdict(ask, (Placement(ask.members[0].key, nodes[ask.entity]),)))
                self._carry_out(result[-1], now)
            if not run:
                continue
            passes += run[0].signature not in self._refused  # what was refused takes no pass
            if passes > self.options.passes:
                return result, [*run, *(ask for later in in_order[at + 1 :] for ask in later)]
            decided = self._decide_run(run, now)
            result += decided
            if nodes and any(verdict.placements or verdict.plan is not None for verdict in decided):
                nodes = self._nodes_in_order(in_order[at + 1 :])
        return result, []

    def _nodes_in_order(self, in_order: list[list[Ask]]) -> dict[str, str]:
        """The node of each entity that gets one; nothing where a pass for each run costs less."""
        open_ = [run for run in in_order if run[0].signature not in self._refused]
        asks = [ask for run in open_ for ask in run]
        return self.answers.in_order(asks) if len(open_) > 1 and len(asks) < _LONG_RUN * len(open_) else {}

    def _decide_run(self, run: list[Ask], now: float, answer: Answer | Exception | None = None) -> list[Verdict]:
        """Decide and carry out. `answer`: what was found beside the loop."""
        first, signature = run[0], run[0].signature
        if answer is None and self._is_hopeless(first):
            self.queue.sleep_again(first.entity, now)
            return []
        if answer is None and self._goes_apart(first):
            self._apart.append(self.answers.begin(first, self._generation))
            return []
        is_late = first.entity in self._retried
        self._retried.discard(first.entity)
        if self.greedy is not None and (first.ref is not None or first.tree is not None):
            return self._decide_greedily(first, self.greedy, now, on_loop=is_late)
        if first.tree is not None:
            return self._decide_tree(first, first.tree, now, answer)
        decision = None if first.has_room_kept else self._refused.get(signature)
        try:
            if decision is None:
                decision = self.answers.of_run(run) if answer is None else group_answer(answer)
            result = verdicts(run, decision)
        except DomainError as error:
            result = [apart_in_domains(first, str(error))]
        except Exception as error:  # a fault in one decision must not stop the others; the verdict reports it
            result = [failure(ask, error_text(error)) for ask in run]
        if decision is not None and is_final(result[-1]):
            self._refused[signature] = refusal(decision)
        carried = []
        for verdict in result:
            whole = self._with_preemption(verdict, (verdict,), verdict.ask.members, now)
            if whole is not None:
                carried.append(whole)
                self._carry_out(whole, now)
        return carried

    def _decide_greedily(self, ask: Ask, greedy: GreedyGroups, now: float, *, on_loop: bool) -> list[Verdict]:
        """One group cycle by upstream's rules: a verdict for each group, one answer for the queue.

        Nothing yet where its victims are looked for beside the loop.
        """
        try:
            attempt = greedy.begin(ask, now)
            if isinstance(attempt, Begun) and self.options.decide_in_thread and not on_loop:
                question, find = attempt.question, attempt.find
                self._apart.append(Planning(Verdict(ask, ()), (), question, self._generation, find, attempt))
                return []
            if isinstance(attempt, Begun):
                attempt = greedy.finish(attempt, attempt.find())
        except Exception as error:  # a fault in one decision must not stop the others; the verdict reports it
            return self._failed(ask, error_text(error), now)
        return self._carry_out_greedily(ask, attempt, now)

    def _failed(self, ask: Ask, text: str, now: float) -> list[Verdict]:
        failed = failure(ask, text)
        self._carry_out(failed, now)
        return [failed]

    def _carry_out_greedily(self, ask: Ask, attempt: Attempt, now: float) -> list[Verdict]:
        """A group that waits for its victims says nothing until it fits."""
        whole, result = attempt.whole, list(attempt.groups)
        if attempt.plan is not None and whole.rejection is not None:
            victims = self.post_filter.start(attempt.question, attempt.plan, now)
            kept = replace(ask, has_room_kept=True)
            whole = Verdict(kept, (), replace(whole.rejection, signature=kept.signature))
            result[0] = replace(result[0], plan=attempt.plan, victims=tuple(victims))
        elif self.preemptions.is_waiting(ask.entity) and not whole.placements:
            result = []
        elif not whole.placements:
            self.preemptions.release(ask.entity)
        self._carry_out(whole, now)
        return result

    def _conclude_greedily(
        self, begun: Begun, found: Plan | NoPlan | Exception, generation: int, now: float
    ) -> list[Verdict]:
        """Goes on with a cycle whose victims were looked for beside the loop, unless it came too late."""
        ask = begun.ask
        assert self.greedy is not None, "who began it"
        if isinstance(found, Exception):
            return self._failed(ask, error_text(found), now)
        is_same = self.entities.ask(ask.entity) == replace(ask, has_room_kept=False)
        stands = isinstance(found, Plan) and self.preemptions.stands(begun.question, found)
        if not is_same or generation != self._generation or not (stands or isinstance(found, NoPlan)):
            self._retried.add(ask.entity)
            self.queue.put_back(ask.entity, now)
            return []
        return self._carry_out_greedily(ask, self.greedy.finish(begun, found), now)

    def _goes_apart(self, ask: Ask) -> bool:
        if not self.options.decide_in_thread or self.greedy is not None or ask.entity in self._retried:
            return False
        return is_heavy(ask) and ask.signature not in self._refused

    def _decide_tree(
        self, ask: Ask, tree: Branch, now: float, answer: Answer | Exception | None = None
    ) -> list[Verdict]:
        """One attempt for a whole tree: a verdict for each of its groups, one answer for the queue."""
        try:
            decision = self.answers.of_tree(ask, tree) if answer is None else tree_answer(answer)
            result = tree_verdicts(ask, tree, decision)
            rejection = tree_rejection(ask, result)
        except DomainError as error:
            result = [apart_in_domains(ask, str(error))]
            rejection = result[0].rejection
        except Exception as error:  # as for groups: a fault in one decision must not stop the others
            result = [failure(ask, error_text(error))]
            rejection = result[0].rejection
        placements = tuple(placement for verdict in result for placement in verdict.placements)
        needed = smallest_need(tree) or tuple(member for leaf in leaves_of(tree) for member in leaf.need)
        whole = self._with_preemption(Verdict(ask, placements, rejection), tuple(result), needed, now)
        return [] if whole is None else self._carry_out_tree(whole, result, now)

    def _carry_out_tree(self, whole: Verdict, told: list[Verdict], now: float) -> list[Verdict]:
        self._carry_out(whole, now)
        if whole.plan is None:
            return told
        return [replace(told[0], plan=whole.plan, victims=whole.victims), *told[1:]]

    def _with_preemption(
        self, verdict: Verdict, told: tuple[Verdict, ...], members: tuple[Member, ...], now: float
    ) -> Verdict | None:
        """For an entity that got nothing: the verdict with the pods that go for it, or why none do.

        None where the plan is made beside the loop. `told`: the verdict for each group.
        """
        judged = self.post_filter.judge(verdict, told, members, now, self._generation)
        if isinstance(judged, Planning):
            self._apart.append(judged)
            return None
        return judged

    def _conclude_plan(self, planning: Planning, found: Plan | NoPlan | Exception, now: float) -> list[Verdict]:
        whole = self.post_filter.conclude(planning, found, now, self._generation)
        if whole is None:
            return []
        if whole.ask.tree is not None:
            return self._carry_out_tree(whole, list(planning.told), now)
        self._carry_out(whole, now)
        return [whole]

    def _carry_out(self, verdict: Verdict, now: float) -> None:
        entity, rejection = verdict.ask.entity, verdict.rejection
        if self.entities.binds_volumes(verdict.ask.profile):
            self.cache.reserve_volumes(verdict.placements)
        if self.entities.gives_devices(verdict.ask.profile):
            self.cache.reserve_devices(verdict.placements)
        for placement in verdict.placements:
            self.cache.assume(placement.pod, placement.node)
        if verdict.placements:
            self.preemptions.release(entity)
        if rejection is None:
            self.queue.finish(entity, now)
        elif verdict.placements:
            self.queue.again(entity, now)
        elif rejection.signature is None:
            self.queue.fail(entity, verdict.ask.priority, now)
        else:
            self.queue.reject(entity, rejection.signature, rejection.waits_for, now)
