"""How many pods a budget expects, wants healthy and has healthy.

Source of the rules: kube-controller-manager `pkg/controller/disruption/disruption.go` (getExpectedPodCount and others).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.meta import controller_of, is_deleting, name_of
from muster.clock import parse_rfc3339
from muster.controllers.percentages import scaled
from muster.controllers.pod_availability import is_ready

DELETION_TIMEOUT_S = 120.0
"""So long an evicted pod that is still there counts as about to go."""


class CountFailed(Exception):
    """The number of expected pods is unknown; the text says why. Not retryable by itself."""


class Scale(Struct, frozen=True):
    """The controller that decides how many of some pods there are, and how many that is."""

    uid: str
    replicas: int


FindScale: TypeAlias = Callable[[Object], Scale]
"""The scale of a pod's controller; raises CountFailed."""


class Expected(Struct, frozen=True):
    """Pods that should be there, those of them that must be healthy, and pods that nobody controls."""

    pods: int
    healthy: int
    unmanaged: tuple[str, ...] = ()


def expected(budget: Object, pods: Sequence[Object], find: FindScale) -> Expected:
    """What a budget asks for. Raises CountFailed."""
    spec = budget["spec"]
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        total, unmanaged = _expected_scale(pods, find)
        return Expected(total, max(0, total - scaled(most, total, up=True)), unmanaged)
    if least is None:
        return Expected(0, 0)
    if _is_number(least):
        return Expected(len(pods), int(least))
    total, unmanaged = _expected_scale(pods, find)
    return Expected(total, scaled(least, total, up=True), unmanaged)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int)


def _expected_scale(pods: Iterable[Object], find: FindScale) -> tuple[int, tuple[str, ...]]:
    """The sizes of all controllers of the pods, and the names of the pods without one."""
    sizes: dict[str, int] = {}
    unmanaged: list[str] = []
    for pod in pods:
        if controller_of(pod) is None:
            unmanaged.append(name_of(pod))
            continue
        scale = find(pod)
        sizes[scale.uid] = scale.replicas
    return sum(sizes.values()), tuple(unmanaged)


def still_disrupted(budget: Object, pods: Iterable[Object], now: float) -> tuple[dict[str, str], list[Object]]:
    """The evicted pods that have not begun to go, by name with the time, and those that should have gone by now."""
    noted: Mapping[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    kept: dict[str, str] = {}
    late: list[Object] = []
    for pod in pods if noted else ():
        since = noted.get(name_of(pod))
        if since is None or is_deleting(pod):
            continue
        if parse_rfc3339(since) + DELETION_TIMEOUT_S < now:
            late.append(pod)
        else:
            kept[name_of(pod)] = since
    return kept, late


def healthy(pods: Iterable[Object], disrupted: Mapping[str, str]) -> int:
    """The pods that are ready and stay."""
    return sum(not is_deleting(pod) and name_of(pod) not in disrupted and is_ready(pod) for pod in pods)


def selector_text(selector: Object | None) -> str:
    """A label selector as upstream's messages show it."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{entry.get('key')},Operator:{entry.get('operator')},"
        f"Values:[{' '.join(entry.get('values') or ())}],}},"
        for entry in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
