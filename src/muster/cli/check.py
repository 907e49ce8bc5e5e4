"""`muster check`: what each release of Kubernetes makes of manifests, and of the Jobs and groups in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from muster.api.codec import Object, Objects
from muster.api.groups import group_of
from muster.api.manifests import Manifest, ManifestError
from muster.api.meta import name_of, namespace_of
from muster.cli.check_view import draw
from muster.cli.errors import CheckFailed
from muster.cli.inputs import read_manifests, read_nodes
from muster.cli.options import INPUT_RANK, NodeSpecs, Output, Write
from muster.cli.output import check_writable, emit

CHECKED = Group("What is checked", sort_key=INPUT_RANK)
Release = Literal["1.35", "1.36", "1.37"]
_MODES: dict[str, Literal["upstream-1.36", "upstream-1.37"]] = {"1.36": "upstream-1.36", "1.37": "upstream-1.37"}


def check(
    *,
    file: Annotated[tuple[Path, ...], Parameter(name=["--file", "-f"], consume_multiple=1, negative="", group=CHECKED)],
    release: Annotated[
        tuple[Release, ...], Parameter(consume_multiple=1, negative="", show_default=False, group=CHECKED)
    ] = (),
    nodes: NodeSpecs = (),
    output: Output = "table",
    write: Write = None,
) -> int:
    """Check manifests against releases of Kubernetes: would the API server take them, which Jobs become gangs?

    Says which fields a release does not know, which feature gates are needed, whether the pods of a group are alike,
    and, if there are nodes, what kube-scheduler's greedy group cycle would do, beside Muster. Exit code 1 if no release
    takes an object.

    Parameters
    ----------
    file
        Manifests, or directories of them; - is standard input. Repeatable.
    release
        Releases to check. Repeatable. Default: 1.35, 1.36 and 1.37.
    nodes
        Nodes to try it on, as in muster simulate. Repeatable.
    output
        How to print the result.
    write
        Write the result into this file instead.
    """
    check_writable(write)
    manifests = read_manifests(file)
    value = checked(manifests, release or ("1.35", "1.36", "1.37"), nodes)
    emit(value, output, write, lambda console: draw(value, console))
    refused = [each["object"] for each in value["objects"] if all(found["problem"] for found in each["releases"])]
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise CheckFailed(f"no release takes {', '.join(refused[:3])}{more}")
    return 0


def checked(manifests: list[Manifest], releases: tuple[Release, ...], nodes: tuple[str, ...]) -> Object:
    """The result as JSON: `objects`, each with what the releases say, and `groups`. Raises `BadInput`."""
    from muster.simulator.checking import check_objects, named
    from muster.simulator.forms import decoded

    newest_first = sorted(releases)
    findings = zip(*(check_objects(manifests, each) for each in newest_first), strict=True)
    objects: Objects = [
        {
            "object": named(manifest.object),
            "file": manifest.file,
            "line": manifest.line,
            "leftOut": manifest.left_out,
            "releases": [asdict(each) for each in found],
        }
        for manifest, found in zip(manifests, findings, strict=True)
    ]
    taken = [
        decoded(manifest)[0]
        for manifest, found in zip(manifests, objects, strict=True)
        if not manifest.left_out and not all(each["problem"] for each in found["releases"])
    ]
    groups = [_group(taken, each, newest_first, read_nodes(nodes)) for each in _groups(taken)]
    return {"releases": newest_first, "objects": objects, "groups": groups}


def _groups(manifests: list[Manifest]) -> list[list[Manifest]]:
    """The Jobs, and the PodGroups with their pods that wait and the sets of replicas that make some."""
    found = [[each] for each in manifests if each.object["kind"] == "Job"]
    for group in (each for each in manifests if each.object["kind"] == "PodGroup"):
        key = f"{namespace_of(group.object) or 'default'}/{name_of(group.object)}"
        pods = [each for each in manifests if _group_key(each.object) == key]
        if pods:
            found.append([group, *pods])
    return found


def _group_key(obj: Object) -> str:
    """The group that a pod that waits names, or the template of a set of replicas; "" for none."""
    from muster.cluster import SETS

    if obj["kind"] in SETS:
        pod = _template(obj)
    elif _is_pending(obj):
        pod = obj
    else:
        return ""
    namespace = namespace_of(obj) or "default"
    ref = group_of({**pod, "metadata": {**pod["metadata"], "namespace": namespace}})
    return "" if ref is None else ref.key


def _group(
    manifests: list[Manifest], asked: list[Manifest], releases: Iterable[Release], nodes: list[Manifest]
) -> Object:
    from muster.simulator.checking import gates_of, integration_of, named

    first = asked[0].object
    is_job = first["kind"] == "Job"
    found: Objects = []
    for release in releases:
        said = asdict(integration_of(first, release)) if is_job else _as_it_is(first, release)
        gates = said.pop("gates", None) or [asdict(gate) for gate in gates_of(first, release)]
        found.append(
            {**said, "gates": gates if said["outcome"] != "none" else [], **_tried(manifests, asked, release, nodes)}
        )
    members = asked if is_job else asked[1:]
    pods = [each.object if each.object["kind"] == "Pod" else _template(each.object) for each in members]
    return {"object": named(first), **_likeness(pods, is_job), "releases": found}


def _as_it_is(group: Object, release: Release) -> Object:
    gang = (group["spec"].get("schedulingPolicy") or {}).get("gang")
    count = 1 if gang is None else gang.get("minCount", 1)
    return {"release": release, "outcome": "basic" if gang is None else "gang", "min_count": count, "unmet": []}


def _template(job: Object) -> Object:
    template = job["spec"].get("template") or {}
    return {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}


def _likeness(pods: Objects, is_job: bool) -> Object:
    """Whether the pods are alike, and what they have to say about each other."""
    from muster.engine.shape import parse_shape

    shapes = {parse_shape(pod) for pod in pods}
    rules = sorted({rule for pod in pods for rule in _rules_between(pod["spec"])})
    alike = is_job or len(shapes) <= 1
    return {
        "homogeneous": alike,
        "kinds": 1 if is_job else len(shapes),
        "rules": rules,
        "greedyIsEnough": alike and not rules,
    }


def _rules_between(spec: Object) -> list[str]:
    """Hard rules about other pods, which may be of the same group."""
    found = []
    affinity, required = spec.get("affinity") or {}, "requiredDuringSchedulingIgnoredDuringExecution"
    for name in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(name) or {}).get(required):
            found.append(name)
    if any(each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in spec.get("topologySpreadConstraints") or ()):
        found.append("topologySpreadConstraints")
    if any(volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ()):
        found.append("persistentVolumeClaim")
    return found


def _tried(manifests: list[Manifest], asked: list[Manifest], release: Release, nodes: list[Manifest]) -> Object:
    """What kube-scheduler and Muster would do with it, on the nodes that are given; nothing without any."""
    from muster.cli.manifest_warnings import manifest_warnings
    from muster.cluster import Cluster

    mine = {id(each) for each in asked}
    others = [
        each
        for each in manifests
        if id(each) not in mine and each.object["kind"] not in ("Job", "PodGroup") and not _is_pending(each.object)
    ]
    if release == "1.35" or not (nodes or any(each.object["kind"] == "Node" for each in others)):
        return {"kubeScheduler": None, "muster": None}
    try:
        with manifest_warnings(silent=True):
            cluster = Cluster.load([*others, *nodes], job_groups=release)
            exact, greedy = cluster.schedule(asked), cluster.schedule(asked, placement=_MODES[release])
    except ManifestError as error:
        said = {"state": "Refused", "placed": 0, "message": str(error)}
        return {"kubeScheduler": said, "muster": said}
    return {
        name: {
            "state": result.state,
            "placed": len(result.assignments),
            "message": (result.explanation or {}).get("summary", ""),
        }
        for name, result in (("kubeScheduler", greedy), ("muster", exact))
    }


def _is_pending(obj: Object) -> bool:
    return obj["kind"] == "Pod" and not obj["spec"].get("nodeName")
