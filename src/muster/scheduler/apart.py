"""Decisions that are made beside the event loop, for live use: questions that may take long, each on its own snapshot.

While a thread works on one, the scheduler goes on with everything else. When the answer is there, `still_holds` says
whether it still means something; if not, the entity is decided anew, the second time on the loop. Pure but for the
snapshots that are kept open. Not for simulations: what happens meanwhile depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from muster.engine.model import Decision, Member, Placed, Placement
from muster.engine.preemption.holding import holds
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.scheduler.cycle import Ask
from muster.scheduler.tree import TreeDecision, leaves_of

Answer: TypeAlias = Decision | TreeDecision


@dataclass(slots=True)
class Apart:
    """A question on its way. `generation`: how often nodes had got room when it was asked."""

    ask: Ask
    generation: int
    _view: AbstractContextManager[Snapshot]
    _snapshot: Snapshot
    _decide: Callable[[Snapshot], Answer]

    @classmethod
    def begin(
        cls, ask: Ask, generation: int, view: AbstractContextManager[Snapshot], decide: Callable[[Snapshot], Answer]
    ) -> Apart:
        """Open the view of the cluster that the question is about."""
        return cls(ask, generation, view, view.__enter__(), decide)

    def compute(self) -> Answer | Exception:
        """The answer, or what went wrong. Takes its time; may be called from another thread."""
        try:
            return self._decide(self._snapshot)
        except Exception as error:  # whoever concludes it reports it as the verdict
            return error

    def end(self) -> None:
        """Give the view back."""
        self._view.__exit__(None, None, None)


def is_heavy(ask: Ask) -> bool:
    """Whether a question may take long: a tree, a group of several shapes, or one whose members have rules about each
    other."""
    shapes = [shape for shape, _ in ask.signature.members]
    several = len(shapes) > 1 or (len(ask.members) > 1 and any(_has_rules(shape) for shape in shapes))
    return not ask.has_room_kept and (ask.tree is not None or several)


def _has_rules(shape: Shape) -> bool:
    terms = None if shape.usage.identity is None else shape.usage.identity.terms
    required = terms is not None and bool(terms.affinity or terms.anti_affinity)
    return required or bool(shape.usage.volumes) or any(rule.constraint.hard for rule in shape.spread)


def placements_of(ask: Ask, answer: Answer) -> tuple[Placement, ...]:
    """What an answer would place."""
    if isinstance(answer, TreeDecision):
        leaves = leaves_of(ask.tree) if ask.tree is not None else ()
        return tuple(placement for leaf in leaves for placement in answer.placements(leaf))
    return answer.placements if isinstance(answer, Placed) else ()


def still_holds(ask: Ask, answer: Answer, snapshot: Snapshot, profile: Profile) -> bool:
    """Whether all that the answer places fits where it says, on the cluster as it is now."""
    places = {placement.pod: placement.node for placement in placements_of(ask, answer)}
    members: list[Member] = [member for member in ask.members if member.key in places]
    return holds(profile, snapshot, members, places)


def group_answer(answer: Answer | Exception) -> Decision:
    """The answer about a group. Raises what went wrong."""
    if isinstance(answer, Exception):
        raise answer
    assert not isinstance(answer, TreeDecision)
    return answer


def tree_answer(answer: Answer | Exception) -> TreeDecision:
    """The answer about a tree. Raises what went wrong."""
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, TreeDecision)
    return answer
