"""What-if: a taint tolerated, or one rule of the pods dropped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.selectors import LabelSelector, NodeSelectorTerm, Operator, Requirement
from muster.engine.explanation.adding_nodes import LIFECYCLE_PREFIX
from muster.engine.explanation.question import Question, Reshape, change
from muster.engine.identity import PodTerm, PodTerms
from muster.engine.shape import NodeRules, Shape
from muster.engine.snapshot import Snapshot
from muster.engine.tolerations import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration, untolerated
from muster.engine.words import shape_text

_MOST_TAINTS = 16
_MOST_RULES = 16


def tolerated_taints(question: Question) -> list[Object]:
    """Single taints whose toleration would be enough: by the blocked shape, else by all pods."""
    found = []
    for taint in _keeping_out(question.snapshot, question.shapes):
        toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
        alone = question.with_shape(question.blocked, question.blocked.with_toleration(toleration))
        text = f"tolerate the taint {taint}"
        if question.fits(target=alone):
            whose = shape_text(question.blocked)
            text += f" in the pods of {whose}" if len(question.shapes) > 1 else ""
        elif len(question.shapes) > 1 and question.fits(target=question.target.reshaped(_tolerating(toleration))):
            whose = "all pods"
            text += " in all pods"
        else:
            continue
        found.append(change("tolerate", text, question.proved, taint=str(taint), shape=whose))
    return found


def _tolerating(toleration: Toleration) -> Reshape:
    return lambda shape: shape.with_toleration(toleration)


def _keeping_out(snapshot: Snapshot, shapes: list[Shape]) -> list[Taint]:
    hard = {
        taint
        for shape in shapes
        for taints in snapshot.table.taint_sets
        for taint in untolerated(taints, shape.tolerations)
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not taint.key.startswith(LIFECYCLE_PREFIX)
    }
    return sorted(hard)[:_MOST_TAINTS]


def dropped_rules(question: Question) -> list[Object]:
    """Single rules of the pods without which the group fits: node selectors and affinity, rules between pods, spread.

    Pods that have the same rule lose it together.
    """
    rules: dict[Rule, Shape] = {}
    for shape in question.shapes:
        for rule in _rules_of(shape):
            rules.setdefault(rule, shape)
    found = []
    for rule, shape in list(rules.items())[:_MOST_RULES]:
        if question.fits(target=question.target.reshaped(rule.dropped)):
            text = f"drop {rule.text}"
            found.append(change("dropRule", text, question.proved, rule=rule.text, shape=shape_text(shape)))
    return found


class Rule(Struct, frozen=True):
    """A hard rule of a pod: where it is (`part`) and what it says (`value`)."""

    part: str
    value: object
    text: str

    def dropped(self, shape: Shape) -> Shape:
        """The shape without it; the same shape if it does not have it."""
        nodes = shape.nodes
        if self.part == "node":
            return dataclasses.replace(shape, node_name="") if shape.node_name == self.value else shape
        if self.part == "selector":
            left = tuple(each for each in nodes.selector if each != self.value)
            return dataclasses.replace(shape, nodes=replace(nodes, selector=left))
        if self.part == "required":
            drops = nodes.required == self.value
            return dataclasses.replace(shape, nodes=replace(nodes, required=None)) if drops else shape
        if self.part == "expression":
            return dataclasses.replace(shape, nodes=_without_expression(nodes, self.value))
        if self.part == "spread":
            return dataclasses.replace(shape, spread=tuple(each for each in shape.spread if each != self.value))
        return self._dropped_term(shape)

    def _dropped_term(self, shape: Shape) -> Shape:
        identity = shape.usage.identity
        if identity is None:
            return shape
        terms: PodTerms = identity.terms
        terms = replace(
            terms,
            affinity=_left(terms.affinity, self.value if self.part == "affinity" else None),
            anti_affinity=_left(terms.anti_affinity, self.value if self.part == "anti-affinity" else None),
        )
        usage = replace(shape.usage, identity=dataclasses.replace(identity, terms=terms))
        return dataclasses.replace(shape, usage=usage)


def _left(terms: tuple[PodTerm, ...], dropped: object) -> tuple[PodTerm, ...]:
    return tuple(each for each in terms if each != dropped)


def _without_expression(nodes: NodeRules, dropped: object) -> NodeRules:
    if nodes.required is None or len(nodes.required) != 1:
        return nodes
    (term,) = nodes.required
    labels = tuple(each for each in term.labels if each != dropped)
    fields = tuple(each for each in term.fields if each != dropped)
    left = (NodeSelectorTerm(labels, fields),) if labels or fields else None
    return replace(nodes, required=left)


def _rules_of(shape: Shape) -> Iterator[Rule]:
    if shape.node_name:
        yield Rule("node", shape.node_name, f"nodeName {shape.node_name}")
    for each in shape.nodes.selector:
        yield Rule("selector", each, f"the node selector {requirement_text(each)}")
    required = shape.nodes.required
    if required is not None and len(required) == 1 and len(required[0].labels) + len(required[0].fields) > 1:
        for each in (*required[0].labels, *required[0].fields):
            yield Rule("expression", each, f"the node affinity {requirement_text(each)}")
    if required is not None:
        said = " or ".join(_term_text(term) for term in required) or "that matches nothing"
        yield Rule("required", required, f"the node affinity {said}")
    if shape.usage.identity is not None:
        terms = shape.usage.identity.terms
        for term in terms.affinity:
            yield Rule("affinity", term, f"the affinity to {_pods_text(term)} in one {term.topology_key}")
        for term in terms.anti_affinity:
            yield Rule("anti-affinity", term, f"the anti-affinity to {_pods_text(term)} in one {term.topology_key}")
    for spread in shape.spread:
        if spread.constraint.hard:
            text = f"the spread over {spread.constraint.topology_key} (maxSkew {spread.constraint.max_skew})"
            yield Rule("spread", spread, text)


def requirement_text(each: Requirement) -> str:
    """A condition on a label as `kubectl` writes selectors: `zone in (a, b)`, `!spot`."""
    values = ", ".join(each.values)
    match each.operator:
        case Operator.IN:
            return f"{each.key}={values}" if len(each.values) == 1 else f"{each.key} in ({values})"
        case Operator.NOT_IN:
            return f"{each.key}!={values}" if len(each.values) == 1 else f"{each.key} notin ({values})"
        case Operator.EXISTS:
            return each.key
        case Operator.DOES_NOT_EXIST:
            return f"!{each.key}"
        case Operator.GREATER:
            return f"{each.key}>{values}"
        case _:
            return f"{each.key}<{values}"


def _term_text(term: NodeSelectorTerm) -> str:
    return ",".join(requirement_text(each) for each in (*term.labels, *term.fields)) or "that matches nothing"


def _pods_text(term: PodTerm) -> str:
    selector: LabelSelector = term.selector
    said = ",".join(requirement_text(each) for each in selector.requirements)
    return f"pods with {said}" if said else "pods"
