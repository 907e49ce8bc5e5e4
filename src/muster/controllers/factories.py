"""How the controllers are made, by kube-controller-manager's names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from muster.api.resource import REPLICATION_CONTROLLERS
from muster.client.client import Client
from muster.clock import Clock
from muster.controllers.apps.daemonset import DaemonSetController
from muster.controllers.apps.deployment import DeploymentController
from muster.controllers.apps.replicaset import ReplicaSetController
from muster.controllers.apps.statefulset import StatefulSetController
from muster.controllers.batch.cronjob import CronJobController
from muster.controllers.batch.job import JobController
from muster.controllers.batch.job_groups import GroupApi
from muster.controllers.batch.ttl import TtlAfterFinishedController
from muster.controllers.clusterrole_aggregation import ClusterRoleAggregation
from muster.controllers.discovery_runner import DiscoveryRunner
from muster.controllers.disruption import DisruptionController
from muster.controllers.gc import GarbageCollector
from muster.controllers.kinds import Kinds
from muster.controllers.namespace import NamespaceController
from muster.controllers.network.endpoints import EndpointsController
from muster.controllers.network.endpointslice import EndpointSliceController
from muster.controllers.network.endpointslice_mirroring import EndpointSliceMirroring
from muster.controllers.node.device_taint_eviction import DeviceTaintEviction
from muster.controllers.node.node_lifecycle import ALL, NodeLifecycle
from muster.controllers.node.node_ttl import NodeTtlController
from muster.controllers.node.pod_gc import PodGarbageCollector
from muster.controllers.node.taint_eviction import TaintEviction
from muster.controllers.options import ControllerOptions
from muster.controllers.podgroup_protection import PodGroupProtection
from muster.controllers.quota import QuotaController
from muster.controllers.runner import Backoff, Controller, ControllerRunner, Informers, Request
from muster.controllers.storage.ephemeral_volume import EphemeralVolumeController
from muster.controllers.storage.persistent_volume_binder import VolumeBinderController
from muster.controllers.storage.persistent_volume_provisioner import SimulatedProvisioner
from muster.controllers.storage.pv_protection import VolumeProtection
from muster.controllers.storage.pvc_protection import ClaimProtection
from muster.controllers.storage.resource_claims import ResourceClaimController


class Runner(Protocol):
    """A controller ready to work."""

    async def run(self) -> None:
        """Work until cancelled. The informers run elsewhere."""


Factory = Callable[[Client, Clock, random.Random, ControllerOptions, Informers], Runner]


def _plain(make: Callable[[ControllerOptions], Controller], *initial: Request) -> Factory:
    """A controller that watches kinds known beforehand."""

    def factory(
        client: Client, clock: Clock, rng: random.Random, options: ControllerOptions, informers: Informers
    ) -> Runner:
        return ControllerRunner(make(options), informers, client, clock, rng, initial=initial)

    return factory


def _discovering(make: Callable[[Kinds], Controller | None]) -> Factory:
    """A controller that watches what the server serves."""

    def factory(
        client: Client, clock: Clock, rng: random.Random, options: ControllerOptions, informers: Informers
    ) -> Runner:
        return DiscoveryRunner(make, informers, client, clock, rng)

    return factory


def _podgroup_protection(kinds: Kinds) -> PodGroupProtection | None:
    groups = kinds.find("scheduling.k8s.io", "podgroups")
    return None if groups is None else PodGroupProtection(groups)


def _job(client: Client, clock: Clock, rng: random.Random, options: ControllerOptions, informers: Informers) -> Runner:
    def make(kinds: Kinds) -> JobController:
        return JobController(_group_api(kinds, options), options.removal_tie)

    return DiscoveryRunner(make, informers, client, clock, rng, backoff=Backoff(1.0, 60.0))


def _group_api(kinds: Kinds, options: ControllerOptions) -> GroupApi:
    """The groups' API in the version that the server prefers; off where it serves none."""
    workloads, groups = (kinds.find("scheduling.k8s.io", plural) for plural in ("workloads", "podgroups"))
    if options.job_groups == "off" or workloads is None or groups is None:
        return GroupApi("off")
    return GroupApi(options.job_groups, workloads, groups, options.tells_group_failures)


CLUSTER_CONTROLLERS: Mapping[str, Factory] = {
    "clusterrole-aggregation-controller": _plain(lambda options: ClusterRoleAggregation()),
    "cronjob-controller": _plain(lambda options: CronJobController()),
    "daemonset-controller": _plain(lambda options: DaemonSetController(options.removal_tie)),
    "deployment-controller": _plain(lambda options: DeploymentController()),
    "device-taint-eviction-controller": _discovering(
        lambda kinds: DeviceTaintEviction(kinds.find("resource.k8s.io", "devicetaintrules"))
    ),
    "disruption-controller": _plain(lambda options: DisruptionController()),
    "endpoints-controller": _plain(lambda options: EndpointsController()),
    "endpointslice-controller": _plain(lambda options: EndpointSliceController()),
    "endpointslice-mirroring-controller": _plain(lambda options: EndpointSliceMirroring()),
    "ephemeral-volume-controller": _plain(lambda options: EphemeralVolumeController()),
    "garbage-collector-controller": _discovering(GarbageCollector),
    "job-controller": _job,
    "namespace-controller": _discovering(NamespaceController),
    "node-lifecycle-controller": _plain(lambda options: NodeLifecycle(options.node_lifecycle), Request(ALL)),
    "persistentvolume-binder-controller": _plain(lambda options: VolumeBinderController()),
    "persistentvolume-protection-controller": _plain(lambda options: VolumeProtection()),
    "persistentvolumeclaim-protection-controller": _plain(lambda options: ClaimProtection()),
    "pod-garbage-collector-controller": _plain(
        lambda options: PodGarbageCollector(options.terminated_pod_gc_threshold)
    ),
    "podgroup-protection-controller": _discovering(_podgroup_protection),
    "replicaset-controller": _plain(lambda options: ReplicaSetController(options.removal_tie)),
    "replicationcontroller-controller": _plain(
        lambda options: ReplicaSetController(options.removal_tie, REPLICATION_CONTROLLERS)
    ),
    "resourceclaim-controller": _discovering(
        lambda kinds: ResourceClaimController(kinds.find("scheduling.k8s.io", "podgroups"))
    ),
    "resourcequota-controller": _discovering(QuotaController),
    "simulated-volume-provisioner": _plain(lambda options: SimulatedProvisioner()),
    "statefulset-controller": _plain(lambda options: StatefulSetController()),
    "taint-eviction-controller": _plain(lambda options: TaintEviction()),
    "ttl-controller": _plain(lambda options: NodeTtlController()),
    "ttl-after-finished-controller": _plain(lambda options: TtlAfterFinishedController()),
}
