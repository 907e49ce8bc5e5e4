"""Topology spread constraints as values."""

from __future__ import annotations

from msgspec import Struct

from muster.api.codec import Object
from muster.api.selectors import LabelSelector, Operator, label_selector
from muster.engine.identity import with_label_keys


class SpreadConstraint(Struct, frozen=True):
    """A constraint without its selector, as a profile has it by default. `hard`: DoNotSchedule.

    `min_domains` None: 1. `honor_*`: nodes that the pod cannot use for their labels (taints) do not count.
    """

    topology_key: str
    max_skew: int
    hard: bool
    min_domains: int | None = None
    honor_affinity: bool = True
    honor_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


class SpreadRule(Struct, frozen=True):
    """A constraint of a pod, with the selector of the pods that it counts (in the pod's namespace)."""

    constraint: SpreadConstraint
    selector: LabelSelector


def parse_spread(pod: Object) -> tuple[SpreadRule, ...]:
    """The constraints of a pod, in its order. Raises SelectorError."""
    labels = pod["metadata"].get("labels") or {}
    rules = []
    for entry in pod["spec"].get("topologySpreadConstraints") or ():
        constraint = parse_constraint(entry)
        selector = label_selector(entry.get("labelSelector"))
        rules.append(
            SpreadRule(constraint, with_label_keys(selector, labels, constraint.match_label_keys, Operator.IN))
        )
    return tuple(rules)


def parse_constraint(entry: Object) -> SpreadConstraint:
    """A constraint as it stands in a pod or in a profile; missing fields have upstream's defaults."""
    return SpreadConstraint(
        topology_key=entry.get("topologyKey") or "",
        max_skew=int(entry.get("maxSkew") or 1),
        hard=(entry.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule",
        min_domains=entry.get("minDomains"),
        honor_affinity=entry.get("nodeAffinityPolicy") != "Ignore",
        honor_taints=entry.get("nodeTaintsPolicy") == "Honor",
        match_label_keys=tuple(entry.get("matchLabelKeys") or ()),
    )
