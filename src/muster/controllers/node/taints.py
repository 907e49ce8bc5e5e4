"""Taints and tolerations as the node controllers need them.

Source of the rules: `k8s.io/api/core/v1` Toleration.ToleratesTaint, without the comparison operators (gate off).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.api.codec import Object, Objects
from muster.clock import rfc3339

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

TaintId = tuple[str, str]
"""Key and effect: what makes two taints the same."""


def taints_of(node: Object) -> Objects:
    """`spec.taints`, perhaps empty."""
    taints: Objects = (node.get("spec") or {}).get("taints") or []
    return taints


def taint_ids(node: Object) -> set[TaintId]:
    """Key and effect of each taint of a node."""
    return {(taint.get("key", ""), taint.get("effect", "")) for taint in taints_of(node)}


def no_execute_taints(node: Object | None) -> Objects:
    """The taints of a node that evict pods."""
    return [taint for taint in taints_of(node) if taint.get("effect") == NO_EXECUTE] if node else []


def changed_taints(node: Object, add: Sequence[TaintId], remove: Iterable[TaintId], now: float) -> Objects | None:
    """The node's taints without those to remove and with those to add (at the end, with the time); None: no change."""
    gone = set(remove)
    present = taint_ids(node)
    kept = [taint for taint in taints_of(node) if (taint.get("key"), taint.get("effect")) not in gone]
    missing = [taint for taint in add if taint not in present]
    if len(kept) == len(taints_of(node)) and not missing:
        return None
    return kept + [{"key": key, "effect": effect, "timeAdded": rfc3339(now)} for key, effect in missing]


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether one toleration matches one taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def tolerates_all(tolerations: Objects, taints: Objects) -> bool:
    """Whether each of the taints is matched by a toleration, whatever its time."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def toleration_s(tolerations: Objects, taints: Objects) -> float | None:
    """For how many seconds taints that are all tolerated are so; None: for ever.

    Of several tolerations of one taint the first counts (`GetMatchingTolerations`, `getMinTolerationTime`).
    """
    used = [next(toleration for toleration in tolerations if tolerates(toleration, taint)) for taint in taints]
    limits = [float(toleration["tolerationSeconds"]) for toleration in used if "tolerationSeconds" in toleration]
    return max(0.0, min(limits)) if limits else None
