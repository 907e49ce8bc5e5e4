"""Rules between the pods of a group in the exact model: cases that are told apart until a linear problem is left.

Rules over domains are disjunctions: of two shapes that exclude each other, one is absent from a domain; who needs
another pod in its domain is absent where there is none; how many pods a domain may have depends on the one that has the
fewest. A `Case` says what is assumed about each. Whatever it leaves open is relaxed, so that every placement that keeps
the rules keeps the linear rules of the cases that it belongs to; and any choice splits a case in two that cover it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Ints, Ints32
from muster.engine.between import Apart, AtMost, Devices, Even, Few, Near, Volumes
from muster.engine.exact.problem import Counts, Problem, Row

Rule: TypeAlias = Apart | Near | Even | AtMost | Volumes | Few | Devices
Option: TypeAlias = tuple[int, ...]
"""The domains, one a term, in which the first pod without support is; () if there is none such."""


class Ban(Struct, frozen=True):
    """In a domain of an Apart rule there is no pod of shape `one`, or none of shape `other`."""

    rule: int
    domain: int
    one: int
    other: int


class Seed(Struct, frozen=True):
    """The first pod without support is (or is not) where the option says."""

    rule: int
    option: Option


class Support(Struct, frozen=True):
    """In a domain of a Near rule there is support in the end, or there is none: nor who needs it, but for a first."""

    rule: int
    term: int
    domain: int


class Least(Struct, frozen=True):
    """The domain with the fewest pods of an Even rule has at most `most` in the end, or more."""

    rule: int
    most: int


Choice: TypeAlias = Ban | Seed | Support | Least


class Case(Struct, frozen=True):
    """What is assumed, sorted by rule (its position). `bans`: (rule, domain, shape) is absent. `seeds`: options that
    are left for each Near rule. `support`: (rule, term, domain, whether there is support). `spans`: the least and the
    most that the emptiest domain of each Even rule has in the end."""

    bans: frozenset[tuple[int, int, int]] = frozenset()
    seeds: tuple[tuple[int, frozenset[Option]], ...] = ()
    support: frozenset[tuple[int, int, int, bool]] = frozenset()
    spans: tuple[tuple[int, int, int], ...] = ()

    def options(self, rule: int) -> frozenset[Option]:
        """The options that are left."""
        return next(options for each, options in self.seeds if each == rule)

    def span(self, rule: int) -> tuple[int, int]:
        """From and to."""
        return next((low, high) for each, low, high in self.spans if each == rule)


def first_case(problem: Problem, rules: tuple[Rule, ...], enough: int) -> Case:
    """The case that every placement of at least `enough` pods belongs to."""
    seeds, spans = [], []
    for at, rule in enumerate(rules):
        if isinstance(rule, Near):
            seeds.append((at, frozenset(options_of(problem, rule))))
        elif isinstance(rule, Even):
            spans.append((at, *_span(problem, rule, enough)))
    return Case(seeds=tuple(seeds), spans=tuple(spans))


def options_of(problem: Problem, rule: Near) -> Iterator[Option]:
    """Where a first pod without support can be."""
    yield ()
    if rule.first:
        usable = problem.caps[:, sorted(rule.first)].any(axis=1)
        for at in np.flatnonzero(usable).tolist():
            yield tuple(int(ids[at]) for ids in rule.ids)


def _span(problem: Problem, rule: Even, enough: int) -> tuple[int, int]:
    """How many pods the emptiest domain has in the end, at least and at most."""
    if rule.is_least_zero:
        return 0, 0
    present = np.flatnonzero(rule.present)
    low = int(rule.counts[present].min())
    room = _reachable(problem, rule.counted_ids, sorted(rule.counted), len(rule.counts))[present]
    coming = int(problem.demand[sorted(rule.counted)].sum())
    high = int((rule.counts[present] + np.minimum(room, coming)).min())
    high = min(high, (int(rule.counts[present].sum()) + coming) // len(present))
    own = sorted(rule.carriers & rule.counted)
    must = int(problem.demand[own].sum()) - (int(problem.demand.sum()) - enough)
    room = _reachable(problem, rule.ids, own, len(rule.counts))
    uncounted = room - _reachable(problem, rule.counted_ids, own, len(rule.counts))
    while low < high and _most_own(rule, room, uncounted, low) < must:
        low += 1
    return low, high


def _most_own(rule: Even, room: Ints, uncounted: Ints, least: int) -> int:
    """At most so many pods of those that the rule is for can come if the emptiest domain has `least` in the end.

    No domain gets more than `max_skew` above it, and the emptiest itself nothing, but on nodes that do not count.
    """
    most = np.clip(rule.max_skew + least - rule.counts, 0, room)
    as_emptiest = np.minimum(most, np.clip(least - rule.counts, 0, room) + uncounted)
    can_be = np.asarray(rule.present) & (rule.counts <= least)
    given_up = (most - as_emptiest)[can_be]
    return int(most.sum() - (given_up.min() if len(given_up) else 0))


def _reachable(problem: Problem, ids: Ints32, shapes: list[int], domains: int) -> Ints:
    """int64[D]: at most so many pods of the shapes can come to each domain."""
    caps = np.minimum(problem.nodes[:, None] * problem.caps[:, shapes], problem.demand[shapes]).sum(axis=1)
    inside = ids >= 0
    return np.bincount(ids[inside], weights=caps[inside], minlength=domains).astype(np.int64)


def split(case: Case, choice: Choice) -> tuple[Case, Case]:
    """The two cases of a choice; every placement of the case belongs to one of them."""
    if isinstance(choice, Ban):
        bans = [case.bans | {(choice.rule, choice.domain, shape)} for shape in (choice.one, choice.other)]
        return replace(case, bans=bans[0]), replace(case, bans=bans[1])
    if isinstance(choice, Seed):
        left = case.options(choice.rule)
        parts = [left & {choice.option}, left - {choice.option}]
        cases = [replace(case, seeds=_with(case.seeds, (choice.rule, part))) for part in parts]
        return cases[0], cases[1]
    if isinstance(choice, Support):
        said = (choice.rule, choice.term, choice.domain)
        return (
            replace(case, support=case.support | {(*said, True)}),
            replace(case, support=case.support | {(*said, False)}),
        )
    low, high = case.span(choice.rule)
    spans = [(choice.rule, low, min(high, choice.most)), (choice.rule, max(low, choice.most + 1), high)]
    fewer, more = (replace(case, spans=tuple(_with_span(case.spans, span))) for span in spans)
    return fewer, more


def _with(
    seeds: tuple[tuple[int, frozenset[Option]], ...], new: tuple[int, frozenset[Option]]
) -> tuple[tuple[int, frozenset[Option]], ...]:
    return tuple(new if each[0] == new[0] else each for each in seeds)


def _with_span(spans: tuple[tuple[int, int, int], ...], new: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    return (new if each[0] == new[0] else each for each in spans)


# -- the linear problem of a case --------------------------------------------------------------------------------------


def problem_of(base: Problem, rules: tuple[Rule, ...], case: Case) -> Problem:
    """The problem in which all that the case says holds, and nothing else is asked."""
    caps, rows = base.caps.copy(), [*base.rows, *_no_more_than_there_are(base)]
    for at, rule in enumerate(rules):
        if isinstance(rule, Apart):
            rows += _apart(base, rule)
            for which, domain, shape in case.bans:
                if which == at:
                    caps[rule.ids == domain, shape] = 0
        elif isinstance(rule, AtMost):
            weights = tuple(int(shape in rule.shapes) for shape in range(base.shapes))
            rows.append(Row(tuple(range(base.classes)), weights, rule.most))
        elif isinstance(rule, Few):
            rows.append(Row(tuple(np.flatnonzero(rule.nodes).tolist()), rule.weights, rule.most))
        elif isinstance(rule, Near):
            rows += _near(base, rule, at, case, caps)
        elif isinstance(rule, Even):
            rows += _even(base, rule, case.span(at), caps)
    return replace(base, caps=caps, rows=tuple(rows))


def _no_more_than_there_are(base: Problem) -> Iterator[Row]:
    """Pods that are not needed would be left out of a placement, and with them what they are for others."""
    for shape, demand in enumerate(base.demand.tolist()):
        yield Row(tuple(range(base.classes)), tuple(int(each == shape) for each in range(base.shapes)), demand)


def _apart(base: Problem, rule: Apart) -> Iterator[Row]:
    """At most one pod of shapes that all exclude each other and themselves."""
    for clique in cliques(rule):
        weights = tuple(int(shape in clique) for shape in range(base.shapes))
        for classes in _classes_by_domain(rule.ids).values():
            yield Row(classes, weights, 1)


def cliques(rule: Apart) -> list[tuple[int, ...]]:
    """Sets of shapes that all exclude each other and themselves, which cover all pairs of such shapes."""
    alone = [one for one, other in sorted(rule.pairs) if one == other]
    found: list[tuple[int, ...]] = []
    for shape in alone:
        clique = [shape]
        for other in alone:
            if other != shape and all((min(each, other), max(each, other)) in rule.pairs for each in clique):
                clique.append(other)
        if not any(set(clique) <= set(known) for known in found):
            found.append(tuple(sorted(clique)))
    return found


def _near(base: Problem, rule: Near, at: int, case: Case, caps: Ints) -> Iterator[Row]:
    """Where nobody gives support and no first pod can be there is no carrier; else carriers only with support."""
    options = case.options(at)
    carriers, others = sorted(rule.carriers), rule.supporters - rule.carriers
    giving = tuple(int(shape in others) for shape in range(base.shapes))
    for term, (ids, running) in enumerate(zip(rule.ids, rule.running, strict=True)):
        _close(caps, np.flatnonzero(ids < 0).tolist(), carriers)
        open_ = {option[term] for option in options if option}
        certain = {domain for rule_, term_, domain, there in case.support if there and (rule_, term_) == (at, term)}
        is_all = bool(certain) and len(certain) >= int(base.demand[sorted(others)].sum())  # one there for each pod
        for domain, classes in _classes_by_domain(ids).items():
            rows = list(classes)
            absent = (at, term, domain, False) in case.support or (is_all and domain not in certain)
            if absent:
                _close(caps, rows, sorted(others))
            if running[domain]:
                continue
            if (at, term, domain, True) in case.support:
                yield Row(classes, tuple(-each for each in giving), -1)
            elif domain in open_:
                continue
            elif absent or not others or not base.caps[np.ix_(rows, sorted(others))].any():
                _close(caps, rows, carriers)
            else:
                yield from _with_support(base, classes, rows, carriers, giving)


def _close(caps: Ints, classes: list[int], shapes: list[int]) -> None:
    """No pods of these shapes on these classes."""
    caps[np.ix_(classes, shapes)] = 0


def _with_support(
    base: Problem, classes: tuple[int, ...], rows: list[int], carriers: list[int], giving: Counts
) -> Iterator[Row]:
    for carrier in carriers:
        most = min(int(base.demand[carrier]), int((base.caps[rows, carrier] * base.nodes[rows]).sum()))
        if most:
            own = tuple(int(shape == carrier) for shape in range(base.shapes))
            yield Row(classes, tuple(a - most * b for a, b in zip(own, giving, strict=True)), 0)


def _even(base: Problem, rule: Even, span: tuple[int, int], caps: Ints) -> Iterator[Row]:
    """No domain has more than the skew above the most that the emptiest may have; none less than it must have."""
    low, high = span
    carriers = sorted(rule.carriers)
    own = tuple(int(shape in rule.carriers and shape in rule.counted) for shape in range(base.shapes))
    _close(caps, np.flatnonzero(rule.ids < 0).tolist(), carriers)
    for domain, classes in _classes_by_domain(rule.ids).items():
        most = rule.max_skew + high - int(rule.counts[domain])
        if most < rule.adds:
            _close(caps, list(classes), carriers)
        elif any(own) and rule.adds:
            yield Row(classes, own, most)
    if rule.is_least_zero:
        return
    counted = tuple(-int(shape in rule.counted) for shape in range(base.shapes))
    inside = _classes_by_domain(rule.counted_ids)
    for domain in np.flatnonzero(rule.present & (rule.counts < low)).tolist():
        yield Row(inside.get(domain, ()), counted, int(rule.counts[domain]) - low)


def _classes_by_domain(ids: Ints32) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for at, domain in enumerate(ids.tolist()):
        if domain >= 0:
            found.setdefault(domain, []).append(at)
    return {domain: tuple(classes) for domain, classes in sorted(found.items())}


# -- what a placement breaks -------------------------------------------------------------------------------------------


def broken(rules: tuple[Rule, ...], case: Case, totals: np.ndarray) -> Choice | None:
    """The choice that tells apart what a placement, or a relaxation, has at once; None if it breaks no rule.

    `totals` float64[C, G]: what the nodes of each class receive.
    """
    found: list[tuple[float, Choice]] = []
    for at, rule in enumerate(rules):
        if isinstance(rule, Apart):
            found += _both(at, rule, totals)
        elif isinstance(rule, Near):
            found += _unsupported(at, rule, case, totals)
        elif isinstance(rule, Even):
            found += _skewed(at, rule, case, totals)
    return max(found, key=lambda each: each[0])[1] if found else None


_EPSILON = 1e-6


def _both(at: int, rule: Apart, totals: np.ndarray) -> Iterator[tuple[float, Choice]]:
    size = int(rule.ids.max(initial=-1)) + 1
    amounts = _by_domain(rule.ids, totals, size)
    for one, other in sorted(rule.pairs):
        if one == other:
            continue
        less = np.minimum(amounts[:, one], amounts[:, other])
        for domain in np.flatnonzero(less > _EPSILON).tolist():
            first, second = (one, other) if amounts[domain, one] <= amounts[domain, other] else (other, one)
            yield float(less[domain]), Ban(at, domain, first, second)


def _unsupported(at: int, rule: Near, case: Case, totals: np.ndarray) -> Iterator[tuple[float, Choice]]:
    carriers, others = sorted(rule.carriers), sorted(rule.supporters - rule.carriers)
    options = case.options(at)
    lacking: dict[tuple[int, int], float] = {}
    for term, (ids, running) in enumerate(zip(rule.ids, rule.running, strict=True)):
        needing = _by_domain(ids, totals[:, carriers], len(running)).sum(axis=1)
        giving = _by_domain(ids, totals[:, others], len(running)).sum(axis=1)
        for domain in np.flatnonzero((needing > _EPSILON) & ~running & (giving < 1 - _EPSILON)).tolist():
            lacking[term, domain] = float(needing[domain] * (1 - giving[domain]))
    if not lacking:
        return
    if len(options) > 1:
        option = max(
            options,
            key=lambda each: (sum(lacking.get((term, domain), 0.0) for term, domain in enumerate(each)), each),
        )
        if any(lacking.get((term, domain)) for term, domain in enumerate(option)):
            yield 1.0 + max(lacking.values()), Seed(at, option)
            return
    only = next(iter(options)) if len(options) == 1 else ()
    for (term, domain), amount in sorted(lacking.items()):
        seeded = bool(only) and only[term] == domain
        if not seeded and not any((at, term, domain, there) in case.support for there in (True, False)):
            yield amount, Support(at, term, domain)


def _skewed(at: int, rule: Even, case: Case, totals: np.ndarray) -> Iterator[tuple[float, Choice]]:
    low, high = case.span(at)
    if low == high:
        return
    amounts = _by_domain(rule.counted_ids, totals[:, sorted(rule.counted)], len(rule.counts)).sum(axis=1)
    least = float((rule.counts + amounts)[rule.present].min())
    carried = _by_domain(rule.ids, totals[:, sorted(rule.carriers)], len(rule.counts)).sum(axis=1)
    own = _by_domain(rule.ids, totals[:, sorted(rule.carriers & rule.counted)], len(rule.counts)).sum(axis=1)
    beyond = np.where(carried > _EPSILON, rule.counts + np.maximum(own, 0) - rule.max_skew - least, 0.0)
    worst = float(beyond.max(initial=0.0))
    if worst > _EPSILON:
        yield worst, Least(at, max(low, min(high - 1, int(np.floor(least + _EPSILON)))))


def _by_domain(ids: Ints32, amounts: np.ndarray, size: int) -> np.ndarray:
    """float64[D, …]: the amounts of the classes of each domain."""
    found = np.zeros((size, amounts.shape[1]))
    inside = ids >= 0
    np.add.at(found, ids[inside], amounts[inside])
    return found
