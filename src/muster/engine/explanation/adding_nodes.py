"""What-if: more nodes like one that is there, in one topology domain if need be, of those there are or a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from muster.api.codec import Object
from muster.engine.arrays import Ints
from muster.engine.explanation.question import Question, change, smallest
from muster.engine.mixed import demands_of
from muster.engine.nodes import NodeRecord
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import Candidate, candidates, domain_text
from muster.engine.words import amount_of, insufficient, nodes

HOSTNAME_LABEL = "kubernetes.io/hostname"
LIFECYCLE_PREFIX = "node.kubernetes.io/"
"""Taints with this prefix say what is wrong with a node: tolerating them is no advice, and a new node has none."""

_MOST_NODE_KINDS = 64
_MOST_DOMAINS = 3
_MOST_KINDS_TRIED = 3


def added_nodes(question: Question) -> list[Object]:
    """How many nodes are needed: the kind of node, and the domain, with which they are fewest."""
    best: Object | None = None
    for domain in _promising(question):
        for like, takes in _kinds(question, domain):
            found = _added(question, domain, like, takes)
            if found is not None and (best is None or found["nodes"] < best["nodes"]):
                best = found
    for keys in _inwards(question.target.domain_keys):
        for like, takes in _kinds(question, None):
            found = _added(question, None, like, takes, {key: _new_value(question, like, key) for key in keys})
            if found is not None and (best is None or found["nodes"] < best["nodes"]):
                best = found
    return [] if best is None else [best]


def _inwards(keys: Sequence[str]) -> list[Sequence[str]]:
    """The labels that a new domain of each of them has anew, its own and those inside of it; the fewest first."""
    return [keys[at:] for at in reversed(range(len(keys)))]


def _new_value(question: Question, like: NodeRecord, key: str) -> str:
    """The name of a domain that is not there yet, after the one of a node."""
    known = {record.labels.get(key) for record in question.snapshot.table.records}
    name = f"{like.labels.get(key, 'new')}+1"
    while name in known:
        name += "+"
    return name


def _added(
    question: Question,
    domain: Candidate | None,
    like: NodeRecord,
    takes: int,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Object | None:
    """`labels`: those of a new domain, in which all the new nodes are."""
    asked: dict[int, bool | None] = {}

    def enough(number: int) -> bool | None:
        if number not in asked:
            records = _with_new(question.snapshot, like, number, labels)
            asked[number] = question.fits(snapshot=question.snapshot.with_nodes(records))
        return asked[number]

    guess = _guess(question, np.zeros(0, dtype=np.int64) if labels else _rows(question, domain), like, takes)
    number = smallest(enough, guess, max(guess, len(question.target.members)))
    if number is None:
        return None
    minimal = question.proved if number == 1 else enough(number - 1) is False
    offer = ", ".join(
        amount_of(name, units) for name, units in like.allocatable if name in insufficient(question.diagnosis.reasons)
    )
    text = f"add {nodes(number)} like {like.name}" + (f" (with {offer})" if offer else "")
    key = question.target.topology_key
    value = None if domain is None or key is None else domain.value
    if key is not None and value is not None:
        text = f"{text} to {domain_text(key, value)}"
    if labels:
        outermost = next(iter(labels))
        return change(
            "addNodes", f"{text} in a new domain of {outermost}", minimal, nodes=number, like=like.name, new=labels
        )
    return change("addNodes", text, minimal, nodes=number, like=like.name, domain=value)


def _guess(question: Question, rows: slice | Ints, like: NodeRecord, takes: int) -> int:
    """A number that is often right: from the room for the blocked shape, and from what is free of each resource."""
    demands = demands_of(question.target.members)
    if len(demands) == 1:
        room = int(question.profile.count(question.blocked, question.snapshot)[rows].sum())
        return max(1, -(-(question.target.needed - room) // takes))
    if question.target.needed < len(question.target.members):
        return 1
    wanted: dict[str, int] = {}
    for demand in demands:
        for name, units in demand.shape.usage.requests:
            wanted[name] = wanted.get(name, 0) + units * len(demand.places)
    free = np.maximum(question.snapshot.free()[rows], 0).sum(axis=0)
    columns, each = question.snapshot.axis.columns, dict(like.allocatable)
    missing = [
        -(-(units - (int(free[columns[name]]) if name in columns else 0)) // each[name])
        for name, units in wanted.items()
        if each.get(name)
    ]
    return max(1, *missing) if missing else 1


def _promising(question: Question) -> list[Candidate | None]:
    """The topology domains that come closest to holding the group; [None] if none is asked for, or there is none."""
    target = question.target
    if target.topology_key is None:
        return [None]
    ranked = candidates(question.profile, question.snapshot, target.request, target.topology_key)
    return list(ranked[:_MOST_DOMAINS]) or [None]


def _rows(question: Question, domain: Candidate | None) -> slice | Ints:
    """The rows of the nodes of a domain, else all."""
    key = question.target.topology_key
    if domain is None or key is None:
        return slice(None)
    column = question.snapshot.table.column(key)
    return column.rows_of(column.values[domain.value])


def _kinds(question: Question, domain: Candidate | None) -> list[tuple[NodeRecord, int]]:
    """Existing nodes (of the domain) of whose kind a new one takes most, and how many of the blocked shape."""
    kinds: dict[object, NodeRecord] = {}
    records, rows = question.snapshot.table.records, np.arange(len(question.snapshot))[_rows(question, domain)]
    for record in (records[row] for row in rows.tolist()):
        if len(kinds) < _MOST_NODE_KINDS:
            kinds.setdefault(_kind(record), record)
    fresh = [_fresh(question.snapshot, record, 1) for record in kinds.values()]
    extended = question.snapshot.with_nodes([*records, *fresh])
    places = [extended.table.index[record.name] for record in fresh]
    takes = {shape: question.profile.count(shape, extended)[places].tolist() for shape in question.shapes}
    if len(takes) > 1:  # with rules between the pods, room for one says little about the others
        ranked = sorted(range(len(fresh)), key=_most_together(question, takes), reverse=True)[:_MOST_KINDS_TRIED]
    else:
        ranked = sorted(range(len(fresh)), key=lambda at: -int(takes[question.blocked][at]))[:1]
    found = list(kinds.values())
    return [
        (found[at], int(takes[question.blocked][at]) or 1) for at in ranked if any(each[at] for each in takes.values())
    ]


def _most_together(question: Question, takes: dict[Shape, list[int]]) -> Callable[[int], tuple[int, int]]:
    """How many shapes a kind of node takes, and how many of the blocked one."""
    return lambda at: (sum(each[at] > 0 for each in takes.values()), int(takes[question.blocked][at]))


def _kind(record: NodeRecord) -> object:
    labels = tuple(sorted((key, value) for key, value in record.labels.items() if key != HOSTNAME_LABEL))
    return record.allocatable, labels, record.taints, record.images


def _with_new(snapshot: Snapshot, like: NodeRecord, number: int, labels: Mapping[str, str]) -> list[NodeRecord]:
    return [*snapshot.table.records, *(_fresh(snapshot, like, serial, labels) for serial in range(1, number + 1))]


def _fresh(
    snapshot: Snapshot, like: NodeRecord, serial: int, more: Mapping[str, str] = MappingProxyType({})
) -> NodeRecord:
    """A new node like another: a name and hostname of its own, not cordoned, without taints of the node lifecycle."""
    name = f"{like.name}+{serial}"
    while name in snapshot.table.index:
        name += "+"
    labels = {**like.labels, **more}
    labels |= {HOSTNAME_LABEL: name} if HOSTNAME_LABEL in like.labels else {}
    taints = tuple(taint for taint in like.taints if not taint.key.startswith(LIFECYCLE_PREFIX))
    return replace(like, name=name, labels=labels, taints=taints, unschedulable=False)
