"""Everything that can come about, for few pods with rules between them: each pod on each node after all others.

Whether the pods of a placement can come in some order is not always said by linear rules. Where the search over cases
leaves that open, and there are few pods and nodes, all states are looked at, each once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.between import Apart, AtMost, Between, Devices
from muster.engine.exact.order import States, is_kept_apart
from muster.engine.exact.problem import Counts, Problem, Use
from muster.engine.exact.work import Budget

MOST_PODS = 10
MOST_CELLS = 60
"""Nodes times shapes."""
_MOST_STATES = 150_000
_WORK_PER_STATE = 15
_WORK_FOR_DEVICES = 300


class Exhausted(Struct, frozen=True):
    """`uses`: the placement of the most pods, of these that of the lowest positions. `is_complete`: all was looked
    at."""

    uses: tuple[Use, ...]
    is_complete: bool


def exhaust(
    problem: Problem, rules: Sequence[Between], places: Sequence[Sequence[int]], budget: Budget
) -> Exhausted | None:
    """The best of all placements that can come about; None if there are too many pods or nodes.

    `rules` over the nodes, class by class; `places`: the positions of the members of each shape.
    """
    nodes = np.repeat(np.arange(problem.classes), problem.nodes)
    if int(problem.demand.sum()) > MOST_PODS or len(nodes) * problem.shapes > MOST_CELLS:
        return None
    search = _Exhaustive(problem, rules, nodes.tolist(), places, budget)
    search.run()
    uses = [Use(at, tuple(counts), 1) for at, counts in zip(nodes.tolist(), search.best, strict=True) if any(counts)]
    return Exhausted(tuple(uses), search.is_complete)


class _Exhaustive:
    """Goes through all states, depth first."""

    def __init__(
        self,
        problem: Problem,
        rules: Sequence[Between],
        nodes: list[int],
        places: Sequence[Sequence[int]],
        budget: Budget,
    ) -> None:
        self.problem, self.rules, self.nodes, self.places, self.budget = problem, rules, nodes, places, budget
        self.is_complete = True
        self._rank: tuple[int, tuple[int, ...]] = (0, ())
        self._seen: set[tuple[object, ...]] = set()
        self._here = [[0] * self.problem.shapes for _ in self.nodes]
        self._free = [self.problem.free[at].tolist() for at in self.nodes]
        self._left = self.problem.demand.tolist()
        self._requests = self.problem.requests.tolist()
        self._states = States(self.rules)
        self._apart = [rule for rule in self.rules if isinstance(rule, Apart)]
        self._devices = [rule for rule in self.rules if isinstance(rule, Devices)]
        self._found: dict[frozenset[tuple[tuple[int, int], int]], bool] = {}
        self._modes = None if problem.modes is None else problem.modes.transpose(1, 0, 2).tolist()
        self._at_most = [rule for rule in self.rules if isinstance(rule, AtMost)]
        self._items = [
            [self._states.item(shape, row) for row in range(len(self.nodes))] for shape in range(self.problem.shapes)
        ]
        self.best = [list(counts) for counts in self._here]

    def run(self) -> bool:
        """Looks at all that can follow; whether all pods are placed."""
        for shape in range(self.problem.shapes):
            for row in range(len(self.nodes)):
                if not self._lets(shape, row):
                    continue
                self._move(shape, row, 1)
                state = (*(count for counts in self._here for count in counts), self._states.chosen())
                if state not in self._seen:
                    self._seen.add(state)
                    self.budget.spent += _WORK_PER_STATE
                    if self.budget.is_used_up or len(self._seen) > _MOST_STATES:
                        self.is_complete = False
                        return True
                    self._note()
                    if not any(self._left) or self.run():
                        return True
                self._move(shape, row, -1)
        return False

    def _note(self) -> None:
        placed: Counts = tuple(sum(counts[shape] for counts in self._here) for shape in range(self.problem.shapes))
        chosen = sorted(place for found, number in zip(self.places, placed, strict=True) for place in found[:number])
        rank = (-len(chosen), tuple(chosen))
        if rank < self._rank:
            self._rank, self.best = rank, [list(counts) for counts in self._here]

    def _lets(self, shape: int, row: int) -> bool:
        if not self._left[shape] or self._here[row][shape] >= self.problem.caps[self.nodes[row], shape]:
            return False
        if any(take > have for take, have in zip(self._requests[shape], self._free[row], strict=True)):
            return False
        counts = [count + (each == shape) for each, count in enumerate(self._here[row])]
        modes = None if self._modes is None else self._modes[self.nodes[row]]
        if modes is not None and not any(all(map(int.__le__, counts, mode)) for mode in modes):
            return False
        if any(shape in rule.shapes and self._number(rule) >= rule.most for rule in self._at_most):
            return False
        placed = {
            (each, at): count for at, counts in enumerate(self._here) for each, count in enumerate(counts) if count
        }
        placed[shape, row] = placed.get((shape, row), 0) + 1
        kept = all(is_kept_apart(rule, placed) for rule in self._apart) and self._states.let(self._items[shape][row])
        return kept and all(self._find(rule, placed) for rule in self._devices if shape in rule.carriers)

    def _find(self, rule: Devices, placed: dict[tuple[int, int], int]) -> bool:
        """Whether all pods find devices; what was not settled leaves the search incomplete."""
        key = frozenset((place, count) for place, count in placed.items() if place[0] in rule.carriers)
        if key not in self._found:
            found = rule.lets(placed)
            self.budget.spent += _WORK_FOR_DEVICES
            self.is_complete = self.is_complete and found is not None
            self._found[key] = bool(found)
        return self._found[key]

    def _number(self, rule: AtMost) -> int:
        return sum(counts[shape] for counts in self._here for shape in rule.shapes)

    def _move(self, shape: int, row: int, sign: int) -> None:
        self._here[row][shape] += sign
        self._left[shape] -= sign
        self._free[row] = [
            have - sign * take for have, take in zip(self._free[row], self._requests[shape], strict=True)
        ]
        self._states.move(self._items[shape][row], sign)
