"""What people can set about controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from muster.api.codec import Object

JobGroups = Literal["off", "1.36", "1.37"]


def _all_equal(pod: Object) -> int:
    return 0


class NodeLifecycleOptions(Struct, frozen=True):
    """When a node counts as lost and how fast its pods are evicted (flags of kube-controller-manager, same defaults).

    `monitor_period_s`: node changes are looked at on multiples of it. `monitor_grace_period_s`: a node is Unknown so
    long after its last sign of life; `startup_grace_period_s`: while it never had a Ready condition.
    `eviction_rate`: nodes a second and zone that get a NoExecute taint; `secondary_eviction_rate`: in a zone of more
    than `large_cluster_size_threshold` nodes of which at least the share `unhealthy_zone_threshold` is not ready (0 in
    smaller ones).
    """

    monitor_period_s: float = 5.0
    monitor_grace_period_s: float = 50.0
    startup_grace_period_s: float = 60.0
    eviction_rate: float = 0.1
    secondary_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55


class ControllerOptions(Struct, frozen=True):
    """Options of all controllers.

    `job_groups`: whether the Job controller makes Workloads and PodGroups: not at all, for Indexed Jobs that run all
    their pods at once (1.36), or as `spec.scheduling` says (1.37). `terminated_pod_gc_threshold`: finished pods
    that may stay (0: any number). `removal_tie`: which of pods that are equal by every rule a Job gives up first when
    it needs fewer (lower goes first). `tells_group_failures`: an event says why a Workload or PodGroup of a Job
    cannot be made, also by the rules of 1.36, which say nothing.
    """

    job_groups: JobGroups = "1.36"
    removal_tie: Callable[[Object], int] = _all_equal
    node_lifecycle: NodeLifecycleOptions = NodeLifecycleOptions()
    terminated_pod_gc_threshold: int = 12500
    tells_group_failures: bool = False
