"""The Workload and PodGroup of a Job: whether it gets them, what is in them, and which are its own.

Sources: KEP-5547 and kube-controller-manager of 1.36 (gangs are inferred) and 1.37 (`spec.scheduling` says). Objects
are found by their references, never by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import controller_of, is_deleting, name_of, namespace_of, uid_of
from muster.api.names import job_group_names, safe_hash, truncated_pair
from muster.api.resource import POD_GROUPS, WORKLOADS, Resource
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Action, Create, Emit, Patch
from muster.controllers.batch.job_creation import owner_reference
from muster.controllers.batch.job_spec import JobSpec
from muster.controllers.options import JobGroups

TEMPLATE_ANNOTATION = "scheduling.k8s.io/group-template-name"
PARENT_ANNOTATION = "scheduling.k8s.io/parent-composite-podgroup"


class GroupApi(Struct, frozen=True):
    """The release whose rules hold, and the resources of the version that we read and write.

    `tells_failures`: an event says why an object cannot be made, whatever the release.
    `labels`: of what is created.
    """

    release: JobGroups
    workloads: Resource = WORKLOADS
    groups: Resource = POD_GROUPS
    tells_failures: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def is_flat(self) -> bool:
        """Whether groups name their Workload by the flat `workloadRef` of 1.37."""
        return self.groups.version != "v1alpha2"


class GroupPlan(Struct, frozen=True):
    """What to do about a Job's group. `is_ready`: pods may be created, in `group` if there is one."""

    actions: tuple[Action, ...] = ()
    group: str | None = None
    is_ready: bool = True


def plan_group(
    job: Object,
    spec: JobSpec,
    pods: Sequence[Object],
    workloads: Sequence[Object],
    groups: Sequence[Object],
    api: GroupApi,
) -> GroupPlan:
    """The next step towards the Job's group. `workloads`, `groups`: those of its namespace that may be its own."""
    mode = _mode(job, spec, api)
    if mode == "none" or is_deleting(job):
        return GroupPlan()
    may_create = _never_started(job, pods)
    if mode == "group only":
        workload = _parent_workload(job, workloads)
        template = _template(workload, job["metadata"]["annotations"][TEMPLATE_ANNOTATION]) if workload else None
    else:
        own = own_workloads(job, workloads)
        if not own:
            return GroupPlan((create_workload(job, spec, api),), is_ready=False) if may_create else GroupPlan()
        workload = own[0] if len(own) == 1 else None
        template = _only_template(workload) if workload else None
    if workload is None or template is None:
        return GroupPlan()
    found = own_groups(job, workload, groups)
    if not found:
        create = create_group(job, workload, template, api, owns_workload=mode == "both")
        return GroupPlan((create,), is_ready=False) if may_create else GroupPlan()
    if len(found) > 1:
        return GroupPlan()
    follow = _follow_count(job, spec, workload, found[0], api) if mode == "both" else ()
    return GroupPlan(tuple(follow), name_of(found[0]))


def own_workloads(job: Object, workloads: Iterable[Object]) -> list[Object]:
    """The Workloads that a Job controls and that name it."""
    return [item for item in workloads if _is_controlled(item, job) and _names_job(item, job)]


def own_groups(job: Object, workload: Object, groups: Iterable[Object]) -> list[Object]:
    """The PodGroups of a Workload that a Job controls."""
    return [item for item in groups if _is_controlled(item, job) and _workload_name(item) == name_of(workload)]


def infers_gang(job: Object, spec: JobSpec) -> bool:
    """Whether a Job is a gang by the conditions of 1.36: Indexed, several pods and all of them at once, no owner."""
    fits = spec.is_indexed and spec.parallelism > 1 and spec.completions == spec.parallelism
    return fits and controller_of(job) is None


def _mode(job: Object, spec: JobSpec, api: GroupApi) -> str:
    """`both` objects, the `group only`, or `none`."""
    if api.release == "off" or job["spec"]["template"]["spec"].get("schedulingGroup"):
        return "none"
    owner = controller_of(job)
    if api.release == "1.36":
        return "both" if infers_gang(job, spec) else "none"
    if owner is None or owner.get("kind") == "CronJob":
        return "both"
    return "group only" if TEMPLATE_ANNOTATION in (job["metadata"].get("annotations") or {}) else "none"


def _never_started(job: Object, pods: Sequence[Object]) -> bool:
    status = job.get("status") or {}
    return not pods and not any(status.get(key) for key in ("startTime", "succeeded", "failed"))


def compiled_template(job: Object, spec: JobSpec, api: GroupApi) -> Object:
    """The template of the Job's group: inferred in 1.36, what `spec.scheduling` says in 1.37.

    The priority class of the pods is that of the group, whose priority orders the queue (1.37; 1.36 leaves it out).
    """
    _, name, _ = job_group_names(name_of(job), uid_of(job))
    template: Object = {"name": name, **_asked(job, spec, api)}
    priority_class = job["spec"]["template"]["spec"].get("priorityClassName")
    return {**template, "priorityClassName": priority_class} if priority_class else template


def _asked(job: Object, spec: JobSpec, api: GroupApi) -> Object:
    if api.release == "1.36":
        return {"schedulingPolicy": {"gang": {"minCount": spec.parallelism}}}
    scheduling = job["spec"].get("scheduling") or {}
    policy = scheduling.get("schedulingPolicy") or {}
    asked: Object = {"schedulingPolicy": {"basic": {}}}
    if policy.get("gang") is not None:
        least = policy["gang"].get("minCount") or max(1, spec.parallelism)
        asked = {"schedulingPolicy": {"gang": {"minCount": least}}}
    for key in ("schedulingConstraints", "disruptionMode", "resourceClaims"):
        if scheduling.get(key):
            asked[key] = scheduling[key]
    return asked


def create_workload(job: Object, spec: JobSpec, api: GroupApi) -> Create:
    """Make the Workload of a Job."""
    name, _, _ = job_group_names(name_of(job), uid_of(job))
    workload = {
        "apiVersion": api.workloads.api_version,
        "kind": "Workload",
        "metadata": _metadata(name, job, [owner_reference(job)], api),
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name_of(job)},
            "podGroupTemplates": [compiled_template(job, spec, api)],
        },
    }
    done = Emit(job, "Normal", "WorkloadCreated", f"Created Workload {{name}} for Job {name_of(job)}")
    return Create(api.workloads, workload, done=done, failed=_failed(job, api))


def create_group(job: Object, workload: Object, template: Object, api: GroupApi, *, owns_workload: bool) -> Create:
    """Make the PodGroup of a Job from a template of its Workload."""
    parts = (name_of(workload), template["name"]) if owns_workload else (name_of(workload), name_of(job))
    owners = [owner_reference(job)]
    if owns_workload:
        kind = {"apiVersion": api.workloads.api_version, "kind": "Workload"}
        owners.append({**kind, "name": name_of(workload), "uid": uid_of(workload)})
    inlined = {key: value for key, value in template.items() if key != "name"}
    parent = (job["metadata"].get("annotations") or {}).get(PARENT_ANNOTATION)
    if parent and not owns_workload:
        inlined["parentCompositePodGroupName"] = parent
    group = {
        "apiVersion": api.groups.api_version,
        "kind": "PodGroup",
        "metadata": _metadata(truncated_pair(parts[0], parts[1], safe_hash(*parts)), job, owners, api),
        "spec": {**_reference(workload, template, api), **inlined},
    }
    done = Emit(job, "Normal", "PodGroupCreated", f"Created PodGroup {{name}} for Job {name_of(job)}")
    return Create(api.groups, group, done=done if api.release == "1.37" else None, failed=_failed(job, api))


def _metadata(name: str, job: Object, owners: Objects, api: GroupApi) -> Object:
    metadata: Object = {"name": name, "namespace": namespace_of(job), "ownerReferences": owners}
    return {**metadata, "labels": dict(api.labels)} if api.labels else metadata


def _failed(job: Object, api: GroupApi) -> Emit | None:
    """1.36 says nothing when a creation fails."""
    if api.release != "1.37" and not api.tells_failures:
        return None
    return Emit(job, "Warning", "FailedWorkloadCreate", "Error creating: {error}")


def _reference(workload: Object, template: Object, api: GroupApi) -> Object:
    name, template_name = name_of(workload), template["name"]
    if api.is_flat:
        return {"workloadRef": {"workloadName": name, "templateName": template_name}}
    return {"podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": template_name}}}


def _follow_count(job: Object, spec: JobSpec, workload: Object, group: Object, api: GroupApi) -> Iterable[Patch]:
    """Patches that bring a changed minCount to the Workload and the group (1.37)."""
    gang = compiled_template(job, spec, api)["schedulingPolicy"].get("gang")
    if api.release != "1.37" or gang is None:
        return
    template = workload["spec"]["podGroupTemplates"][0]
    namespace = namespace_of(job)
    for resource, obj, part in (
        (api.workloads, workload, template),
        (api.groups, group, group["spec"]),
    ):
        policy = {"schedulingPolicy": {"gang": gang}}
        if part["schedulingPolicy"].get("gang") in (None, gang):
            continue
        patch = {"podGroupTemplates": [{"name": template["name"], **policy}]} if obj is workload else policy
        yield Patch(resource, namespace, name_of(obj), {"spec": patch}, STRATEGIC_MERGE_PATCH)


def _is_controlled(obj: Object, job: Object) -> bool:
    return (controller_of(obj) or {}).get("uid") == uid_of(job) and not is_deleting(obj)


def _names_job(workload: Object, job: Object) -> bool:
    reference = workload["spec"].get("controllerRef") or {}
    wanted = ("batch", "Job", name_of(job))
    return (reference.get("apiGroup"), reference.get("kind"), reference.get("name")) == wanted


def _parent_workload(job: Object, workloads: Iterable[Object]) -> Object | None:
    """The Workload of the Job's controller."""
    owner = controller_of(job) or {}
    group = owner.get("apiVersion", "").rpartition("/")[0]
    wanted = (group, owner.get("kind"), owner.get("name"))
    for workload in workloads:
        reference = workload["spec"].get("controllerRef") or {}
        if (reference.get("apiGroup") or "", reference.get("kind"), reference.get("name")) == wanted:
            return workload
    return None


def _template(workload: Object, name: str) -> Object | None:
    """The template of that name anywhere in the tree of a Workload."""
    pending = [workload["spec"]]
    while pending:
        node = pending.pop()
        for template in node.get("podGroupTemplates") or ():
            if template["name"] == name:
                found: Object = template
                return found
        pending += node.get("compositePodGroupTemplates") or ()
    return None


def _only_template(workload: Object) -> Object | None:
    templates = workload["spec"].get("podGroupTemplates") or []
    return templates[0] if len(templates) == 1 else None


def _workload_name(group: Object) -> str:
    """The Workload that a group names, in either form."""
    spec = group["spec"]
    flat = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    name: str = flat.get("workloadName", "")
    return name
