"""The entries of the resource table: every kind that the embedded server knows, version by version."""

from __future__ import annotations

from muster.api.resource import Resource
from muster.api.versions import HUB, from_hub, to_hub
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry import core
from muster.apiserver.registry.jobs import JobStrategy
from muster.apiserver.registry.pods import PodStrategy
from muster.apiserver.registry.priority import PriorityClassStrategy
from muster.apiserver.registry.scheduling import CompositePodGroupStrategy, PodGroupStrategy
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.registry.workloads import FirstWorkloadStrategy, WorkloadStrategy
from muster.apiserver.resources import ALL_VERBS, Conversion, ResourceTable, Served, Subresource

STATUS = "status"
_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")


def _served(
    group: str,
    version: str,
    plural: str,
    kind: str,
    strategy: Strategy,
    *,
    namespaced: bool = True,
    short: str = "",
    categories: str = "",
    subresources: tuple[Subresource, ...] = (),
    status: bool = False,
    storage: str = "",
    conversion: Conversion | None = None,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Served:
    """One entry; `short` and `categories` are lists in one string."""
    if status:
        subresources = (*subresources, Subresource(STATUS, kind))
    return Served(
        Resource(group, version, plural, kind, namespaced),
        kind.lower(),
        strategy,
        storage or plural,
        verbs,
        tuple(short.split()),
        tuple(categories.split()),
        tuple(sorted(subresources, key=lambda sub: sub.name)),
        conversion,
    )


def _core() -> list[Served]:
    stored = Strategy()
    binding = Subresource("binding", "Binding", ("create",))
    eviction = Subresource("eviction", "Eviction", ("create",), "policy", "v1")
    finalize = Subresource("finalize", "Namespace", ("update",))
    namespace_verbs = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
    return [
        _served("", "v1", "configmaps", "ConfigMap", stored, short="cm"),
        _served("", "v1", "endpoints", "Endpoints", stored, short="ep"),
        _served("", "v1", "events", "Event", core.EventStrategy(), short="ev"),
        _served(
            "",
            "v1",
            "namespaces",
            "Namespace",
            core.NamespaceStrategy(),
            namespaced=False,
            short="ns",
            subresources=(finalize,),
            status=True,
            verbs=namespace_verbs,
        ),
        _served("", "v1", "nodes", "Node", core.NodeStrategy(), namespaced=False, short="no", status=True),
        _served(
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            core.ReturnsDeletedStrategy(),
            short="pvc",
            status=True,
        ),
        _served(
            "",
            "v1",
            "persistentvolumes",
            "PersistentVolume",
            core.ReturnsDeletedStrategy(),
            namespaced=False,
            short="pv",
            status=True,
        ),
        _served(
            "",
            "v1",
            "pods",
            "Pod",
            PodStrategy(),
            short="po",
            categories="all",
            subresources=(binding, eviction),
            status=True,
        ),
        _served(
            "",
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            core.ScalableStrategy(),
            short="rc",
            categories="all",
            subresources=(_SCALE,),
            status=True,
        ),
        _served("", "v1", "secrets", "Secret", stored),
        _served("", "v1", "serviceaccounts", "ServiceAccount", core.ReturnsDeletedStrategy(), short="sa"),
        _served("", "v1", "services", "Service", core.ServiceStrategy(), short="svc", categories="all", status=True),
    ]


def _apps() -> list[Served]:
    entries = (
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
    )
    scalable = core.ScalableStrategy()
    return [
        _served(
            "apps", "v1", plural, kind, scalable, short=short, categories="all", subresources=(_SCALE,), status=True
        )
        for plural, kind, short in entries
    ] + [_served("apps", "v1", "daemonsets", "DaemonSet", scalable, short="ds", categories="all", status=True)]


def _others() -> list[Served]:
    stored, with_status = Strategy(), core.StatusStrategy()
    return [
        _served(
            "batch", "v1", "cronjobs", "CronJob", core.ScalableStrategy(), short="cj", categories="all", status=True
        ),
        _served("batch", "v1", "jobs", "Job", JobStrategy(), categories="all", status=True),
        _served("coordination.k8s.io", "v1", "leases", "Lease", core.LeaseStrategy()),
        _served("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", stored),
        _served(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            core.ScalableStrategy(),
            short="pdb",
            status=True,
        ),
        _served("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", stored, namespaced=False),
        _served("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", with_status, status=True),
        _served("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", stored),
        _served("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", stored, namespaced=False),
        _served("storage.k8s.io", "v1", "storageclasses", "StorageClass", stored, namespaced=False, short="sc"),
    ]


_SCHEDULING_VERSIONS = {
    None: ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"),
    "1.35": ("v1alpha1",),
    "1.36": ("v1alpha2",),
    "1.37": ("v1beta1", "v1alpha3"),
}


def _scheduling(options: ServerOptions) -> list[Served]:
    group = "scheduling.k8s.io"
    entries = [
        _served(group, "v1", "priorityclasses", "PriorityClass", PriorityClassStrategy(), namespaced=False, short="pc")
    ]
    for version in _SCHEDULING_VERSIONS[options.emulate]:
        if version == "v1alpha3":
            entries.append(
                _served(
                    group, version, "compositepodgroups", "CompositePodGroup", CompositePodGroupStrategy(), status=True
                )
            )
        if version != "v1alpha1":
            entries.append(
                _served(
                    group,
                    version,
                    "podgroups",
                    "PodGroup",
                    PodGroupStrategy(),
                    status=True,
                    conversion=_conversion(version),
                )
            )
        workload = FirstWorkloadStrategy() if version == "v1alpha1" else WorkloadStrategy()
        entries.append(_served(group, version, "workloads", "Workload", workload, conversion=_conversion(version)))
    return entries


def _conversion(version: str) -> Conversion | None:
    if version == HUB:
        return None
    return Conversion(lambda obj, old: to_hub(obj, version, old), lambda hub: from_hub(hub, version))


def resource_table(options: ServerOptions) -> ResourceTable:
    """The table that a server with these options serves."""
    return ResourceTable((*_core(), *_apps(), *_others(), *_scheduling(options)))
