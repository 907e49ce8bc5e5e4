"""Parts that are unlike, each whole in one domain: all ways to share them out, until one holds enough of them.

Dealing parts out kind by kind (`units`) finds most placements; this settles the rest where parts and domains are few.
Whether some parts fit into a domain together is the engine's word. Where pods have rules about each other, domains
matter to each other: then the engine is asked about all parts at once as well, when each has its domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from muster.engine.model import Decision, Infeasible, Member, Placed, Placement


class Part(Struct, frozen=True):
    """Pods that go together. `kind`: what they take, whoever they are; `domains`: where they may go, in order."""

    members: tuple[Member, ...]
    kind: Hashable
    domains: tuple[int, ...]


Ask: TypeAlias = Callable[[int, tuple[Member, ...]], Decision]
"""Decides whether all these pods fit into a domain."""

Dealt: TypeAlias = Mapping[int, Sequence["Part"]]
"""The parts that are dealt to each domain."""

AskAll: TypeAlias = Callable[[Dealt], Decision]
"""Decides whether all parts fit as they are dealt."""


class Shared(Struct, frozen=True):
    """`placements`: of parts with enough pods, none if no way was found. `proved`: then there is none."""

    placements: tuple[Placement, ...]
    proved: bool


def share_out(parts: Sequence[Part], needed: int, ask: Ask, questions: int, ask_all: AskAll | None = None) -> Shared:
    """Places parts with at least `needed` pods in all, as many as the order of trial gives.

    `questions` may be asked. `ask_all`: where parts in different domains matter to each other; what `ask` refuses must
    then be impossible beside whatever others. Parts of one kind stand for each other, so they get domains in one order
    only.
    """
    kinds = {part.kind: number for number, part in reversed(list(enumerate(parts)))}
    ordered = sorted(parts, key=lambda part: (-len(part.members), kinds[part.kind], part.domains))
    search = _Search(ordered, ask, questions, ask_all)
    found = search.run(0, sum(len(part.members) for part in ordered) - needed)
    return Shared(search.placements() if found else (), not found and search.certain)


@dataclass(slots=True)
class _Search:
    """A depth-first search. `held`: the parts that are in each domain so far."""

    parts: Sequence[Part]
    ask: Ask
    questions: int
    ask_all: AskAll | None = None
    certain: bool = True
    held: dict[int, list[Part]] = field(default_factory=dict)
    _chosen: list[int] = field(default_factory=list)
    """For each part tried so far the place of its domain among its domains; beyond the last one, it waits."""
    _known: dict[Hashable, bool | None] = field(default_factory=dict)
    _together: tuple[Placement, ...] = ()

    def run(self, at: int, spare: int) -> bool:
        """Whether the parts from `at` on can be placed beside those before; pods up to `spare` of them may wait."""
        if at == len(self.parts):
            return self.ask_all is None or self._fits_together(self.ask_all)
        part = self.parts[at]
        for place in range(self._first(at), len(part.domains) + 1):
            self._chosen.append(place)
            if self._goes_on(part, place, at, spare):
                return True
            self._chosen.pop()
        return False

    def _goes_on(self, part: Part, place: int, at: int, spare: int) -> bool:
        if place == len(part.domains):
            return spare >= len(part.members) and self.run(at + 1, spare - len(part.members))
        inside = self.held.setdefault(part.domains[place], [])
        inside.append(part)
        if self._fits(part.domains[place]) and self.run(at + 1, spare):
            return True
        inside.pop()
        return False

    def _first(self, at: int) -> int:
        """The first place for a part: not before that of a like one."""
        before = self.parts[at - 1] if at else None
        part = self.parts[at]
        is_alike = before is not None and (before.kind, before.domains) == (part.kind, part.domains)
        return self._chosen[at - 1] if is_alike else 0

    def _fits_together(self, ask_all: AskAll) -> bool:
        """Whether all parts fit where they are, beside each other."""
        if self.questions <= 0:
            self.certain = False
            return False
        self.questions -= 1
        decision = ask_all(self.held)
        answer = _answer(decision)
        self.certain = self.certain and answer is not None
        if isinstance(decision, Placed) and answer:
            self._together = decision.placements
        return answer is True

    def _fits(self, domain: int) -> bool:
        inside = self.held[domain]
        key = domain, frozenset(Counter(part.kind for part in inside).items())
        if key not in self._known and self.questions <= 0:
            self.certain = False
            return False
        if key not in self._known:
            self.questions -= 1
            self._known[key] = _answer(self._decided(domain))
        self.certain = self.certain and self._known[key] is not None
        return self._known[key] is True

    def _decided(self, domain: int) -> Decision:
        return self.ask(domain, tuple(member for part in self.held[domain] for member in part.members))

    def placements(self) -> tuple[Placement, ...]:
        """Where all pods that are held go."""
        if self.ask_all is not None:
            return self._together
        decisions = [self._decided(domain) for domain, inside in self.held.items() if inside]
        return tuple(each for decision in decisions if isinstance(decision, Placed) for each in decision.placements)


def _answer(decision: Decision) -> bool | None:
    if isinstance(decision, Placed):
        return not decision.unplaced
    return False if isinstance(decision, Infeasible) else None
