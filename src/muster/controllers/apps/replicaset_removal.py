"""Which pods of a ReplicaSet go first when it has too many.

Source of the rules: kube-controller-manager `pkg/controller/controller_utils.go` (ActivePodsWithRanks): unbound, then
pending, not ready, cheap, crowded, short ready, often restarted, young pods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.clock import parse_rfc3339
from muster.controllers.pod_availability import is_active, is_ready, phase_of, ready_since_s

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def pods_to_remove(
    active: Sequence[Object],
    related: Sequence[Object],
    count: int,
    tie: Callable[[Object], int],
    now: float,
) -> list[Object]:
    """The `count` pods to delete. `related`: pods of all ReplicaSets of the same owner, which make a node crowded.

    Ages count by their logarithm only; `tie` orders pods that are then equal (lower goes first).
    """
    if count >= len(active):
        return list(active)
    crowd = Counter(pod["spec"].get("nodeName") or "" for pod in related if is_active(pod))
    ranked = sorted(active, key=lambda pod: (*_rank(pod, crowd, now), tie(pod), name_of(pod)))
    return ranked[: max(0, count)]


def _rank(pod: Object, crowd: Counter[str], now: float) -> tuple[float, ...]:
    node = pod["spec"].get("nodeName") or ""
    ready_s = ready_since_s(pod)
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return (
        float(bool(node)),
        float(_PHASES.get(phase_of(pod), 0)),
        float(is_ready(pod)),
        float(deletion_cost(pod)),
        -float(crowd[node]),
        -1.0 if ready_s is None else float(_age_rank(now - ready_s)),
        -float(max((status.get("restartCount") or 0 for status in statuses), default=0)),
        float(_age_rank(now - parse_rfc3339(pod["metadata"]["creationTimestamp"]))),
    )


def _age_rank(age_s: float) -> int:
    """Ages that count as equal have the same rank; older ones a higher one."""
    nanoseconds = age_s * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def deletion_cost(pod: Object) -> int:
    """The cost that a person gave to the deletion of a pod; 0 if there is none or it is no number."""
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "")
    digits = text.removeprefix("-")
    is_plain = digits.isdecimal() and (digits == "0" or not digits.startswith("0"))
    return int(text) if is_plain and abs(int(text)) < 2**31 else 0
