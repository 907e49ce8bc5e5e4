"""What becomes of entities that fit nowhere: who is evicted for them, or why nobody (the PostFilter step).

Plans that may take long are made beside the loop (see `apart`); here is what is asked, and what an answer still means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.engine.model import Member, Placed
from muster.engine.preemption.model import NoPlan, Plan
from muster.scheduler.answers import Answers
from muster.scheduler.apart import is_heavy
from muster.scheduler.cycle import UNSCHEDULABLE, Ask, Signature, Verdict, with_preemption_text, with_victims_text
from muster.scheduler.entities import Entities
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.preemption.apart import Planning
from muster.scheduler.preemption.planning import Preemptions, Question, Victim
from muster.scheduler.queue import SchedulingQueue


@dataclass(slots=True)
class PostFilter:
    """Plans for entities that were refused. `generation` of a call: how often nodes had got room by then."""

    entities: Entities
    preemptions: Preemptions
    answers: Answers
    queue: SchedulingQueue
    options: SchedulerOptions
    _no_plans: dict[Signature, NoPlan] = field(default_factory=dict)
    """Questions for which nobody can be evicted, while nothing has happened that could change that."""
    _replanned: set[str] = field(default_factory=set)
    """Entities whose plan came too late: theirs is made on the loop."""

    def room_came(self) -> None:
        """Nodes got room, or nodes came: what was refused may be possible."""
        self._no_plans.clear()

    def plan_for(self, ask: Ask, members: tuple[Member, ...], now: float) -> Plan | NoPlan:
        """Who would be evicted for an entity that fits nowhere, or why nobody; nothing comes of it."""
        if self.entities.profiles[ask.profile].preemption is None:
            return NoPlan("the profile evicts nobody")
        return self.preemptions.plan(self.question(ask, members), now)

    def judge(
        self, verdict: Verdict, told: tuple[Verdict, ...], members: tuple[Member, ...], now: float, generation: int
    ) -> Verdict | Planning:
        """For an entity that got nothing: the verdict with the pods that go for it, or why none do.

        A Planning where the plan is to be made beside the loop. `told`: the verdict for each group.
        """
        ask, rejection = verdict.ask, verdict.rejection
        if verdict.placements or rejection is None or not members:
            return verdict
        if rejection.reason != UNSCHEDULABLE or rejection.signature is None:
            return verdict
        if self.entities.profiles[ask.profile].preemption is None:
            return verdict
        question = self.question(ask, members)
        outcome = self._no_plans.get(ask.signature)
        if outcome is None and self._goes_apart(question):
            return Planning(verdict, told, question, generation, self.preemptions.search(question, now))
        self._replanned.discard(ask.entity)
        return self._with_plan(verdict, question, outcome or self.preemptions.plan(question, now), now)

    def conclude(
        self, planning: Planning, found: Plan | NoPlan | Exception, now: float, generation: int
    ) -> Verdict | None:
        """The verdict with a plan that was made beside the loop; None if that cannot be carried out any more.

        The entity is then put back, to be decided on the loop.
        """
        ask, question = planning.verdict.ask, planning.question
        if isinstance(found, Exception):
            found = NoPlan(f"{type(found).__name__}: {found}")
        is_same = self.entities.ask(ask.entity) == replace(ask, has_room_kept=False)
        if not is_same or not self._stands(planning, found, generation):
            self._replanned.add(ask.entity)
            self.queue.put_back(ask.entity, now)
            return None
        return self._with_plan(planning.verdict, question, self.preemptions.judged(question, found), now)

    def start(self, question: Question, plan: Plan, now: float) -> list[Victim]:
        """Carry a plan into the books; who loses room to it is tried again."""
        victims, displaced = self.preemptions.start(question, plan, now)
        for entity in displaced:
            self.queue.activate(entity, now, "Displaced")
        return victims

    def question(self, ask: Ask, members: tuple[Member, ...]) -> Question:
        """What is asked for an entity of which these members are needed."""
        need = max(1, ask.min_count - ask.scheduled)
        is_pod = ask.ref is None and ask.tree is None
        profile = self.entities.profiles[ask.profile]
        if ask.tree is not None:
            members = ask.members
        may_preempt = self.entities.may_preempt(ask)
        return Question(ask.entity, ask.priority, members, need, is_pod, may_preempt, profile, ask.topology, ask.tree)

    def _goes_apart(self, question: Question) -> bool:
        if not self.options.decide_in_thread or question.is_pod or question.entity in self._replanned:
            return False
        return not self.preemptions.is_waiting(question.entity) and self.preemptions.may_find(question)

    def _with_plan(self, verdict: Verdict, question: Question, outcome: Plan | NoPlan, now: float) -> Verdict:
        ask, rejection = verdict.ask, verdict.rejection
        assert rejection is not None, "plans are made for what was refused"
        if isinstance(outcome, NoPlan):
            if not outcome.is_waiting and not self.preemptions.keeps(question, now):
                self._no_plans[ask.signature] = outcome
                self.preemptions.release(ask.entity)
            return replace(verdict, rejection=with_preemption_text(ask, rejection, outcome.text))
        victims = self.start(question, outcome, now)
        kept = replace(ask, has_room_kept=True)
        if self.options.release == "1.37":
            rejection = with_victims_text(rejection, outcome)
        return Verdict(kept, (), replace(rejection, signature=kept.signature), outcome, tuple(victims))

    def _stands(self, planning: Planning, found: Plan | NoPlan, generation: int) -> bool:
        """Whether a plan can still be carried out, and is still needed."""
        if isinstance(found, NoPlan):
            return planning.generation == generation
        return self.preemptions.stands(planning.question, found) and not self._fits_by_now(planning, generation)

    def _fits_by_now(self, planning: Planning, generation: int) -> bool:
        """Whether the entity may fit without evictions, since nodes got room; what takes long to find out may."""
        ask = planning.verdict.ask
        if planning.generation == generation:
            return False
        return is_heavy(ask) or isinstance(self.answers.of_run([ask]), Placed)
