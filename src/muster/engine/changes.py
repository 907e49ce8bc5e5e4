"""The smallest changes with which a group that does not fit would fit: each is tried by `decide` before it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from muster.api.codec import Object
from muster.api.quantity import format_units
from muster.engine.arrays import Ints
from muster.engine.decide import decide, verdict
from muster.engine.model import Diagnosis, GroupRequest, Member, Placed
from muster.engine.nodes import NodeRecord
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.tolerations import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration, untolerated
from muster.engine.topology import Candidate, candidates, domain_text, domains_of
from muster.engine.words import amount_of, insufficient, nodes, pods, shape_text

RunningGroup: TypeAlias = tuple[str, Sequence[str]]
"""A group's key and the keys of its pods."""

HOSTNAME_LABEL = "kubernetes.io/hostname"
LIFECYCLE_PREFIX = "node.kubernetes.io/"
"""Taints with this prefix say what is wrong with a node: tolerating them is no advice, and a new node has none."""

_MOST_NODE_KINDS = 64
_MOST_TAINTS = 16
_MOST_KEYS = 16
_MOST_GROUPS = 256
_MOST_ENDING = 8
_BUDGET = 8


@dataclass(frozen=True, slots=True)
class Question:
    """A group that does not fit. `proved`: it was proved, so that any change that helps by one step is a smallest one.

    `lowers_min_count`: whether a smaller min_count is an answer.
    """

    snapshot: Snapshot
    request: GroupRequest
    profile: Profile
    proved: bool
    diagnosis: Diagnosis
    lowers_min_count: bool = True

    def verdict(self, snapshot: Snapshot | None = None, request: GroupRequest | None = None) -> bool | None:
        """With another snapshot or request: whether it fits, None if that stays undecided."""
        changed = self.snapshot if snapshot is None else snapshot
        return verdict(changed, request or self.request, budget=_BUDGET, profile=self.profile)

    @property
    def blocked(self) -> Shape:
        """The shape of the member that the diagnosis is about."""
        found = next((member for member in self.request.members if member.key == self.diagnosis.unplaced), None)
        return (found or self.request.members[0]).shape

    def with_shape(self, old: Shape, new: Shape) -> GroupRequest:
        """The request with one shape in place of another."""
        members = tuple(Member(each.key, new if each.shape == old else each.shape) for each in self.request.members)
        return replace(self.request, members=members)


def smallest_changes(question: Question, groups: Sequence[RunningGroup]) -> list[Object]:
    """The changes that help, at most one of each kind and resource or taint."""
    request = question.request
    if question.diagnosis.verdict or not request.members:
        return []
    found: list[Object] = []
    if len(request.members) + request.scheduled >= request.min_count:
        found += _added_nodes(question)
        found += _lowered_requests(question)
        found += _tolerated_taints(question)
        found += _ended_groups(question, groups)
    if question.lowers_min_count:
        found += _lowered_min_count(question)
    if request.topology_key is not None:
        found += _changed_topology(question, request.topology_key)
    order = ("addNodes", "lowerRequest", "lowerMinCount", "changeTopology", "tolerate", "endGroups")
    return sorted(found, key=lambda change: order.index(change["kind"]))


def _change(kind: str, text: str, minimal: bool, **fields: object) -> Object:
    return {"kind": kind, "text": text, "verified": True, "minimal": minimal, **fields}


# -- add nodes -------------------------------------------------------------------------------------------------------


def _added_nodes(question: Question) -> list[Object]:
    """How many nodes like an existing one are needed; the kind of node that takes most pods of the blocked shape."""
    domain = _most_promising(question)
    like, takes = _best_kind(question, domain)
    if like is None:
        return []

    def enough(number: int) -> bool | None:
        return question.verdict(snapshot=question.snapshot.with_nodes(_with_new(question.snapshot, like, number)))

    room = int(question.profile.count(question.blocked, question.snapshot)[_rows(question, domain)].sum())
    guess = max(1, -(-(question.request.min_count - question.request.scheduled - room) // takes))
    number = _smallest(enough, guess, max(guess, len(question.request.members)))
    if number is None:
        return []
    minimal = question.proved if number == 1 else enough(number - 1) is False
    offer = ", ".join(
        amount_of(name, units) for name, units in like.allocatable if name in insufficient(question.diagnosis.reasons)
    )
    text = f"add {nodes(number)} like {like.name}" + (f" (with {offer})" if offer else "")
    if domain is None or question.request.topology_key is None:
        return [_change("addNodes", text, minimal, nodes=number, like=like.name, domain=None)]
    text = f"{text} to {domain_text(question.request.topology_key, domain.value)}"
    return [_change("addNodes", text, minimal, nodes=number, like=like.name, domain=domain.value)]


def _most_promising(question: Question) -> Candidate | None:
    """The topology domain that comes closest to holding the group; None if none is asked for, or there is none."""
    key = question.request.topology_key
    ranked = candidates(question.profile, question.snapshot, question.request, key) if key is not None else []
    return ranked[0] if ranked else None


def _rows(question: Question, domain: Candidate | None) -> slice | Ints:
    """The rows of the nodes of a domain, else all."""
    key = question.request.topology_key
    if domain is None or key is None:
        return slice(None)
    column = question.snapshot.table.column(key)
    return column.rows_of(column.values[domain.value])


def _best_kind(question: Question, domain: Candidate | None) -> tuple[NodeRecord | None, int]:
    """The existing node (of the domain) of whose kind a new one takes most pods of the blocked shape, and how many."""
    kinds: dict[object, NodeRecord] = {}
    records, rows = question.snapshot.table.records, np.arange(len(question.snapshot))[_rows(question, domain)]
    for record in (records[row] for row in rows.tolist()):
        if len(kinds) < _MOST_NODE_KINDS:
            kinds.setdefault(_kind(record), record)
    fresh = [_fresh(question.snapshot, record, 1) for record in kinds.values()]
    extended = question.snapshot.with_nodes([*question.snapshot.table.records, *fresh])
    counts = question.profile.count(question.blocked, extended)
    takes = [int(counts[extended.table.index[record.name]]) for record in fresh]
    if not takes or max(takes) == 0:
        return None, 0
    return list(kinds.values())[takes.index(max(takes))], max(takes)


def _kind(record: NodeRecord) -> object:
    labels = tuple(sorted((key, value) for key, value in record.labels.items() if key != HOSTNAME_LABEL))
    return record.allocatable, labels, record.taints, record.images


def _with_new(snapshot: Snapshot, like: NodeRecord, number: int) -> list[NodeRecord]:
    return [*snapshot.table.records, *(_fresh(snapshot, like, serial) for serial in range(1, number + 1))]


def _fresh(snapshot: Snapshot, like: NodeRecord, serial: int) -> NodeRecord:
    """A new node like another: a name and hostname of its own, not cordoned, without taints of the node lifecycle."""
    name = f"{like.name}+{serial}"
    while name in snapshot.table.index:
        name += "+"
    labels = {**like.labels, HOSTNAME_LABEL: name} if HOSTNAME_LABEL in like.labels else like.labels
    taints = tuple(taint for taint in like.taints if not taint.key.startswith(LIFECYCLE_PREFIX))
    return replace(like, name=name, labels=labels, taints=taints, unschedulable=False)


def _smallest(enough: Callable[[int], bool | None], guess: int, most: int) -> int | None:
    """The smallest number in 1..most that is enough: the guess if it is right, else doubling and bisection."""
    low, high = 0, guess
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    if low == 0 and high > 1 and not enough(high - 1):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


# -- ask for less ----------------------------------------------------------------------------------------------------


def _lowered_requests(question: Question) -> list[Object]:
    found = []
    for resource in insufficient(question.diagnosis.reasons):
        found += _lowered_request(question, resource)
    return found


def _lowered_request(question: Question, resource: str) -> list[Object]:
    """The largest smaller request of one resource with which the group fits, in steps of a sensible size."""
    shape, step = question.blocked, _step(resource)
    asked = shape.request(resource)

    def fits(steps: int) -> bool | None:
        lowered = shape.with_request(resource, steps * step)
        return question.verdict(request=question.with_shape(shape, lowered))

    low, high = 0, -(-asked // step)
    if high <= 1 or not fits(1):
        return []
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    minimal = fits(high) is False if high * step < asked else question.proved
    several = sum(member.shape == shape for member in question.request.members) > 1
    text = f"ask for {amount_of(resource, low * step)} instead of {format_units(resource, asked)}"
    fields = {"shape": shape_text(shape), "resource": resource}
    amounts = {"from": format_units(resource, asked), "to": format_units(resource, low * step)}
    return [_change("lowerRequest", text + (" in each pod" if several else ""), minimal, **fields, **amounts)]


def _step(resource: str) -> int:
    """Memory-like resources change by Mi, cpu by millicores, others by one."""
    binary = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    return 2**20 if binary else 1


# -- need fewer, tolerate more, wait ---------------------------------------------------------------------------------


def _lowered_min_count(question: Question) -> list[Object]:
    """The largest smaller min_count with which the group would run now."""
    request = question.request
    fewest = replace(request, min_count=request.scheduled + 1)
    decision = decide(question.snapshot, fewest, budget=_BUDGET, profile=question.profile)
    if not isinstance(decision, Placed):
        return []
    to = request.scheduled + len(decision.placements)
    if to >= request.min_count:
        return []
    known = request.scheduled + len(request.members)
    next_smaller = to + 1 <= known and to + 1 < request.min_count
    bigger = question.verdict(request=replace(request, min_count=to + 1)) if next_smaller else False
    minimal = bigger is False and question.proved
    return [_change("lowerMinCount", f"set minCount to {to}, so that {pods(to)} are enough", minimal, to=to)]


def _changed_topology(question: Question, key: str) -> list[Object]:
    """Another key whose domains are larger, the one with the most domains first; else no constraint at all."""
    if question.request.topology_domain is None:
        for other in _other_keys(question.snapshot, key):
            if question.verdict(request=replace(question.request, topology_key=other)):
                text = f"ask for one domain of {other} instead of {key}"
                return [_change("changeTopology", text, question.proved, key=key, to=other)]
    if question.verdict(request=replace(question.request, topology_key=None, topology_domain=None)):
        return [_change("changeTopology", f"drop the topology constraint {key}", False, key=key, to=None)]
    return []


def _other_keys(snapshot: Snapshot, key: str) -> list[str]:
    """Labels that name a topology, with fewer domains than nodes, those with the most domains first."""
    table = snapshot.table
    known = {name for record in table.records for name in record.labels if "topology" in name and name != key}
    domains = {name: len(domains_of(table, name).values) for name in sorted(known)}
    useful = [name for name, number in domains.items() if 0 < number < len(table)]
    return sorted(useful, key=lambda name: (-domains[name], name))[:_MOST_KEYS]


def _tolerated_taints(question: Question) -> list[Object]:
    """Single taints whose toleration would be enough."""
    if "TaintToleration" not in question.diagnosis.plugins:
        return []
    shape, found = question.blocked, []
    for taint in _keeping_out(question.snapshot, shape):
        tolerant = shape.with_toleration(Toleration(taint.key, "Equal", taint.value, taint.effect))
        if question.verdict(request=question.with_shape(shape, tolerant)):
            text = f"tolerate the taint {taint}"
            found.append(_change("tolerate", text, question.proved, taint=str(taint), shape=shape_text(shape)))
    return found


def _keeping_out(snapshot: Snapshot, shape: Shape) -> list[Taint]:
    hard = {
        taint
        for taints in snapshot.table.taint_sets
        for taint in untolerated(taints, shape.tolerations)
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not taint.key.startswith(LIFECYCLE_PREFIX)
    }
    return sorted(hard)[:_MOST_TAINTS]


def _ended_groups(question: Question, groups: Sequence[RunningGroup]) -> list[Object]:
    """Running groups whose end would make room: one if one is enough, else a set from which none can be left out."""
    candidates = [group for group in groups if group[0] != question.request.key][:_MOST_GROUPS]
    singles = [(group, _without(question, [group])) for group in candidates]
    alone = [group for group, fits in singles if fits]
    if alone:
        chosen, minimal = [min(alone, key=lambda group: len(group[1]))], question.proved
    else:
        chosen = _irreducible(question, candidates)
        minimal = len(chosen) == 2 and all(fits is False for _, fits in singles)
    if not 0 < len(chosen) <= _MOST_ENDING:
        return []
    names = [key for key, _ in chosen]
    text = f"wait until {' and '.join(names)} {'ends' if len(names) == 1 else 'end'}"
    return [_change("endGroups", text, minimal, groups=names)]


def _irreducible(question: Question, candidates: Sequence[RunningGroup]) -> list[RunningGroup]:
    """A set of groups whose end is enough, without any that is not needed for that; large ones are spared first.

    Empty if more than _MOST_ENDING groups would have to end: that is no advice.
    """
    by_size = sorted(candidates, key=lambda group: -len(group[1]))
    few = _enough_together(question, by_size)
    for group in list(few):
        fewer = [each for each in few if each is not group]
        if _without(question, fewer):
            few = fewer
    return few


def _enough_together(question: Question, by_size: Sequence[RunningGroup]) -> list[RunningGroup]:
    """The first of the groups, largest first, whose end is enough; empty if _MOST_ENDING of them are not."""
    for number in range(2, min(len(by_size), _MOST_ENDING) + 1):
        if _without(question, by_size[:number]):
            return list(by_size[:number])
    return []


def _without(question: Question, groups: Iterable[RunningGroup]) -> bool | None:
    with question.snapshot.trial() as trial:
        trial.remove(key for _, keys in groups for key in keys)
        return question.verdict(snapshot=trial)
