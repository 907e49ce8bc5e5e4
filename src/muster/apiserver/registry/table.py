"""The entries of the resource table: every kind that the embedded server knows, version by version."""

from __future__ import annotations

from muster.api.resource import Resource
from muster.api.versions import HUB, from_hub, to_hub
from muster.apiserver.custom.strategies import DefinitionStrategy
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry import apps, core, cronjobs, daemonsets, devices, rbac, reviews, statefulsets
from muster.apiserver.registry.autoscaling import AutoscalerStrategy, from_v2, to_v2
from muster.apiserver.registry.budgets import BudgetStrategy
from muster.apiserver.registry.claims import ClaimStrategy
from muster.apiserver.registry.csi import CSIDriverStrategy, CSINodeStrategy
from muster.apiserver.registry.endpoints import EndpointSliceStrategy, EndpointsStrategy
from muster.apiserver.registry.events import EventStrategy, NewEventStrategy, from_core, to_core
from muster.apiserver.registry.jobs import JobStrategy
from muster.apiserver.registry.limits import LimitRangeStrategy
from muster.apiserver.registry.nodes import NodeStrategy
from muster.apiserver.registry.persistent_volumes import VolumeStrategy
from muster.apiserver.registry.pods import PodStrategy
from muster.apiserver.registry.priority import PriorityClassStrategy
from muster.apiserver.registry.quotas import ResourceQuotaStrategy
from muster.apiserver.registry.scheduling import CompositePodGroupStrategy, PodGroupStrategy
from muster.apiserver.registry.services import ServiceStrategy
from muster.apiserver.registry.slices import SliceStrategy
from muster.apiserver.registry.storage import StorageClassStrategy
from muster.apiserver.registry.stored import ROWS
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.registry.usage import NodeUsageStrategy, PodUsageStrategy
from muster.apiserver.registry.workloads import FirstWorkloadStrategy, WorkloadStrategy
from muster.apiserver.resources import ALL_VERBS, Conversion, ResourceTable, Served, Subresource

STATUS = "status"
_ENDPOINTS = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")


_PROCESSES = (
    Subresource("attach", "PodAttachOptions", ("create", "get")),
    Subresource("exec", "PodExecOptions", ("create", "get")),
    Subresource("log", "Pod", ("get",)),
    Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
    Subresource("proxy", "PodProxyOptions", ("create", "delete", "get", "patch", "update")),
)


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
    deprecation: str = "",
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
        deprecation=deprecation,
    )


def _core() -> list[Served]:
    stored = Strategy()
    binding = Subresource("binding", "Binding", ("create",))
    ephemeral = Subresource("ephemeralcontainers", "Pod")
    eviction = Subresource("eviction", "Eviction", ("create",), "policy", "v1")
    finalize = Subresource("finalize", "Namespace", ("update",))
    namespace_verbs = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
    return [
        _served("", "v1", "bindings", "Binding", stored, verbs=("create",)),
        _served("", "v1", "configmaps", "ConfigMap", core.ConfigMapStrategy(), short="cm"),
        _served("", "v1", "endpoints", "Endpoints", EndpointsStrategy(), short="ep", deprecation=_ENDPOINTS),
        _served("", "v1", "events", "Event", EventStrategy(), short="ev"),
        _served("", "v1", "limitranges", "LimitRange", LimitRangeStrategy(), short="limits"),
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
        _served("", "v1", "nodes", "Node", NodeStrategy(), namespaced=False, short="no", status=True),
        _served(
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            ClaimStrategy(),
            short="pvc",
            status=True,
        ),
        _served(
            "",
            "v1",
            "persistentvolumes",
            "PersistentVolume",
            VolumeStrategy(),
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
            subresources=(binding, ephemeral, eviction, Subresource("resize", "Pod"), *_PROCESSES),
            status=True,
        ),
        _served(
            "",
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            apps.ReplicationControllerStrategy(),
            short="rc",
            categories="all",
            subresources=(_SCALE,),
            status=True,
        ),
        _served("", "v1", "resourcequotas", "ResourceQuota", ResourceQuotaStrategy(), short="quota", status=True),
        _served("", "v1", "secrets", "Secret", core.SecretStrategy()),
        _served(
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            core.ReturnsDeletedStrategy(),
            short="sa",
            subresources=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),),
        ),
        _served("", "v1", "services", "Service", ServiceStrategy(), short="svc", categories="all", status=True),
    ]


def _apps() -> list[Served]:
    entries = (
        ("daemonsets", "DaemonSet", "ds", daemonsets.DaemonSetStrategy(), ()),
        ("deployments", "Deployment", "deploy", apps.DeploymentStrategy(), (_SCALE,)),
        ("replicasets", "ReplicaSet", "rs", apps.ReplicaSetStrategy(), (_SCALE,)),
        ("statefulsets", "StatefulSet", "sts", statefulsets.StatefulSetStrategy(), (_SCALE,)),
    )
    revisions = _served("apps", "v1", "controllerrevisions", "ControllerRevision", apps.ControllerRevisionStrategy())
    return [revisions] + [
        _served("apps", "v1", plural, kind, strategy, short=short, categories="all", subresources=subs, status=True)
        for plural, kind, short, strategy, subs in entries
    ]


def _batch() -> list[Served]:
    return [
        _served(
            "batch", "v1", "cronjobs", "CronJob", cronjobs.CronJobStrategy(), short="cj", categories="all", status=True
        ),
        _served("batch", "v1", "jobs", "Job", JobStrategy(), categories="all", status=True),
    ]


def _resource() -> list[Served]:
    group = "resource.k8s.io"
    return [
        _served(group, "v1", "deviceclasses", "DeviceClass", devices.DeviceClassStrategy(), namespaced=False),
        _served(group, "v1", "resourceclaims", "ResourceClaim", devices.ClaimStrategy(), status=True),
        _served(group, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", devices.ClaimTemplateStrategy()),
        _served(group, "v1", "resourceslices", "ResourceSlice", SliceStrategy(), namespaced=False),
    ]


def _since_1_37(options: ServerOptions) -> list[Served]:
    """Kinds of 1.37 and later, without which the scheduler and the controllers of 1.37 do not begin."""
    if options.emulate != "1.37":
        return []
    plain = core.StatusStrategy()
    return [
        _served("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", plain, namespaced=False, status=True),
        _served("certificates.k8s.io", "v1", "podcertificaterequests", "PodCertificateRequest", plain, status=True),
        _served(
            "storagemigration.k8s.io",
            "v1",
            "storageversionmigrations",
            "StorageVersionMigration",
            plain,
            namespaced=False,
            status=True,
        ),
    ]


def _reviews() -> list[Served]:
    authentication, authorization = "authentication.k8s.io", "authorization.k8s.io"
    subject = reviews.SubjectAccessReviewStrategy()
    entries: tuple[tuple[str, str, str, Strategy], ...] = (
        (authentication, "selfsubjectreviews", "SelfSubjectReview", reviews.SelfSubjectReviewStrategy()),
        (authentication, "tokenreviews", "TokenReview", reviews.TokenReviewStrategy()),
        (authorization, "localsubjectaccessreviews", "LocalSubjectAccessReview", reviews.LocalAccessReviewStrategy()),
        (authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview", reviews.AccessReviewStrategy()),
        (authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview", reviews.RulesReviewStrategy()),
        (authorization, "subjectaccessreviews", "SubjectAccessReview", subject),
    )
    return [
        _served(group, "v1", plural, kind, strategy, namespaced=plural.startswith("local"), verbs=("create",))
        for group, plural, kind, strategy in entries
    ]


def _autoscaling() -> list[Served]:
    strategy = AutoscalerStrategy()
    conversions = {"v2": None, "v1": Conversion(to_v2, from_v2)}
    return [
        _served(
            "autoscaling",
            version,
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            strategy,
            short="hpa",
            categories="all",
            status=True,
            conversion=conversion,
        )
        for version, conversion in conversions.items()
    ]


def _others() -> list[Served]:
    budget = BudgetStrategy()
    return [
        _served("coordination.k8s.io", "v1", "leases", "Lease", core.LeaseStrategy()),
        _served("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSliceStrategy()),
        _served(
            "events.k8s.io",
            "v1",
            "events",
            "Event",
            NewEventStrategy(),
            short="ev",
            conversion=Conversion(to_core, from_core),
        ),
        _served("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", budget, short="pdb", status=True),
        _served("storage.k8s.io", "v1", "csidrivers", "CSIDriver", CSIDriverStrategy(), namespaced=False),
        _served("storage.k8s.io", "v1", "csinodes", "CSINode", CSINodeStrategy(), namespaced=False),
        _served(
            "storage.k8s.io",
            "v1",
            "storageclasses",
            "StorageClass",
            StorageClassStrategy(),
            namespaced=False,
            short="sc",
        ),
    ]


def _stored() -> list[Served]:
    plain, with_status = core.ReturnsDeletedStrategy(), core.StatusStrategy()
    definitions = _served(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        DefinitionStrategy(),
        namespaced=False,
        short="crd crds",
        categories="api-extensions",
        status=True,
    )
    return [definitions] + [
        _served(
            group,
            version,
            plural,
            kind,
            with_status if subs else plain,
            namespaced=namespaced,
            short=short,
            subresources=tuple(Subresource(name, kind) for name in subs.split()),
        )
        for group, version, plural, kind, namespaced, short, subs in ROWS
    ]


_SCHEDULING_VERSIONS = {
    None: ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"),
    "1.35": ("v1alpha1",),
    "1.36": ("v1alpha2",),
    "1.37": ("v1beta1", "v1alpha3"),
}


def _metrics(options: ServerOptions) -> list[Served]:
    """What a metrics server adds to a cluster; no release brings it along."""
    if options.emulate is not None:
        return []
    group, version, verbs = "metrics.k8s.io", "v1beta1", ("get", "list")
    nodes = _served(group, version, "nodes", "NodeMetrics", NodeUsageStrategy(), namespaced=False, verbs=verbs)
    return [nodes, _served(group, version, "pods", "PodMetrics", PodUsageStrategy(), verbs=verbs)]


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


def _rbac() -> list[Served]:
    kinds: tuple[tuple[str, str, Strategy, bool], ...] = (
        ("clusterrolebindings", "ClusterRoleBinding", rbac.ClusterRoleBindingStrategy(), False),
        ("clusterroles", "ClusterRole", rbac.ClusterRoleStrategy(), False),
        ("rolebindings", "RoleBinding", rbac.RoleBindingStrategy(), True),
        ("roles", "Role", rbac.RoleStrategy(), True),
    )
    return [
        _served("rbac.authorization.k8s.io", "v1", plural, kind, strategy, namespaced=namespaced)
        for plural, kind, strategy, namespaced in kinds
    ]


def resource_table(options: ServerOptions) -> ResourceTable:
    """The table that a server with these options serves."""
    return ResourceTable(
        (
            *_core(),
            *_apps(),
            *_batch(),
            *_resource(),
            *_since_1_37(options),
            *_others(),
            *_reviews(),
            *_scheduling(options),
            *_rbac(),
            *_stored(),
            *_autoscaling(),
            *_metrics(options),
        )
    )
