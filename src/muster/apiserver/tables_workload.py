"""Table columns of the kinds that run work, schedule it, or claim devices for it.

Source: kubernetes `pkg/printers/internalversion/printers.go` and recordings (PodGroup, CompositePodGroup, Workload).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from muster.api.codec import JSON, Object
from muster.api.meta import condition, has_condition
from muster.apiserver.columns import (
    AGE,
    NAME,
    NONE,
    WIDE,
    Column,
    at,
    container_images,
    container_names,
    get,
    human_duration,
    labels_text,
    number,
    selector_text,
    since,
)
from muster.clock import parse_rfc3339

Cell = Callable[[Object, float], JSON]


def job_status(job: Object, now: float) -> str:
    for type_ in ("Complete", "Failed"):
        if has_condition(job, type_):
            return type_
    if get(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if has_condition(job, type_):
            return type_
    return "Running"


def job_completions(job: Object, now: float) -> str:
    succeeded = get(job, "status", "succeeded") or 0
    completions = get(job, "spec", "completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = get(job, "spec", "parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def job_duration(job: Object, now: float) -> str:
    start, end = get(job, "status", "startTime"), get(job, "status", "completionTime")
    if not start:
        return ""
    return human_duration((parse_rfc3339(end) if end else now) - parse_rfc3339(start))


def _ready(want: tuple[str, ...], ready: tuple[str, ...]) -> Cell:
    def cell(obj: Object, now: float) -> str:
        return f"{get(obj, *ready) or 0}/{get(obj, *want) or 0}"

    return cell


def _template(*path: str) -> tuple[Column, Column]:
    """The wide columns with the containers and images of the pod template at a path."""
    return (
        Column("Containers", lambda obj, now: container_names(get(obj, *path, "spec", "containers")), priority=WIDE),
        Column("Images", lambda obj, now: container_images(get(obj, *path, "spec", "containers")), priority=WIDE),
    )


def _selector(*path: str) -> Column:
    return Column("Selector", lambda obj, now: selector_text(get(obj, *path)), priority=WIDE)


def _labels(name: str, *path: str, priority: int = 0) -> Column:
    return Column(name, lambda obj, now: labels_text(get(obj, *path)), priority=priority)


def _either(*path: str) -> Cell:
    """A cell that shows a number or percentage as text, `N/A` where it is missing."""

    def cell(obj: Object, now: float) -> str:
        value = get(obj, *path)
        return "N/A" if value is None else str(value)

    return cell


def _last_schedule(obj: Object, now: float) -> str:
    last = get(obj, "status", "lastScheduleTime")
    return since(last, now) if last else NONE


def group_policy(group: Object, now: float) -> str:
    """`Gang` or `Basic`; a group without a policy counts as basic."""
    return "Gang" if get(group, "spec", "schedulingPolicy", "gang") is not None else "Basic"


def group_workload(group: Object, now: float) -> str:
    """The Workload that a group was made from, by whichever field its version has."""
    spec = group.get("spec") or {}
    for path in (("workloadRef", "workloadName"), ("podGroupTemplateRef", "workload", "workloadName")):
        found = get(spec, *path)
        if found:
            return str(found)
    return NONE


def group_status(group: Object, now: float) -> str:
    """`Pending` before the scheduler said anything, then `Scheduled` or `Unschedulable`."""
    entry = condition(group, "PodGroupScheduled") or condition(group, "PodGroupInitiallyScheduled")
    if entry is None:
        return "Pending"
    return {"True": "Scheduled", "False": "Unschedulable"}.get(entry.get("status", ""), "Pending")


def claim_state(claim: Object, now: float) -> str:
    """`pending`, or `allocated`, `reserved`, `deleted` as they hold, joined by commas."""
    status = claim.get("status") or {}
    states = []
    if get(claim, "metadata", "deletionTimestamp"):
        states.append("deleted")
    if status.get("allocation") is None:
        return ",".join([*states, "pending"])
    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)


SCHEDULING = "scheduling.k8s.io"
RESOURCE = "resource.k8s.io"
COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("batch", "Job"): (
        NAME,
        Column("Status", job_status),
        Column("Completions", job_completions),
        Column("Duration", job_duration),
        AGE,
        *_template("spec", "template"),
        _selector("spec", "selector"),
    ),
    ("batch", "CronJob"): (
        NAME,
        Column("Schedule", at("spec", "schedule", default="")),
        Column("Timezone", at("spec", "timeZone")),
        Column("Suspend", lambda obj, now: "True" if get(obj, "spec", "suspend") else "False", "boolean"),
        Column("Active", lambda obj, now: len(get(obj, "status", "active") or ()), "integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        *_template("spec", "jobTemplate", "spec", "template"),
        _selector("spec", "jobTemplate", "spec", "selector"),
    ),
    ("apps", "Deployment"): (
        NAME,
        Column("Ready", _ready(("spec", "replicas"), ("status", "readyReplicas"))),
        Column("Up-to-date", number("status", "updatedReplicas")),
        Column("Available", number("status", "availableReplicas")),
        AGE,
        *_template("spec", "template"),
        _selector("spec", "selector"),
    ),
    ("apps", "ReplicaSet"): (
        NAME,
        Column("Desired", number("spec", "replicas"), "integer"),
        Column("Current", number("status", "replicas"), "integer"),
        Column("Ready", number("status", "readyReplicas"), "integer"),
        AGE,
        *_template("spec", "template"),
        _selector("spec", "selector"),
    ),
    ("", "ReplicationController"): (
        NAME,
        Column("Desired", number("spec", "replicas"), "integer"),
        Column("Current", number("status", "replicas"), "integer"),
        Column("Ready", number("status", "readyReplicas"), "integer"),
        AGE,
        *_template("spec", "template"),
        _labels("Selector", "spec", "selector", priority=WIDE),
    ),
    ("apps", "StatefulSet"): (
        NAME,
        Column("Ready", _ready(("spec", "replicas"), ("status", "readyReplicas"))),
        AGE,
        *_template("spec", "template"),
    ),
    ("apps", "DaemonSet"): (
        NAME,
        Column("Desired", number("status", "desiredNumberScheduled"), "integer"),
        Column("Current", number("status", "currentNumberScheduled"), "integer"),
        Column("Ready", number("status", "numberReady"), "integer"),
        Column("Up-to-date", number("status", "updatedNumberScheduled"), "integer"),
        Column("Available", number("status", "numberAvailable"), "integer"),
        _labels("Node Selector", "spec", "template", "spec", "nodeSelector"),
        AGE,
        *_template("spec", "template"),
        _selector("spec", "selector"),
    ),
    ("apps", "ControllerRevision"): (
        NAME,
        Column("Controller", lambda obj, now: _controller(obj)),
        Column("Revision", number("revision")),
        AGE,
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        Column("Min Available", _either("spec", "minAvailable")),
        Column("Max Unavailable", _either("spec", "maxUnavailable")),
        Column("Allowed Disruptions", number("status", "disruptionsAllowed"), "integer"),
        AGE,
    ),
    (SCHEDULING, "PriorityClass"): (
        NAME,
        Column("Value", number("value"), "integer"),
        Column("Global-Default", at("globalDefault", default=False), "boolean"),
        AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", default="")),
    ),
    (SCHEDULING, "PodGroup"): (
        NAME,
        Column("Policy", group_policy),
        Column("Workload", group_workload),
        Column("Status", group_status),
        AGE,
    ),
    (SCHEDULING, "CompositePodGroup"): (
        NAME,
        Column("Policy", group_policy),
        Column("Workload", group_workload),
        AGE,
    ),
    (RESOURCE, "ResourceClaim"): (NAME, Column("State", claim_state), AGE),
    (RESOURCE, "ResourceSlice"): (
        NAME,
        Column("Node", at("spec", "nodeName", default="")),
        Column("Driver", at("spec", "driver", default="")),
        Column("Pool", at("spec", "pool", "name", default="")),
        AGE,
    ),
}


def _controller(obj: Object) -> str:
    owners = get(obj, "metadata", "ownerReferences") or ()
    for owner in owners:
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return NONE
