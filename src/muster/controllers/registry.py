"""The controllers by kube-controller-manager's names, and a service that runs those that are wanted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping

from muster.client.client import Client
from muster.clock import Clock
from muster.controllers.factories import CLUSTER_CONTROLLERS, Factory
from muster.controllers.options import ControllerOptions
from muster.controllers.runner import Informers

CONTROLLERS: Mapping[str, Factory] = {**CLUSTER_CONTROLLERS}
"""Factories by name; `async run()` of what they return needs the informers to run too (see `ControllerService`)."""

KNOWN_NAMES = frozenset(
    {
        "bootstrap-signer-controller",
        "certificatesigningrequest-approving-controller",
        "certificatesigningrequest-cleaner-controller",
        "certificatesigningrequest-signing-controller",
        "cloud-node-lifecycle-controller",
        "clusterrole-aggregation-controller",
        "cronjob-controller",
        "daemonset-controller",
        "deployment-controller",
        "device-taint-eviction-controller",
        "disruption-controller",
        "endpoints-controller",
        "endpointslice-controller",
        "endpointslice-mirroring-controller",
        "ephemeral-volume-controller",
        "garbage-collector-controller",
        "horizontal-pod-autoscaler-controller",
        "job-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "legacy-serviceaccount-token-cleaner-controller",
        "namespace-controller",
        "node-ipam-controller",
        "node-lifecycle-controller",
        "node-route-controller",
        "persistentvolume-attach-detach-controller",
        "persistentvolume-binder-controller",
        "persistentvolume-expander-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "pod-garbage-collector-controller",
        "podcertificaterequest-cleaner-controller",
        "podgroup-protection-controller",
        "replicaset-controller",
        "replicationcontroller-controller",
        "resourceclaim-controller",
        "resourcequota-controller",
        "root-ca-certificate-publisher-controller",
        "selinux-warning-controller",
        "service-cidr-controller",
        "service-lb-controller",
        "serviceaccount-controller",
        "serviceaccount-token-controller",
        "statefulset-controller",
        "storage-version-migrator-controller",
        "storageversion-garbage-collector-controller",
        "taint-eviction-controller",
        "token-cleaner-controller",
        "ttl-after-finished-controller",
        "ttl-controller",
        "validatingadmissionpolicy-status-controller",
        "volumeattributesclass-protection-controller",
    }
)
"""Names of kube-controller-manager's controllers: `--without` accepts also those that we do not have."""


class ControllerService:
    """Runs controllers over shared informers."""

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, options: ControllerOptions, names: Iterable[str]
    ) -> None:
        self._informers = Informers(client, clock)
        self.runners = [CONTROLLERS[name](client, clock, rng, options, self._informers) for name in sorted(names)]

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run())
            for runner in self.runners:
                group.create_task(runner.run())
