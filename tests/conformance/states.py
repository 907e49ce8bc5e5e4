"""Write the objects of a scenario as the recordings of controllers write states.

Which fields count and how they are written: the section on controllers in the README of the recordings.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

from naming import Names

from muster.api.codec import JSON, Object
from muster.api.meta import has_condition, is_deleting, name_of
from muster.api.resource import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Resource,
)

WORKLOADS_1_36 = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload")
POD_GROUPS_1_36 = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")

Writer = Callable[[Object], Object]


def owners(obj: Object) -> list[str]:
    """Owner references as `Kind/name`, then `controller` and `block`."""
    return [
        f"{owner['kind']}/{owner['name']}"
        + (" controller" if owner.get("controller") else "")
        + (" block" if owner.get("blockOwnerDeletion") else "")
        for owner in obj["metadata"].get("ownerReferences") or ()
    ]


def head(obj: Object, *parts: str) -> Object:
    """Name, and those of labels, annotations, finalizers, owners and deleting that are asked for and there."""
    metadata = obj["metadata"]
    values: Object = {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "finalizers": metadata.get("finalizers"),
        "owners": owners(obj),
        "deleting": is_deleting(obj),
    }
    return {"name": name_of(obj), **present({part: values[part] for part in parts})}


def present(values: Object) -> Object:
    return {key: value for key, value in values.items() if value not in (None, [], {}, False)}


def conditions_of(obj: Object, keys: Sequence[str]) -> list[Object]:
    found = (obj.get("status") or {}).get("conditions") or []
    return [{key: entry[key] for key in keys if entry.get(key) not in (None, "")} for entry in found]


def write_pod(pod: Object) -> Object:
    """A Pod."""
    spec, status = pod["spec"], pod.get("status") or {}
    keys = ("type", "status", "reason", "message")
    conditions = [entry for entry in conditions_of(pod, keys) if entry["status"] != "True" or "reason" in entry]
    shown = ("nodeName", "hostname", "subdomain", "nodeSelector", "schedulingGroup", "affinity")
    return {
        **head(pod, "labels", "annotations", "finalizers", "owners", "deleting"),
        "phase": status.get("phase"),
        "ready": has_condition(pod, "Ready"),
        "restartPolicy": spec.get("restartPolicy"),
        "containers": [_container(container) for container in spec["containers"]],
        **present({key: spec.get(key) for key in shown}),
        **present({"podIP": status.get("podIP"), "conditions": conditions}),
        **present({"initContainers": [_container(container) for container in spec.get("initContainers") or ()]}),
        **present({"tolerations": [item for item in spec.get("tolerations") or () if not _is_default(item)]}),
        **present({"activeDeadlineSeconds": spec.get("activeDeadlineSeconds"), "volumes": spec.get("volumes")}),
    }


def _container(container: Object) -> Object:
    return {key: container[key] for key in ("name", "image", "env", "resources") if container.get(key)}


def _is_default(toleration: Object) -> bool:
    """Whether admission adds that toleration to every pod."""
    return toleration.get("tolerationSeconds") == 300 and toleration.get("key") in (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    )


def write_job(job: Object) -> Object:
    """A Job, its template reduced to labels and annotations, its status without times."""
    spec = {key: value for key, value in job["spec"].items() if key != "template"}
    template = job["spec"]["template"].get("metadata") or {}
    status = {key: value for key, value in (job.get("status") or {}).items() if key != "uncountedTerminatedPods"}
    status = {key: value for key, value in status.items() if value != 0 or key in ("terminating", "ready")}
    return {
        **head(job, "labels", "annotations", "finalizers", "owners", "deleting"),
        "spec": spec,
        "podTemplateMetadata": present({key: template.get(key) for key in ("labels", "annotations")}),
        "status": {
            **status,
            "conditions": conditions_of(job, ("type", "status", "reason", "message")),
            "startTime": "startTime" in status,
            "completionTime": "completionTime" in status,
        },
    }


def write_group(group: Object) -> Object:
    """A PodGroup."""
    return {
        **head(group, "finalizers", "owners", "deleting"),
        "spec": group["spec"],
        "status": {"conditions": conditions_of(group, ("type", "status", "reason", "message"))},
    }


def write_workload(workload: Object) -> Object:
    """A Workload; recordings show constraints of a template also where there are none."""
    templates = [{"schedulingConstraints": None, **template} for template in workload["spec"]["podGroupTemplates"]]
    return {
        **head(workload, "finalizers", "owners", "deleting"),
        "spec": {**workload["spec"], "podGroupTemplates": templates},
    }


def write_config_map(config_map: Object) -> Object:
    """A ConfigMap."""
    return head(config_map, "finalizers", "owners", "deleting")


def write_service(service: Object) -> Object:
    """A Service."""
    shown = ("selector", "type", "ports", "trafficDistribution", "publishNotReadyAddresses", "externalName")
    spec = service["spec"]
    headless = {"clusterIP": "None"} if spec.get("clusterIP") == "None" else {}
    return {**head(service, "labels", "annotations"), "spec": {**{k: spec[k] for k in shown if k in spec}, **headless}}


def write_slice(slice_: Object) -> Object:
    """An EndpointSlice, endpoints sorted by address; of more than `MOST_LISTED` only counts."""
    ports = [{key: port[key] for key in _PORT_KEYS if key in port} for port in slice_.get("ports") or ()]
    written = {**head(slice_, "labels", "owners"), "addressType": slice_["addressType"], "ports": ports}
    endpoints = slice_.get("endpoints") or ()
    if len(endpoints) <= MOST_LISTED:
        listed = sorted((_endpoint(each) for each in endpoints), key=lambda each: list(each["addresses"]))
        return {**written, "endpoints": listed}
    hints = Counter(json.dumps(each.get("hints")) for each in endpoints)
    ready = sum(each["conditions"].get("ready") is True for each in endpoints)
    return {**written, "endpointCount": len(endpoints), "readyCount": ready, "hints": dict(hints)}


MOST_LISTED = 20
_PORT_KEYS = ("name", "protocol", "port", "appProtocol")


def _endpoint(endpoint: Object) -> Object:
    target = endpoint.get("targetRef")
    shown = ("addresses", "conditions", "hostname", "nodeName", "zone", "hints")
    written = present({key: endpoint.get(key) for key in shown})
    return {**written, **({"targetRef": f"{target['kind']}/{target['name']}"} if target else {})}


def write_node(node: Object) -> Object:
    """A Node, taints and conditions sorted."""
    labels = {key: value for key, value in (node["metadata"].get("labels") or {}).items() if "hostname" not in key}
    taints = [
        {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
        for taint in node["spec"].get("taints") or ()
    ]
    conditions = conditions_of(node, ("type", "status", "reason", "message"))
    return {
        "name": name_of(node),
        "labels": labels,
        "taints": sorted(taints, key=lambda taint: (taint["key"], taint["effect"])),
        "unschedulable": bool(node["spec"].get("unschedulable")),
        "conditions": sorted(conditions, key=lambda entry: str(entry["type"])),
    }


def write_namespace(namespace: Object) -> Object:
    """A Namespace, conditions sorted."""
    conditions = conditions_of(namespace, ("type", "status", "reason", "message"))
    return {
        "name": name_of(namespace),
        "phase": (namespace.get("status") or {}).get("phase"),
        "finalizers": namespace["spec"].get("finalizers") or [],
        "deleting": is_deleting(namespace),
        "conditions": sorted(conditions, key=lambda entry: str(entry["type"])),
    }


WRITERS: dict[str, tuple[Resource, Writer]] = {
    "Workload": (WORKLOADS_1_36, write_workload),
    "PodGroup": (POD_GROUPS_1_36, write_group),
    "Pod": (PODS, write_pod),
    "Job": (JOBS, write_job),
    "ConfigMap": (CONFIG_MAPS, write_config_map),
    "Service": (SERVICES, write_service),
    "EndpointSlice": (ENDPOINT_SLICES, write_slice),
    "Node": (NODES, write_node),
    "Namespace": (NAMESPACES, write_namespace),
}
"""How each kind is read and written; names of the first ones occur in the others. Kinds of the cluster only count where
the recording shows them."""


def write_events(events: Sequence[Object], names: Names) -> list[Object]:
    """Events as recordings list them, without repeats, sorted."""
    found: dict[tuple[str, ...], Object] = {}
    for event in events:
        about = event["involvedObject"]
        entry = {
            "kind": about["kind"],
            "name": names.write_text(about["name"]),
            "type": event["type"],
            "reason": event["reason"],
            "message": _joined(names.write_text(event["message"])),
        }
        found[tuple(entry.values())] = entry
    return [found[key] for key in sorted(found)]


def _joined(message: str) -> str:
    return re.sub(r"^\(combined from similar events\).*", "(combined from similar events)", message)


def sort_key(written: JSON) -> tuple[str, ...]:
    """States list objects by name, numbers in them by value."""
    return tuple(part.zfill(8) if part.isdecimal() else part for part in re.split(r"(\d+)", written["name"]))
