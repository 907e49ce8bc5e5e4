"""The smallest changes with which a group that does not fit would fit: each is tried before it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from muster.api.codec import Object
from muster.engine.explanation.adding_nodes import added_nodes
from muster.engine.explanation.asking_less import changed_topology, lowered_quotas, lowered_requests
from muster.engine.explanation.loosening import dropped_rules, tolerated_taints
from muster.engine.explanation.question import Question
from muster.engine.explanation.waiting import RunningGroup, ended_groups


def smallest_changes(question: Question, groups: Sequence[RunningGroup]) -> list[Object]:
    """The changes that help, at most one of each kind and resource, taint or rule; each kind has a share of the effort.

    `groups`: those that run and whose end may be waited for.
    """
    target = question.target
    if question.diagnosis.verdict or not target.members:
        return []
    kinds: list[Callable[[Question], list[Object]]] = []
    if target.is_complete:
        kinds += [added_nodes, lowered_requests]
    if question.lowers_quotas:
        kinds.append(lowered_quotas)
    kinds.append(changed_topology)
    if target.is_complete:
        kinds += [tolerated_taints, dropped_rules, partial(ended_groups, groups=groups)]
    share = question.effort.left // len(kinds)
    return [found for kind in kinds for found in kind(question.within(share))]
