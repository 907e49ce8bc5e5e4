"""The engine's answers to what entities ask, on the cluster as they find it: with room taken that is kept for others.

Changes nothing: what comes of an answer is the core's.
"""

from __future__ import annotations

from msgspec import Struct

from muster.clock import Clock
from muster.engine.decide import decide
from muster.engine.exact.work import Remaining
from muster.engine.in_order import place_in_order
from muster.engine.model import Decision, Placed
from muster.engine.snapshot import Snapshot
from muster.scheduler.apart import Answer, Apart, placements_of, still_holds
from muster.scheduler.cycle import Ask, request_of
from muster.scheduler.entities import Entities
from muster.scheduler.preemption.planning import Preemptions
from muster.scheduler.tree import Branch, TreeDecision, put_placements
from muster.scheduler.tree_deciding import decide_tree


class Answers(Struct, frozen=True):
    """Asks the engine. With a clock, a question is answered within `limit_s` seconds, if with Undecided."""

    entities: Entities
    preemptions: Preemptions
    clock: Clock | None = None
    limit_s: float | None = None

    def of_run(self, run: list[Ask]) -> Decision:
        """About a group, a plain pod, or plain pods that ask the same."""
        first = run[0]
        profile = self.entities.profiles[first.profile]
        with self.preemptions.view(first.priority, first.entity) as snapshot:
            planned: Placed | None = None
            if first.has_room_kept:
                planned = self.preemptions.as_planned(first.entity, first.members, snapshot, profile)
            return planned or decide(snapshot, request_of(run), profile=profile, remaining=self._remaining())

    def of_tree(self, ask: Ask, tree: Branch) -> TreeDecision:
        """About a tree of groups."""
        profile = self.entities.profiles[ask.profile]
        with self.preemptions.view(ask.priority, ask.entity) as snapshot:
            return decide_tree(snapshot, tree, profile=profile, remaining=self._remaining())

    def all_placed(self, grouped: list[list[Ask]]) -> list[Placed] | None:
        """About these runs, each with those before it in place; None if any pod would get no node."""
        found = []
        first = grouped[0][0]
        with self.preemptions.view(first.priority, first.entity) as snapshot, snapshot.trial() as trial:
            for run in grouped:
                try:
                    decision = decide(trial, request_of(run), profile=self.entities.profiles[run[0].profile])
                except Exception:  # strict order says which pod it is that raises
                    return None
                if not isinstance(decision, Placed) or decision.unplaced or not decision.placements:
                    return None
                put_placements(trial, (ask.members[0] for ask in run), decision.placements)
                found.append(decision)
        return found

    def in_order(self, asks: list[Ask]) -> dict[str, str]:
        """The node that each plain pod of one priority gets, each with those before it in place, by entity.

        A pod that gets none is not in it; nothing is, where pods have to be asked about one by one.
        """
        first = asks[0]
        with self.preemptions.view(first.priority, first.entity) as snapshot:
            if snapshot.nominated or any(ask.profile != first.profile for ask in asks):
                return {}
            try:
                shapes = [ask.members[0].shape for ask in asks]
                rows = place_in_order(self.entities.profiles[first.profile], snapshot, shapes)
            except Exception:  # asked about one by one, they show which of them it is that raises
                return {}
            records = snapshot.table.records
            return {ask.entity: records[row].name for ask, row in zip(asks, rows, strict=True) if row >= 0}

    def begin(self, ask: Ask, generation: int) -> Apart:
        """A question that is to be decided beside the event loop."""
        profile, tree = self.entities.profiles[ask.profile], ask.tree

        def answer(snapshot: Snapshot) -> Answer:
            if tree is not None:
                return decide_tree(snapshot, tree, profile=profile, remaining=self._remaining())
            return decide(snapshot, request_of([ask]), profile=profile, remaining=self._remaining())

        return Apart.begin(ask, generation, self.preemptions.view(ask.priority, ask.entity), answer)

    def is_current(self, apart: Apart, answer: Answer | Exception, generation: int) -> bool:
        """Whether an answer that was found beside the loop still means something."""
        ask = apart.ask
        if self.entities.ask(ask.entity) != ask:
            return False
        if isinstance(answer, Exception):
            return True
        if not placements_of(ask, answer):
            return generation == apart.generation
        with self.preemptions.view(ask.priority, ask.entity) as snapshot:
            return still_holds(ask, answer, snapshot, self.entities.profiles[ask.profile])

    def _remaining(self) -> Remaining | None:
        """How many seconds are left for a question that is asked now; None: only work counts."""
        if self.clock is None or self.limit_s is None:
            return None
        clock, end_s = self.clock, self.clock.now() + self.limit_s
        return lambda: end_s - clock.now()
