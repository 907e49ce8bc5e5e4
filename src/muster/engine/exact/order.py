"""An order in which the pods of a placement can come: each is let onto its node with only those before it there.

kube-scheduler judges a pod by what is there at its turn. Whether pods keep apart does not depend on the order; the
first of pods that want to be together must come first, and spreading needs the emptiest domain next. Pods that are the
same to all rules, on nodes that are the same to them, are one item. (See `cases` for what holds whatever the order.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from muster.engine.arrays import Ints32
from muster.engine.between import Apart, Between, Devices, Even, Near, Volumes
from muster.engine.exact.claims import ClaimState

Item: TypeAlias = tuple[int, tuple[int, ...]]
"""(shape, what tells its node apart)."""
Placing: TypeAlias = list[tuple[int, int]]
"""(shape, row of the node), in order."""

_STEPS = 3_000
"""So many steps may be taken back and tried otherwise."""


def in_order(rules: Sequence[Between], placed: Mapping[tuple[int, int], int]) -> Placing | None:
    """An order for `placed` (shape, row) → pods; None if none was found."""
    if not all(is_kept_apart(rule, placed) for rule in rules if isinstance(rule, Apart)):
        return None
    if not all(rule.lets(placed) for rule in rules if isinstance(rule, Devices)):
        return None
    order: Placing = []
    moving = [rule for rule in rules if isinstance(rule, Near | Even | Volumes)]
    for shapes in _connected(moving, sorted({shape for shape, _ in placed})):
        states = States([rule for rule in moving if rule.carriers & shapes])
        rows: dict[Item, list[int]] = {}
        for (shape, row), number in sorted(placed.items()):
            if shape in shapes:
                rows.setdefault(states.item(shape, row), []).extend([row] * number)
        items = _Replay(states, rows).run()
        if items is None:
            return None
        left = {item: iter(found) for item, found in rows.items()}
        order += [(item[0], next(left[item])) for item in items]
    return order


def _connected(rules: Sequence[Near | Even | Volumes], shapes: Sequence[int]) -> list[frozenset[int]]:
    """The shapes in sets that are nothing to each other, whose orders do not matter to each other."""
    sets = [frozenset({shape}) for shape in shapes]
    for rule in rules:
        touched = rule.carriers
        if not isinstance(rule, Volumes):
            touched |= rule.supporters if isinstance(rule, Near) else rule.counted
        together = frozenset(shape for each in sets if each & touched for shape in each)
        sets = [each for each in sets if not each & touched] + ([together] if together else [])
    return sorted(sets, key=min)


def is_kept_apart(rule: Apart, placed: Mapping[tuple[int, int], int]) -> bool:
    """Whether a placement, (shape, row) → pods, keeps the rule."""
    domains: dict[int, Counter[int]] = {}
    for (shape, row), number in placed.items():
        if rule.ids[row] >= 0:
            domains.setdefault(int(rule.ids[row]), Counter())[shape] += number
    return not any(
        (counts[one] > 1 if one == other else counts[one] and counts[other])
        for counts in domains.values()
        for one, other in rule.pairs
    )


@dataclass(slots=True)
class _Balance:
    """The state of an Even rule. `at`: where its domains are in what is seen of a node."""

    rule: Even
    at: int
    counts: list[int]
    present: list[int]

    def lets(self, item: Item) -> bool:
        if item[0] not in self.rule.carriers:
            return True
        domain = item[1][self.at]
        if domain < 0:
            return False
        least = 0 if self.rule.is_least_zero else min(self.counts[each] for each in self.present)
        return self.counts[domain] + self.rule.adds - least <= self.rule.max_skew

    def move(self, item: Item, sign: int) -> None:
        if item[0] in self.rule.counted and item[1][self.at + 1] >= 0:
            self.counts[item[1][self.at + 1]] += sign

    def urgency(self, item: Item) -> int:
        """How full the domain is: the emptiest is the next."""
        if item[0] in self.rule.carriers:
            return 2 * self.counts[item[1][self.at]]
        if item[0] in self.rule.counted and item[1][self.at + 1] >= 0:
            return 2 * self.counts[item[1][self.at + 1]] + 1
        return 0


@dataclass(slots=True)
class _Company:
    """The state of a Near rule: the supporters in each domain of each term; `some`: how many there are anywhere."""

    rule: Near
    at: int
    counts: list[list[int]]
    some: int

    def lets(self, item: Item) -> bool:
        shape, seen = item
        if shape not in self.rule.carriers:
            return True
        domains = seen[self.at : self.at + len(self.counts)]
        if min(domains) < 0:
            return False
        if not self.some and shape in self.rule.first:
            return True
        return all(counts[domain] > 0 for counts, domain in zip(self.counts, domains, strict=True))

    def move(self, item: Item, sign: int) -> None:
        shape, seen = item
        if shape not in self.rule.supporters:
            return
        for counts, domain in zip(self.counts, seen[self.at :], strict=False):
            if domain >= 0:
                counts[domain] += sign
                self.some += sign

    def must_be_first(self, items: Sequence[Item]) -> list[Item]:
        """The carriers of which one has to come before all supporters, since nobody else supports their domain."""
        others = [item for item in items if item[0] in self.rule.supporters - self.rule.carriers]
        alone = []
        for item in items:
            if item[0] in self.rule.carriers:
                for term, counts in enumerate(self.counts):
                    domain = item[1][self.at + term]
                    if domain >= 0 and not counts[domain] and all(each[1][self.at + term] != domain for each in others):
                        alone.append(item)
                        break
        return [item for item in alone if item[0] in self.rule.first]


class States:
    """The states of all rules that look at what came before."""

    def __init__(self, rules: Sequence[Between]) -> None:
        self._ids: list[Ints32] = []
        self.balances: list[_Balance] = []
        self.companies: list[_Company] = []
        self._claims: list[ClaimState] = []
        for rule in rules:
            at = len(self._ids)
            if isinstance(rule, Even):
                present = np.flatnonzero(rule.present).tolist()
                self.balances.append(_Balance(rule, at, rule.counts.tolist(), present))
                self._ids += [rule.ids, rule.counted_ids]
            elif isinstance(rule, Near):
                running = [each.astype(int).tolist() for each in rule.running]
                self.companies.append(_Company(rule, at, running, sum(map(sum, running))))
                self._ids += rule.ids
            elif isinstance(rule, Volumes):
                self._claims.append(ClaimState(rule, at))
                self._ids.append(rule.ids)

    def item(self, shape: int, row: int) -> Item:
        """What a pod of the shape on this node is to the rules."""
        return shape, tuple(int(ids[row]) for ids in self._ids)

    def let(self, item: Item) -> bool:
        """Whether one more may come."""
        return (
            all(state.lets(item) for state in self.balances)
            and all(state.lets(item) for state in self.companies)
            and all(state.lets(item) for state in self._claims)
        )

    def chosen(self) -> tuple[tuple[int, int], ...]:
        """What claims have chosen, which depends on the order."""
        return tuple(each for state in self._claims for each in state.chosen())

    def move(self, item: Item, sign: int) -> None:
        """It came (1) or was taken back (-1)."""
        for balance in self.balances:
            balance.move(item, sign)
        for company in self.companies:
            company.move(item, sign)
        for claims in self._claims:
            claims.move(item, sign)

    def urgency(self, item: Item) -> tuple[int, int]:
        """How full its domains are, and how many volumes its claims can choose from: fewer are more urgent."""
        fullest = max((state.urgency(item) for state in self.balances), default=0)
        return fullest, min((state.urgency(item) for state in self._claims), default=0)


class _Replay:
    """Puts one item after the other; what leads nowhere is taken back."""

    def __init__(self, states: States, rows: Mapping[Item, Sequence[int]]) -> None:
        self._states = states
        self._left = {item: len(found) for item, found in rows.items()}
        self._first = {item for each in states.companies for item in each.must_be_first(list(rows))}
        self._steps = _STEPS

    def run(self) -> list[Item] | None:
        """All items in an order in which each is let to its place."""
        placed: list[Item] = []
        tried: list[list[Item]] = [self._candidates(None)]
        failed: set[tuple[object, ...]] = set()
        total = sum(self._left.values())
        while len(placed) < total:
            if tried[-1]:
                item = tried[-1].pop()
                self._move(item, 1)
                placed.append(item)
                state = (*self._left.values(), self._states.chosen())
                tried.append([] if state in failed else self._candidates(item))
                continue
            failed.add((*self._left.values(), self._states.chosen()))
            tried.pop()
            self._steps -= 1
            if not placed or self._steps <= 0:
                return None
            self._move(placed.pop(), -1)
        return placed

    def _move(self, item: Item, sign: int) -> None:
        self._left[item] -= sign
        self._states.move(item, sign)

    def _candidates(self, before: Item | None) -> list[Item]:
        """What may come next, the best last."""
        found = [item for item, left in self._left.items() if left and self._states.let(item)]
        first = self._first if before is None else set[Item]()
        keys = {item: (item not in first, self._states.urgency(item), item != before, item) for item in found}
        return sorted(found, key=keys.__getitem__, reverse=True)
