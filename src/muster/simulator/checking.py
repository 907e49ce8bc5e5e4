"""What each release of Kubernetes makes of manifests: whether it takes them, and which Jobs become gangs, and why not.

Sources: KEP-5547, kube-apiserver and kube-controller-manager of 1.35 to 1.37; the gates are those of their releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from muster.api.codec import Object, copy_object
from muster.api.manifests import Manifest, creation_order, resource_of
from muster.api.meta import controller_of, name_of, namespace_of
from muster.apiserver.options import Release, ServerOptions
from muster.apiserver.request import ApiRequest
from muster.client.client import warnings_of
from muster.client.transport import Query, Response
from muster.simulator.checked_priorities import group_index, unlike_priority
from muster.simulator.forms import fault_of
from muster.simulator.notices import notices
from muster.simulator.standing import StandingServer

RELEASES: tuple[Release, ...] = ("1.35", "1.36", "1.37")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a release makes of one object. `unknown`: fields that it does not know and drops, and what may be meant;
    `warnings`: what else is to be said about it."""

    release: Release
    problem: str = ""
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate that is needed. `default`: how it is set without asking; `where`: the components."""

    name: str
    default: str
    where: str


@dataclass(frozen=True, slots=True)
class Integration:
    """What a release makes of a Job. `outcome`: `gang`, `basic` (pods one by one, in a group) or `none` (no group).

    `unmet`: the conditions for a gang that do not hold, as fields and what they would have to be.
    """

    release: Release
    outcome: str
    min_count: int = 0
    unmet: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()


def check_objects(manifests: Sequence[Manifest], release: Release) -> list[Finding]:
    """What a release makes of each, with those in place that it may refer to (namespaces, classes, groups)."""
    server = StandingServer(ServerOptions(emulate=release))
    found: dict[int, Finding] = {}
    for manifest in creation_order(manifests):
        found[id(manifest)] = _finding(server, manifest, release)
        if manifest.object["kind"] in _REFERRED_TO and not found[id(manifest)].problem:
            _post(server, manifest.object, ())
    if release == "1.37":
        _add_priorities(server, manifests, found)
    return [found[id(manifest)] for manifest in manifests]


def _add_priorities(server: StandingServer, manifests: Sequence[Manifest], found: dict[int, Finding]) -> None:
    """Warns of pods whose priority is not that of the root of their group, among what the server takes."""
    taken = [each for each in manifests if not (each.left_out or found[id(each)].problem)]
    groups = group_index([each.object for each in taken])
    for each in taken if groups else ():
        said = unlike_priority(each.object, groups, lambda obj: _admitted(server, obj))
        if said:
            finding = found[id(each)]
            found[id(each)] = replace(finding, warnings=(*finding.warnings, said))


def _admitted(server: StandingServer, obj: Object) -> Object:
    """The object as the server would store it, or has stored it; {} if it would not."""
    answer = _post(server, obj, (("dryRun", "All"),))
    if answer.status == 409:
        resource = resource_of(obj)
        assert resource is not None, "manifests are of known kinds"
        path = resource.path((namespace_of(obj) or "default") if resource.namespaced else "")
        answer = server.handle(ApiRequest("GET", f"{path}/{name_of(obj)}"))
    return answer.body if answer.status < 400 and isinstance(answer.body, dict) else {}


def _finding(server: StandingServer, manifest: Manifest, release: Release) -> Finding:
    obj = manifest.object
    if manifest.left_out:
        return Finding(release, warnings=(manifest.left_out,))
    fault = fault_of(manifest)
    if fault:
        return Finding(release, fault)
    answer = _post(server, obj, (("dryRun", "All"),))
    problem = _message(answer)
    if answer.status == 404 and not isinstance(answer.body, dict):
        problem = f"{obj['apiVersion']} {obj['kind']} is not served in {release}"
    if problem:
        return Finding(release, problem)
    said = [each.text for each in notices(manifest, warnings_of(answer), release)]
    unknown = tuple(text for text in said if text.startswith("unknown field"))
    return Finding(release, problem, unknown, tuple(text for text in said if text not in unknown))


_REFERRED_TO = ("Namespace", "PriorityClass", "Workload", "CompositePodGroup")


def _post(server: StandingServer, obj: Object, query: Query) -> Response:
    resource = resource_of(obj)
    assert resource is not None, "manifests are of known kinds"
    namespace = (namespace_of(obj) or "default") if resource.namespaced else ""
    if namespace and obj["kind"] != "Namespace":
        plain: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        server.handle(ApiRequest("POST", "/api/v1/namespaces", body=plain))
    return server.handle(ApiRequest("POST", resource.path(namespace), query, body=copy_object(obj)))


def _message(response: Response) -> str:
    if response.status < 400:
        return ""
    return str(response.body.get("message", "")) if isinstance(response.body, dict) else response.body.decode().strip()


# -- Jobs ------------------------------------------------------------------------------------------------------------


def integration_of(job: Object, release: Release) -> Integration:
    """What a release makes of a Job (workload-api.md 5.1, 5.2)."""
    if release == "1.35":
        why = "1.35 makes no groups for Jobs: write a Workload and set spec.workloadRef in the pod template"
        return Integration(release, "none", unmet=(why,))
    found = _in_1_36(job) if release == "1.36" else _in_1_37(job)
    gates = gates_of(job, release) if found.outcome != "none" else ()
    return Integration(release, found.outcome, found.min_count, found.unmet, gates)


def _in_1_36(job: Object) -> Integration:
    spec = job["spec"]
    parallelism = spec.get("parallelism", 1)
    unmet = []
    if parallelism <= 1:
        unmet.append(f"spec.parallelism is {parallelism}: must be greater than 1")
    if spec.get("completionMode") != "Indexed":
        unmet.append(f"spec.completionMode is {spec.get('completionMode') or 'NonIndexed'}: must be Indexed")
    if spec.get("completions") != parallelism:
        unmet.append(
            f"spec.completions is {spec.get('completions', 'not set')}: must equal parallelism ({parallelism})"
        )
    unmet += _own_rules(job)
    owner = controller_of(job)
    if owner is not None and owner.get("kind") == "CronJob":
        unmet.append(f"CronJob {owner.get('name')} owns the Job: in 1.36 Jobs with an owner make no group")
    return Integration("1.36", "none" if unmet else "gang", 0 if unmet else parallelism, tuple(unmet))


def _in_1_37(job: Object) -> Integration:
    unmet = _own_rules(job)
    if unmet:
        return Integration("1.37", "none", unmet=tuple(unmet))
    spec = job["spec"]
    policy = (spec.get("scheduling") or {}).get("schedulingPolicy") or {}
    if policy.get("gang") is None:
        why = (
            "spec.scheduling.schedulingPolicy is not set" if not policy else "spec.scheduling.schedulingPolicy is basic"
        )
        return Integration("1.37", "basic", 1, (f"{why}: a gang needs gang: {{}} there",))
    least = policy["gang"].get("minCount") or max(1, spec.get("parallelism", 1))
    return Integration("1.37", "gang", least)


def _own_rules(job: Object) -> list[str]:
    """The conditions that both releases have."""
    unmet = []
    if (job["spec"]["template"].get("spec") or {}).get("schedulingGroup"):
        unmet.append("spec.template.spec.schedulingGroup is set: the pods join that group, the Job makes none")
    owner = controller_of(job)
    if owner is not None and owner.get("kind") != "CronJob":
        unmet.append(
            f"{owner.get('kind')} {owner.get('name')} owns the Job: it makes the group, not the Job controller"
        )
    return unmet


# -- gates -----------------------------------------------------------------------------------------------------------

_ALL = "kube-apiserver, kube-controller-manager, kube-scheduler"
_SERVER_AND_SCHEDULER = "kube-apiserver, kube-scheduler"
_SERVER_AND_CONTROLLERS = "kube-apiserver, kube-controller-manager"
_OFF = "off (alpha)"
_BETA_OFF = "off (beta)"


def gates_of(obj: Object, release: Release) -> tuple[Gate, ...]:
    """The feature gates that an object needs in a release for all that it asks for (workload-api.md 7)."""
    wants = set(_wants(obj))
    table = _TABLE[release]
    return tuple(gate for want in _ORDER if want in wants for gate in table.get(want, ()))


def _wants(obj: Object) -> Iterable[str]:
    spec, kind = obj.get("spec") or {}, obj["kind"]
    if kind == "Job":
        yield "group"
        yield "gang"
        yield "job"
        spec = spec.get("scheduling") or {}
    elif kind in ("PodGroup", "Workload", "CompositePodGroup") or (
        kind == "Pod" and (spec.get("schedulingGroup") or spec.get("workloadRef"))
    ):
        yield "group"
    for entry in (spec, *(spec.get("podGroupTemplates") or ())):
        if "gang" in (entry.get("schedulingPolicy") or {}):
            yield "gang"
        if (entry.get("schedulingConstraints") or {}).get("topology"):
            yield "topology"
        if entry.get("disruptionMode") or entry.get("priorityClassName"):
            yield "preemption"
        if entry.get("resourceClaims") and kind != "Pod":
            yield "claims"
        if entry.get("preemptionPolicy") and kind != "Pod":
            yield "policy"
    if kind == "CompositePodGroup" or any(spec.get(name) for name in _COMPOSITE_FIELDS):
        yield "composite"
        yield "topology"


_COMPOSITE_FIELDS = ("compositePodGroupTemplates", "parentCompositePodGroupName")
_ORDER = ("group", "gang", "job", "topology", "preemption", "claims", "composite", "policy")
_TABLE: dict[Release, dict[str, tuple[Gate, ...]]] = {
    "1.35": {
        "group": (Gate("GenericWorkload", _OFF, _SERVER_AND_SCHEDULER),),
        "gang": (Gate("GangScheduling", _OFF, "kube-scheduler"),),
    },
    "1.36": {
        "group": (Gate("GenericWorkload", _OFF, _ALL),),
        "gang": (Gate("GangScheduling", _OFF, "kube-scheduler"),),
        "job": (Gate("WorkloadWithJob", _OFF, _SERVER_AND_CONTROLLERS),),
        "topology": (Gate("TopologyAwareWorkloadScheduling", _OFF, _SERVER_AND_SCHEDULER),),
        "preemption": (Gate("WorkloadAwarePreemption", _OFF, _SERVER_AND_SCHEDULER),),
        "claims": (Gate("DRAWorkloadResourceClaims", _OFF, f"{_ALL}, kubelet"),),
    },
    "1.37": {
        "group": (Gate("GenericWorkload", _BETA_OFF, _ALL),),
        "job": (Gate("WorkloadWithJob", _OFF, _SERVER_AND_CONTROLLERS),),
        "topology": (Gate("TopologyAwareWorkloadScheduling", _OFF, _SERVER_AND_SCHEDULER),),
        "claims": (Gate("DRAWorkloadResourceClaims", _BETA_OFF, f"{_ALL}, kubelet"),),
        "composite": (Gate("CompositePodGroup", _OFF, _SERVER_AND_SCHEDULER),),
        "policy": (Gate("PodGroupPreemptionPolicy", _OFF, _SERVER_AND_SCHEDULER),),
    },
}


def named(obj: Object) -> str:
    """`Kind namespace/name`, without the default namespace."""
    namespace = namespace_of(obj)
    return f"{obj['kind']} {f'{namespace}/' if namespace and namespace != 'default' else ''}{name_of(obj)}"
