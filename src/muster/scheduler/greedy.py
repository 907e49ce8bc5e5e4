"""Groups decided as kube-scheduler 1.36 or 1.37 decides them: one greedy group cycle, its preemption, its words.

The queue, room that is kept, and bindings are the same as for exact decisions. Pure; time is passed in.
Sources: `schedule_one_podgroup.go` of both releases, recordings of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.api.groups import GroupTerms
from muster.engine.model import Code, Member
from muster.engine.preemption.model import NoPlan, Plan
from muster.engine.preemption.pods import WAITS
from muster.engine.upstream.batching import batched
from muster.engine.upstream.cycle import Cycle, complete
from muster.engine.upstream.model import (
    Choices,
    CompositeGroup,
    Group,
    GroupResult,
    PodGroup,
    Release,
    Results,
    Trace,
    Word,
    leaves,
)
from muster.engine.upstream.preemption import Preemptor, preempt
from muster.scheduler.cycle import Ask, Verdict
from muster.scheduler.entities import TREE, Entities
from muster.scheduler.greedy_verdicts import Said, group_verdicts, whole_verdict
from muster.scheduler.members import PodRecord
from muster.scheduler.preemption.planning import Preemptions, Question

NOT_REGISTERED = "default preemption plugin is not registered, workload aware preemption is disabled"
CLAIMS_GIVEN_BACK = "deallocation and deletion of ResourceClaims completed"


class Attempt(Struct, frozen=True):
    """What a cycle gave: `whole` is the queue's answer, `groups` one verdict for each group with pending members.

    `question`: who preempts, if `plan` says that somebody goes.
    """

    whole: Verdict
    groups: tuple[Verdict, ...]
    question: Question
    plan: Plan | None = None


class Begun(Struct, frozen=True):
    """A cycle in which the root does not fit; `find` looks for victims, which takes long."""

    ask: Ask
    root: Group
    results: Results
    question: Question
    cycle: Cycle
    find: Callable[[], Plan | NoPlan]


class GreedyGroups(Struct, frozen=True):
    """Runs group cycles. `choices`: what upstream leaves to chance."""

    entities: Entities
    preemptions: Preemptions
    release: Release
    choices: Choices

    def begin(self, ask: Ask, now_s: float) -> Attempt | Begun:
        """One cycle for a group or a tree of groups; without its preemption, if there is to be one."""
        root = self._group(ask)
        question = self._question(ask, root)
        fault = self._fault(root, question) if self.release == "1.37" else ""
        cycle = Cycle(self.entities.profiles[ask.profile], self.release, self.choices)
        if fault:
            results = complete(root, {root.key: GroupResult(root, Word(Code.ERROR, fault))})
            return self._attempt(ask, root, results, question, None, None)
        with self.preemptions.view(ask.priority, ask.entity) as snapshot:
            results = complete(root, cycle.run(snapshot, root))
        if results[root.key].word.code is not Code.UNSCHEDULABLE or not self._may_search(results, question):
            return self._attempt(ask, root, results, question, None, cycle.trace)
        cluster = self.preemptions.cluster(question, now_s)
        preemptor = Preemptor(root, question.priority, question.may_preempt, question.entity)
        return Begun(ask, root, results, question, cycle, partial(preempt, cluster, preemptor, cycle))

    def finish(self, begun: Begun, found: Plan | NoPlan) -> Attempt:
        """The cycle with what came of its preemption."""
        root, results = begun.root, begun.results
        plan: Plan | None = None
        if isinstance(found, NoPlan):
            self._add(results, found.text, is_final=found.is_final)
        elif self.release == "1.36":
            plan = replace(found, placements=results[root.key].placements if isinstance(root, PodGroup) else ())
        else:
            kind = "compositepodgroup" if isinstance(root, CompositeGroup) else "podgroup"
            text = f"found a placement for {kind}, preempting {len(found.evicted)} victims"
            self._add(results, text, is_final=True)
            plan = found
        return self._attempt(begun.ask, root, results, begun.question, plan, begun.cycle.trace)

    # -- who asks

    def _question(self, ask: Ask, root: Group) -> Question:
        members = tuple(member for leaf in leaves(root) for member in leaf.members)
        profile = self.entities.profiles[ask.profile]
        may_preempt = self._may_preempt(ask, root)
        need = max(1, ask.min_count - ask.scheduled)
        return Question(ask.entity, ask.priority, members, need, False, may_preempt, profile, ask.topology)

    def _may_preempt(self, ask: Ask, root: Group) -> bool:
        """1.36 goes by the pods, of which one that must not is enough; 1.37 by the root."""
        if self.release == "1.37":
            return self._root_may_preempt(ask.entity, root)
        records = (self.entities.cache.pods[member.key] for leaf in leaves(root) for member in leaf.members)
        return all(record.pod["spec"].get("preemptionPolicy") != "Never" for record in records)

    def _root_may_preempt(self, entity: str, root: Group) -> bool:
        cache = self.entities.cache
        if entity.startswith(TREE):
            composite = cache.hierarchy.terms(root.key)
            return composite is None or composite.may_preempt
        terms = self._terms(root.key)
        return terms is None or terms.may_preempt

    def _terms(self, group: str) -> GroupTerms | None:
        members = self.entities.cache.groups.get(group)
        return None if members is None else self.entities.cache.terms(members.ref)

    def _group(self, ask: Ask) -> Group:
        if ask.entity.startswith(TREE):
            return self._composite(ask.entity.removeprefix(TREE), ask.entity)
        assert ask.ref is not None
        return self._leaf(ask.ref.key, ask.entity)

    def _composite(self, key: str, entity: str) -> CompositeGroup:
        hierarchy, terms = self.entities.cache.hierarchy, self.entities.cache.composite_terms(key)
        children = tuple(
            self._composite(child, entity) if is_composite else self._leaf(child, entity)
            for is_composite, child in hierarchy.children(key)
        )
        return CompositeGroup(
            key, children, 1 if terms is None else terms.min_groups, None if terms is None else terms.topology_key
        )

    def _leaf(self, key: str, entity: str) -> PodGroup:
        found, cache = self.entities.members(key), self.entities.cache
        terms = cache.terms(found.ref)
        members = tuple(self._member(record, entity) for record in self.entities.to_place(found))
        return PodGroup(
            key,
            members if self.release == "1.36" else batched(members),
            1 if terms is None else terms.min_count,
            {pod: record.node for pod, record in found.scheduled.items()},
            None if terms is None else terms.topology_key,
        )

    def _member(self, record: PodRecord, entity: str) -> Member:
        ongoing = self.preemptions.ongoing(entity)
        nominated = "" if ongoing is None else ongoing.places.get(record.key, "")
        return Member(record.key, self.entities.cache.shape(record), nominated)

    # -- what 1.37 checks before it tries anything

    def _fault(self, root: Group, question: Question) -> str:
        """Why the pods of a group cannot be decided about together; "" if they can."""
        for record in self._records(root):
            if record.priority != question.priority:
                return (
                    "all pods in a single pod group should have the same priority as the pod group's priority, "
                    f"got {record.priority} and {question.priority}"
                )
            own = record.pod["spec"].get("preemptionPolicy") or "PreemptLowerPriority"
            wanted = "PreemptLowerPriority" if question.may_preempt else "Never"
            if own != wanted:
                return (
                    "all pods in a single pod group should have the same preemption policy "
                    f"as the pod group's preemption policy, got {own} and {wanted}"
                )
        return ""

    def _records(self, root: Group) -> Iterator[PodRecord]:
        """Pending members first, then those that run."""
        pods = self.entities.cache.pods
        for leaf in leaves(root):
            yield from (pods[member.key] for member in leaf.members)
        for leaf in leaves(root):
            yield from (pods[pod] for pod in leaf.scheduled if pod in pods)

    # -- preemption

    def _may_search(self, results: Results, question: Question) -> bool:
        """Whether victims are to be looked for; if not, what is said about it is added to the results."""
        if self.preemptions.is_waiting(question.entity):
            self._add(results, WAITS)
            return False
        if question.profile.preemption is None:
            self._add(results, NOT_REGISTERED, is_final=True)
            return False
        return True

    def _add(self, results: Results, text: str, *, is_final: bool = False) -> None:
        """What the plugins say is added to the status of each result; results that share one add to it several times.

        `is_final`: the other plugin (claims) is not heard any more.
        """
        if self.release == "1.37":
            text = f"pod group preemption: {text}" if is_final else f"{CLAIMS_GIVEN_BACK}, pod group preemption: {text}"
        for result in results.values():
            if not result.word.is_success:
                result.word.reasons.append(text)

    def _attempt(
        self, ask: Ask, root: Group, results: Results, question: Question, plan: Plan | None, trace: Trace | None
    ) -> Attempt:
        refs = {leaf.key: self.entities.members(leaf.key).ref for leaf in leaves(root)}
        groups = group_verdicts(Said(self.release, root, results, plan, trace), ask, refs)
        return Attempt(whole_verdict(ask, groups), groups, question, plan)
