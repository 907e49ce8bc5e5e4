"""Table columns of the core group, events, leases, storage, networking and access control.

Source: kubernetes `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.api.codec import JSON, Object
from muster.api.meta import condition
from muster.apiserver.columns import (
    AGE,
    CREATED_AT,
    NAME,
    NONE,
    UNKNOWN,
    WIDE,
    Column,
    at,
    get,
    labels_text,
    selector_text,
    since,
)

ROLE_PREFIX = "node-role.kubernetes.io/"
ROLE_LABEL = "kubernetes.io/role"


def is_sidecar(container: Object | None) -> bool:
    """Whether an init container runs on beside the others."""
    return bool(container) and get(container, "restartPolicy") == "Always"


def pod_status(pod: Object) -> tuple[str, int, int, str]:
    """Status text, ready containers, restarts, and when the last restart was ("" if never), as `printPod` counts."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    reason, ready, restarts, last, is_initializing = _init_containers(pod, reason)
    if not is_initializing or _is_true(pod, "Initialized"):
        sidecars = [entry for entry in status.get("initContainerStatuses") or () if _is_sidecar_status(pod, entry)]
        restarts = sum(entry.get("restartCount", 0) for entry in sidecars)
        last = max((_last_restart(entry) for entry in sidecars), default="")
        reason, more, count, later = _containers(pod, reason)
        ready, restarts, last = ready + more, restarts + count, max(last, later)
    return _deleted(pod, reason), ready, restarts, last


def _is_true(pod: Object, type_: str) -> bool:
    entry = condition(pod, type_)
    return entry is not None and entry.get("status") == "True"


def _is_sidecar_status(pod: Object, entry: Object) -> bool:
    spec = next((c for c in get(pod, "spec", "initContainers") or () if c.get("name") == entry.get("name")), None)
    return is_sidecar(spec)


def _last_restart(entry: Object) -> str:
    return get(entry, "lastState", "terminated", "finishedAt") or ""


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _init_containers(pod: Object, reason: str) -> tuple[str, int, int, str, bool]:
    """Up to the first init container that is not done: reason, ready, restarts, last restart, still initializing."""
    ready, restarts, last = 0, 0, ""
    total = len(get(pod, "spec", "initContainers") or ())
    for position, entry in enumerate(get(pod, "status", "initContainerStatuses") or ()):
        restarts += entry.get("restartCount", 0)
        last = max(last, _last_restart(entry))
        state = entry.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated and terminated.get("exitCode", 0) == 0:
            continue
        if _is_sidecar_status(pod, entry) and entry.get("started"):
            ready += bool(entry.get("ready"))
            continue
        if terminated:
            return f"Init:{_ended(terminated)}", ready, restarts, last, True
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", ready, restarts, last, True
        return f"Init:{position}/{total}", ready, restarts, last, True
    return reason, ready, restarts, last, False


def _containers(pod: Object, reason: str) -> tuple[str, int, int, str]:
    ready, restarts, last, has_running = 0, 0, "", False
    for entry in reversed(get(pod, "status", "containerStatuses") or ()):
        restarts += entry.get("restartCount", 0)
        last = max(last, _last_restart(entry))
        state = entry.get("state") or {}
        if get(state, "waiting", "reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated"):
            reason = _ended(state["terminated"])
        elif entry.get("ready") and state.get("running") is not None:
            has_running = True
            ready += 1
    if reason == "Completed" and has_running:
        reason = "Running" if _is_true(pod, "Ready") else "NotReady"
    return reason, ready, restarts, last


def _deleted(pod: Object, reason: str) -> str:
    if not get(pod, "metadata", "deletionTimestamp"):
        return reason
    if get(pod, "status", "reason") == "NodeLost":
        return "Unknown"
    return reason if get(pod, "status", "phase") in ("Succeeded", "Failed") else "Terminating"


def pod_ready(pod: Object, now: float) -> str:
    containers = len(get(pod, "spec", "containers") or ())
    sidecars = sum(is_sidecar(container) for container in get(pod, "spec", "initContainers") or ())
    return f"{pod_status(pod)[1]}/{containers + sidecars}"


def pod_restarts(pod: Object, now: float) -> str:
    _, _, restarts, last = pod_status(pod)
    return f"{restarts} ({since(last, now)} ago)" if restarts and last else str(restarts)


def pod_ip(pod: Object, now: float) -> str:
    addresses = get(pod, "status", "podIPs") or ()
    return addresses[0].get("ip", NONE) if addresses else get(pod, "status", "podIP") or NONE


def readiness_gates(pod: Object, now: float) -> str:
    gates = get(pod, "spec", "readinessGates") or ()
    passed = sum(_is_true(pod, gate["conditionType"]) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else NONE


def node_status(node: Object, now: float) -> str:
    ready = condition(node, "Ready")
    texts = ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    if get(node, "spec", "unschedulable"):
        texts.append("SchedulingDisabled")
    return ",".join(texts)


def node_roles(node: Object, now: float) -> str:
    roles = set()
    for key, value in (get(node, "metadata", "labels") or {}).items():
        if key.startswith(ROLE_PREFIX) and len(key) > len(ROLE_PREFIX):
            roles.add(key.removeprefix(ROLE_PREFIX))
        elif key == ROLE_LABEL and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def _address(type_: str) -> Column:
    def cell(node: Object, now: float) -> JSON:
        for address in get(node, "status", "addresses") or ():
            if address.get("type") == type_:
                return address.get("address")
        return NONE

    return Column({"InternalIP": "Internal-IP", "ExternalIP": "External-IP"}[type_], cell, priority=WIDE)


def _node_info(name: str, field: str, default: str = UNKNOWN, priority: int = WIDE) -> Column:
    return Column(name, at("status", "nodeInfo", field, default=default), priority=priority)


def event_last_seen(event: Object, now: float) -> str:
    series = event.get("series") or {}
    if series.get("lastObservedTime"):
        return since(series["lastObservedTime"], now)
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return since(last, now) if last else event_first_seen(event, now)


def event_first_seen(event: Object, now: float) -> str:
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    return since(first, now)


def event_object(event: Object, now: float) -> str:
    target = event.get("involvedObject") or event.get("regarding") or {}
    kind = (target.get("kind") or "").lower()
    return f"{kind}/{target['name']}" if target.get("name") else kind


def event_subobject(event: Object, now: float) -> str:
    return get(event.get("involvedObject") or event.get("regarding"), "fieldPath") or ""


def event_source(event: Object, now: float) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def event_message(event: Object, now: float) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


def event_count(event: Object, now: float) -> int:
    return get(event, "series", "count") or event.get("count") or event.get("deprecatedCount") or 1


def service_external_ip(service: Object, now: float) -> str:
    spec = service.get("spec") or {}
    external = list(spec.get("externalIPs") or ())
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or NONE
    if spec.get("type") == "LoadBalancer":
        ingress = get(service, "status", "loadBalancer", "ingress") or ()
        found = [entry.get("ip") or entry.get("hostname", "") for entry in ingress] + external
        return ",".join(found) or "<pending>"
    return ",".join(external) or NONE


def service_ports(service: Object, now: float) -> str:
    texts = []
    for port in get(service, "spec", "ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or NONE


def slice_ports(slice_: Object, now: float) -> str:
    texts = [str(port.get("port") or "*") for port in slice_.get("ports") or ()]
    return _some(texts)


def slice_endpoints(slice_: Object, now: float) -> str:
    texts = [address for endpoint in slice_.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return _some(texts)


def _some(texts: Sequence[str], limit: int = 3) -> str:
    if not texts:
        return "<unset>"
    more = f" + {len(texts) - limit} more..." if len(texts) > limit else ""
    return ",".join(texts[:limit]) + more


def endpoints_text(endpoints: Object, now: float) -> str:
    texts = []
    for subset in endpoints.get("subsets") or ():
        ports: list[Object] = subset.get("ports") or [{}]
        for address in subset.get("addresses") or ():
            texts += [f"{address['ip']}:{port['port']}" if port else address["ip"] for port in ports]
    return NONE if not texts else _some(texts)


def _data_count(obj: Object, now: float) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _quota(kind: str) -> Column:
    def cell(quota: Object, now: float) -> str:
        hard, used = get(quota, "status", "hard") or {}, get(quota, "status", "used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") == (kind == "Limit")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return Column(kind, cell)


def _ref(obj: Object, now: float) -> str:
    ref = obj.get("roleRef") or {}
    return f"{ref.get('kind', '')}/{ref.get('name', '')}"


def _subjects(name: str, kind: str) -> Column:
    def cell(obj: Object, now: float) -> str:
        found = [subject for subject in obj.get("subjects") or () if subject.get("kind") == kind]
        names = [f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"] for s in found]
        return ", ".join(names)

    return Column(name, cell, priority=WIDE)


POD_COLUMNS = (
    NAME,
    Column("Ready", pod_ready),
    Column("Status", lambda pod, now: pod_status(pod)[0]),
    Column("Restarts", pod_restarts),
    AGE,
    Column("IP", pod_ip, priority=WIDE),
    Column("Node", at("spec", "nodeName"), priority=WIDE),
    Column("Nominated Node", at("status", "nominatedNodeName"), priority=WIDE),
    Column("Readiness Gates", readiness_gates, priority=WIDE),
)
NODE_COLUMNS = (
    NAME,
    Column("Status", node_status),
    Column("Roles", node_roles),
    AGE,
    _node_info("Version", "kubeletVersion", default="", priority=0),
    _address("InternalIP"),
    _address("ExternalIP"),
    _node_info("OS-Image", "osImage"),
    _node_info("Kernel-Version", "kernelVersion"),
    _node_info("Container-Runtime", "containerRuntimeVersion"),
)
EVENT_COLUMNS = (
    Column("Last Seen", event_last_seen),
    Column("Type", at("type", default="")),
    Column("Reason", at("reason", default="")),
    Column("Object", event_object),
    Column("Subobject", event_subobject, priority=WIDE),
    Column("Source", event_source, priority=WIDE),
    Column("Message", event_message),
    Column("First Seen", event_first_seen, priority=WIDE),
    Column("Count", event_count, priority=WIDE),
    Column("Name", NAME.cell, priority=WIDE, format="name"),
)
BINDING_COLUMNS = (
    NAME,
    Column("Role", _ref),
    AGE,
    _subjects("Users", "User"),
    _subjects("Groups", "Group"),
    _subjects("ServiceAccounts", "ServiceAccount"),
)

RBAC = "rbac.authorization.k8s.io"
COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("", "Pod"): POD_COLUMNS,
    ("", "Node"): NODE_COLUMNS,
    ("", "Event"): EVENT_COLUMNS,
    ("events.k8s.io", "Event"): EVENT_COLUMNS,
    ("", "Namespace"): (NAME, Column("Status", at("status", "phase", default="")), AGE),
    ("", "ConfigMap"): (NAME, Column("Data", _data_count), AGE),
    ("", "Secret"): (NAME, Column("Type", at("type", default="")), Column("Data", _data_count, "integer"), AGE),
    ("", "ServiceAccount"): (
        NAME,
        Column("Secrets", lambda obj, now: len(obj.get("secrets") or ())),
        AGE,
    ),
    ("", "Service"): (
        NAME,
        Column("Type", at("spec", "type", default="")),
        Column("Cluster-IP", at("spec", "clusterIP")),
        Column("External-IP", service_external_ip),
        Column("Port(s)", service_ports),
        AGE,
        Column("Selector", lambda obj, now: labels_text(get(obj, "spec", "selector")), priority=WIDE),
    ),
    ("", "Endpoints"): (NAME, Column("Endpoints", endpoints_text), AGE),
    ("discovery.k8s.io", "EndpointSlice"): (
        NAME,
        Column("AddressType", at("addressType", default="")),
        Column("Ports", slice_ports),
        Column("Endpoints", slice_endpoints),
        AGE,
    ),
    ("", "ResourceQuota"): (NAME, _quota("Request"), _quota("Limit"), AGE),
    ("", "LimitRange"): (NAME, CREATED_AT),
    ("coordination.k8s.io", "Lease"): (NAME, Column("Holder", at("spec", "holderIdentity", default="")), AGE),
    ("networking.k8s.io", "NetworkPolicy"): (
        NAME,
        Column("Pod-Selector", lambda obj, now: selector_text(get(obj, "spec", "podSelector"))),
        AGE,
    ),
    ("storage.k8s.io", "StorageClass"): (
        NAME,
        Column("Provisioner", at("provisioner", default="")),
        Column("ReclaimPolicy", at("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", at("volumeBindingMode", default="Immediate")),
        Column("AllowVolumeExpansion", at("allowVolumeExpansion", default=False)),
        AGE,
    ),
    ("storage.k8s.io", "CSINode"): (
        NAME,
        Column("Drivers", lambda obj, now: len(get(obj, "spec", "drivers") or ()), "integer"),
        AGE,
    ),
    (RBAC, "Role"): (NAME, CREATED_AT),
    (RBAC, "ClusterRole"): (NAME, CREATED_AT),
    (RBAC, "RoleBinding"): BINDING_COLUMNS,
    (RBAC, "ClusterRoleBinding"): BINDING_COLUMNS,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (NAME, CREATED_AT),
}
