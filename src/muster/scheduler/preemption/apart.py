"""Plans of preemption that are made beside the event loop, for live use. See `apart`, which does so for decisions.

The plan is made on the cluster as it was when it was asked for. It counts if all victims still run where they did and
the preemptor then fits where the plan says; else the entity is decided and planned for anew, on the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from muster.engine.preemption.model import NoPlan, Plan
from muster.scheduler.cycle import Verdict
from muster.scheduler.greedy import Begun
from muster.scheduler.preemption.planning import Question


class Planning(Struct, frozen=True):
    """A plan on its way. `verdict`: the refusal that it is to turn; `told`: what is told of it, group by group.

    `generation`: how often nodes had got room when it was asked for.
    """

    verdict: Verdict
    told: tuple[Verdict, ...]
    question: Question
    generation: int
    find: Callable[[], Plan | NoPlan]
    begun: Begun | None = None
    """The cycle by upstream's rules that it is a part of."""

    def compute(self) -> Plan | NoPlan | Exception:
        """The plan, or what went wrong. Takes its time; may be called from another thread."""
        try:
            return self.find()
        except Exception as error:  # whoever concludes it reports it as the reason
            return error
