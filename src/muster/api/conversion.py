"""Whole manifests from one way to describe groups into another, with an account of what is lost or made on the way.

Groups go through the stored form (v1alpha3); pods and pod templates, wherever they are inside an object, are made to
name their group in the way of the target. Pure functions. The rules between Kubernetes' own versions are those of
`versions`, those of other schedulers are in `dialects`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from muster.api import foreign
from muster.api.codec import JSON, Object, Objects
from muster.api.dialects import DIALECTS, Dialect, dialect_of, group_from_hub, group_to_hub, marked_group
from muster.api.groups import POD_GROUP_KEY
from muster.api.versions import GROUP, from_hub, losses, to_hub

MUSTER = "scheduling.muster-k8s.dev/v1beta1"
"""The same kinds as custom resources of this project, on clusters that do not serve Kubernetes' own."""

NATIVE = tuple(f"{GROUP}/{version}" for version in ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"))
TARGETS = (*NATIVE, MUSTER, *DIALECTS)
"""What manifests can be converted to."""

SHORT = {
    **{version.partition("/")[2]: version for version in NATIVE},
    "muster": MUSTER,
    **{
        name.lower(): api_version
        for api_version, name in ((each, foreign.NAMES[each.partition("/")[0]]) for each in DIALECTS)
    },
}
"""Short names of targets."""

OUR_SCHEDULER = "muster"

_LABEL_LIMIT = 63
_GROUP_KINDS = ("PodGroup", "Workload", "CompositePodGroup")


class Remark(Struct, frozen=True):
    """What became of a part of an object. `object`: `Kind namespace/name`. `path`: the field. `lost`: it says less."""

    object: str
    path: str
    text: str
    lost: bool = True


class Converted(Struct, frozen=True):
    """The objects in order, those that had to be made at the end, and the remarks."""

    objects: Objects
    remarks: list[Remark]


Link: TypeAlias = tuple[str, str, str]
"""How a pod of v1alpha1 names its group: Workload, template, replica key ("" for none)."""


def convert(objects: Sequence[Object], target: str) -> Converted:
    """The objects with all that is about groups in the words of `target`, one of `TARGETS`.

    What is not about groups is passed on as it is. Raises ValueError if there is no such target.
    """
    if target not in TARGETS:
        raise ValueError(f"no target {target!r}: must be one of {', '.join(TARGETS)}")
    run = _Run(target)
    for obj in objects:
        run.learn(obj)
    done = [converted for obj in objects if (converted := run.object(obj)) is not None]
    return Converted([*done, *run.made()], run.remarks)


class _Run:
    """One conversion: the groups that are known, the links that pods have, and the remarks so far."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.remarks: list[Remark] = []
        self._groups: dict[str, Object] = {}
        self._workloads: dict[str, Object] = {}
        self._links: dict[tuple[str, Link], str] = {}
        self._alone: dict[str, Object] = {}

    def learn(self, obj: Object) -> None:
        """Note a group or Workload, so that pods before it in the file can name it."""
        hub = _hub(obj)
        if hub is not None:
            known = {"PodGroup": self._groups, "Workload": self._workloads}.get(hub["kind"])
            if known is not None:
                known[_key(hub)] = hub

    def object(self, obj: Object) -> Object | None:
        """The object in the target's words; None if the target has no such object."""
        hub = _hub(obj)
        dialect = dialect_of(obj)
        if hub is None:
            self._tell_foreign(obj)
            return self._with_pods(obj)
        if obj["apiVersion"] == self.target or (dialect is not None and dialect.api_version == self.target):
            return obj
        if dialect is None:
            for path in foreign.unknown_fields(obj):
                self._say(obj, path, "no such field: a server drops or refuses it", lost=False)
        if dialect is not None:
            _, lost = group_to_hub(obj)
            self._lose(obj, lost, f"nothing here says what it says for {dialect.group}")
        return self._group(hub)

    def made(self) -> Objects:
        """The groups that pods need and no object of the input describes."""
        objects: Objects = []
        if self.target == NATIVE[0]:
            objects += [from_hub(workload, "v1alpha1") for workload in self._alone.values()]
        for (namespace, link), name in self._links.items():
            group = self._group_of_link(namespace, link, name)
            if group is not None and (converted := self._group(group)) is not None:
                self._say(
                    group, "", f"made for the pods that name {'/'.join(part for part in link if part)}", lost=False
                )
                objects.append(converted)
        return objects

    def _group(self, hub: Object) -> Object | None:
        kind = hub["kind"]
        if self.target in DIALECTS:
            return self._foreign(hub)
        version = self.target.partition("/")[2]
        if kind == "CompositePodGroup" and self.target not in (NATIVE[2], MUSTER):
            self._say(hub, "", f"{self.target} has no CompositePodGroup")
            return None
        if kind == "PodGroup" and version == "v1alpha1":
            self._as_workload(hub)
            return None
        self._lose(hub, losses(hub, version), f"{self.target} does not have it")
        if hub.get("status") and kind == "PodGroup":
            self._say(hub, "status", "the scheduler writes it anew")
            hub = {key: value for key, value in hub.items() if key != "status"}
        converted = from_hub(hub, version)
        return {**converted, "apiVersion": self.target}

    def _foreign(self, hub: Object) -> Object | None:
        if hub["kind"] != "PodGroup":
            self._say(hub, "", f"{self.target} has only groups of pods, no {hub['kind']}")
            return None
        converted, lost = group_from_hub(hub, self.target)
        self._lose(hub, lost, f"{self.target} does not have it")
        return converted

    def _as_workload(self, group: Object) -> None:
        """v1alpha1 has no PodGroup: one that comes from no Workload becomes a Workload with one template."""
        template = {"name": "group", **{key: value for key, value in group["spec"].items() if key != "workloadRef"}}
        if _origin(group, self._workloads) is None:
            workload = {**group, "kind": "Workload", "spec": {"podGroupTemplates": [template]}}
            workload.pop("status", None)
            self._lose(
                group,
                [path.replace("podGroupTemplates[0].", "") for path in losses(workload, "v1alpha1")],
                f"{self.target} does not have it",
            )
            self._alone[_key(group)] = workload
            self._say(group, "", "becomes a Workload with one template", lost=False)
        else:
            self._say(group, "", "v1alpha1 has no PodGroup: its pods name the template of its Workload", lost=False)

    def _group_of_link(self, namespace: str, link: Link, name: str) -> Object | None:
        workload, template, _ = link
        found = self._workloads.get(f"{namespace}/{workload}")
        entries = (found or {}).get("spec", {}).get("podGroupTemplates") or ()
        entry = next((each for each in entries if each.get("name") == template), None)
        metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
        if entry is None:
            self._say(
                {"kind": "PodGroup", "metadata": metadata},
                "",
                f"not made: there is no Workload {workload} with a template {template} in the input",
            )
            return None
        spec = {key: value for key, value in entry.items() if key != "name"}
        spec["workloadRef"] = {"workloadName": workload, "templateName": template}
        return {"apiVersion": f"{GROUP}/v1alpha3", "kind": "PodGroup", "metadata": metadata, "spec": spec}

    def _tell_foreign(self, obj: Object) -> None:
        """Name an object that is for another scheduler only, such as a queue."""
        owner = foreign.owner_of(obj)
        if owner and not self._is_for(owner):
            self._say(obj, "", f"passed on as it is: only {owner} does something with it")

    def _is_for(self, owner: str) -> bool:
        return self.target in DIALECTS and foreign.NAMES.get(DIALECTS[self.target].group) == owner

    def _tell_marks(self, metadata: Object, obj: Object) -> None:
        """Name the labels and annotations of pods that are for another scheduler only."""
        for place in ("labels", "annotations"):
            for key in sorted(metadata.get(place) or {}):
                owner = foreign.owner_of_mark(key)
                if owner and not self._is_for(owner) and not (key in foreign.UNDERSTOOD and self._is_ours):
                    self._say(obj, f"{place}[{key}]", f"left as it is: only {owner} reads it")

    @property
    def _is_ours(self) -> bool:
        """Whether the pods are for our scheduler."""
        return self.target not in DIALECTS

    def _with_pods(self, obj: Object) -> Object:
        namespace = str((obj.get("metadata") or {}).get("namespace") or "")
        changed = _each_pod(obj, lambda pod: self._pod(pod, obj, namespace))
        return changed if isinstance(changed, dict) else obj

    def _pod(self, pod: Object, owner: Object, namespace: str) -> Object:
        """A pod or pod template that names its group as the target's pods do."""
        metadata, spec = dict(pod.get("metadata") or {}), dict(pod["spec"])
        if self._is_named_so(metadata):
            return pod
        name, dialect = self._named(metadata, spec, namespace)
        self._tell_marks(metadata, owner)
        if not name:
            return pod
        spec.pop("schedulingGroup", None)
        spec.pop("workloadRef", None)
        if dialect is not None and spec.get("schedulerName") in dialect.schedulers:
            ours = DIALECTS[self.target].schedulers[0] if self.target in DIALECTS else OUR_SCHEDULER
            self._say(owner, "spec.schedulerName", f"{spec['schedulerName']} becomes {ours}", lost=False)
            spec["schedulerName"] = ours
        self._name(name, namespace, metadata, spec)
        changed = {**pod, "metadata": metadata, "spec": spec}
        if not metadata:
            del changed["metadata"]
        return changed

    def _is_named_so(self, metadata: Object) -> bool:
        """Whether a pod names its group in the words of the target already."""
        found = marked_group(metadata)
        return found is not None and found[1].api_version == self.target

    def _named(self, metadata: Object, spec: Object, namespace: str) -> tuple[str, Dialect | None]:
        """The PodGroup that a pod names in whatever way, and takes other schedulers' marks off `metadata`."""
        group = (spec.get("schedulingGroup") or {}).get("podGroupName")
        if group:
            return str(group), None
        ref = spec.get("workloadRef")
        if ref:
            link = (ref.get("name", ""), ref.get("podGroup", ""), ref.get("podGroupReplicaKey") or "")
            name = "-".join(part for part in link if part)
            if self.target != NATIVE[0]:
                self._links[namespace, link] = name
            return name, None
        for place in ("annotations", "labels"):
            if own := (metadata.get(place) or {}).get(POD_GROUP_KEY):
                _unmark(metadata, place, POD_GROUP_KEY)
                return str(own), None
        found = marked_group(metadata)
        if found is None:
            return "", None
        for mark in found[1].marks:
            _unmark(metadata, mark.place, mark.key)
        return found

    def _name(self, name: str, namespace: str, metadata: Object, spec: Object) -> None:
        if self.target in DIALECTS:
            mark = DIALECTS[self.target].marks[0]
            metadata[mark.place] = {**(metadata.get(mark.place) or {}), mark.key: name}
        elif self.target == MUSTER:
            place = "labels" if len(name) <= _LABEL_LIMIT else "annotations"
            metadata[place] = {**(metadata.get(place) or {}), POD_GROUP_KEY: name}
        elif self.target == NATIVE[0]:
            spec["workloadRef"] = self._workload_ref(name, namespace)
        else:
            spec["schedulingGroup"] = {"podGroupName": name}

    def _workload_ref(self, name: str, namespace: str) -> Object:
        group = self._groups.get(f"{namespace}/{name}")
        origin = _origin(group, self._workloads) if group is not None else None
        if origin is None:
            return {"name": name, "podGroup": "group"}
        return {"name": origin[0], "podGroup": origin[1], "podGroupReplicaKey": name}

    def _lose(self, obj: Object, paths: Sequence[str], why: str) -> None:
        for path in paths:
            self._say(obj, path, why)

    def _say(self, obj: Object, path: str, text: str, *, lost: bool = True) -> None:
        metadata = obj.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        namespace = metadata.get("namespace")
        self.remarks.append(Remark(f"{obj.get('kind')} {f'{namespace}/' if namespace else ''}{name}", path, text, lost))


def _hub(obj: Object) -> Object | None:
    """A group object in stored form, whoever's words it is in; None for anything else."""
    if dialect_of(obj) is not None:
        return group_to_hub(obj)[0]
    group, _, version = str(obj.get("apiVersion") or "").partition("/")
    if obj.get("kind") not in _GROUP_KINDS or f"{group}/{version}" not in (*NATIVE, MUSTER):
        return None
    return to_hub(obj, version)


def _origin(group: Object, workloads: dict[str, Object]) -> tuple[str, str] | None:
    """The Workload and the template that a PodGroup comes from, if both are there."""
    ref = group["spec"].get("workloadRef") or {}
    namespace = (group.get("metadata") or {}).get("namespace") or ""
    workload = workloads.get(f"{namespace}/{ref.get('workloadName')}")
    names = [entry.get("name") for entry in ((workload or {}).get("spec") or {}).get("podGroupTemplates") or ()]
    return (ref["workloadName"], ref["templateName"]) if ref.get("templateName") in names else None


def _each_pod(value: JSON, change: Callable[[Object], Object]) -> JSON:
    """The value with every pod and pod template in it changed: what has a `spec` with a list of `containers`."""
    if isinstance(value, list):
        return [_each_pod(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        return change(value)
    return {key: _each_pod(item, change) for key, item in value.items()}


def _unmark(metadata: Object, place: str, key: str) -> None:
    left = {name: value for name, value in (metadata.get(place) or {}).items() if name != key}
    if left:
        metadata[place] = left
    else:
        metadata.pop(place, None)


def _key(obj: Object) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
