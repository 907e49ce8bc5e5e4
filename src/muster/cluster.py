"""`Cluster`, the facade for notebooks and scripts: could this run, where, and if not, why not?

Objects go through the embedded API server (validation, defaults, versions, priorities), membership and order come from
the scheduler's cache, and decisions from the engine, so the answers are those of `muster simulate`. Nothing runs here
and no time passes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias
from warnings import warn

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object, Objects, copy_object, dumps, loads
from muster.api.groups import GroupRef, GroupTerms
from muster.api.manifests import (
    Manifest,
    ManifestError,
    checked,
    creation_order,
    is_from_cluster,
    load,
    parse,
    resource_of,
)
from muster.api.meta import controller_of, key_of, name_of, namespace_of, uid_of
from muster.api.resource import (
    JOBS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    WORKLOADS,
    Resource,
)
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.client.client import object_of, warnings_of
from muster.client.informer import Change
from muster.client.transport import ApiError
from muster.clock import SIMULATION_EPOCH_S
from muster.controllers.action import Create
from muster.controllers.batch.job_creation import new_pod, wanted_active
from muster.controllers.batch.job_groups import GroupApi, plan_group
from muster.controllers.batch.job_spec import JobSpec
from muster.controllers.pod_templates import pod_from_template
from muster.controllers.storage.resource_claims import claim_of, is_shared, name_in_group
from muster.engine.decide import DEFAULT_BUDGET, decide
from muster.engine.explanation.explain import explain
from muster.engine.explanation.question import DEFAULT_EFFORT
from muster.engine.explanation.waiting import RunningGroup
from muster.engine.model import GroupRequest, Infeasible, Member, Placed, Placement
from muster.engine.objects import KINDS
from muster.engine.upstream.baseline import greedy
from muster.nodes.spec import completed
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.explaining.explainer import Explainer
from muster.scheduler.explaining.feed import core_of, in_stored_form, is_of_kubernetes
from muster.scheduler.explaining.names import entities_of
from muster.scheduler.members import PodRecord
from muster.scheduler.options import RELEASES, PlacementMode, SchedulerOptions
from muster.scheduler.pre_enqueue import GroupFacts, hold_of_group
from muster.simulator.forms import decoded, refusal
from muster.simulator.notices import Notice, lines, notices
from muster.simulator.standing import StandingServer

SETS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds that want so many replicas of a pod."""

Source: TypeAlias = str | Path | Sequence[Object] | Sequence[Manifest]
"""A path (a file or a directory), YAML or JSON text (it has a newline), or objects."""

State: TypeAlias = Literal["Placed", "Infeasible", "Undecided"]

JobGroupRules: TypeAlias = Literal["1.36", "1.37"]
"""Which Jobs are gangs: in 1.36, Indexed ones that run all their pods at once; in 1.37, those that say so."""

OURS = "muster"
"""The schedulerName of all pods here: whoever would place them, the question is what we would do."""

_BADNESS: tuple[State, ...] = ("Placed", "Undecided", "Infeasible")
_MADE = "resourceClaimStatuses"
_ENDED = ("Succeeded", "Failed")
_CACHED = {resource.plural: resource for resource in (NODES, PODS, POD_GROUPS, WORKLOADS)}


@dataclass(frozen=True, slots=True)
class Result:
    """What was decided about one or more groups.

    `state`: the worst one of any group. `assignments`: `namespace/name` of each placed pod and its node (pods that do
    not exist yet are named `<job>-<index>`). `explanation`: None if everything was placed, else `summary`, `reasons`
    and `changes` (docs/reference/python.md) of the first group in the worst state.
    """

    state: State
    assignments: dict[str, str]
    explanation: Object | None
    manifests: tuple[Manifest, ...] = field(default=(), repr=False)
    """What was asked about."""


class ManifestWarning(UserWarning):
    """Something in a manifest is not used: a field that its kind does not have, a mark that nobody here reads."""


class _Entity(Struct, frozen=True):
    """A group or a plain pod (`ref` None) with its pending members."""

    key: str
    priority: int
    records: tuple[PodRecord, ...]
    ref: GroupRef | None = None


class Cluster:
    """Nodes and the pods on them. Make one with `load`; not for use from several threads."""

    def __init__(self, *, job_groups: JobGroupRules = "1.36") -> None:
        self._objects = _Objects(job_groups)

    @classmethod
    def load(cls, source: Source, *, job_groups: JobGroupRules = "1.36") -> Cluster:
        """A cluster of the nodes, pods, Jobs and other objects of a source.

        Pods that have a node take room there; pods that have none wait, and Jobs, Deployments and the like stand for
        waiting pods (those of a Job `<job>-<index>`). `job_groups`: the release by whose rules Jobs are gangs. Raises
        `ManifestError`, which names the place of what cannot be used. Warns (`ManifestWarning`) of what is not used,
        such as fields that a kind does not have.
        """
        cluster = cls(job_groups=job_groups)
        cluster._create(read(source))
        return cluster

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, sorted."""
        return sorted(self._objects.cache.nodes)

    @property
    def assignments(self) -> dict[str, str]:
        """The node of every pod that has one, by `namespace/name`."""
        return {key: record.node for key, record in sorted(self._objects.cache.pods.items()) if record.node}

    def __repr__(self) -> str:
        placed, pods = len(self.assignments), len(self._objects.cache.pods)
        return f"<Cluster: {len(self.nodes)} nodes, {placed} pods placed, {pods - placed} waiting>"

    def schedule(self, source: Source, budget_s: float = 1.0, placement: PlacementMode = "exact") -> Result:
        """Decide where the groups and pods of a source would run; changes nothing and never evicts.

        Several groups are decided in queue order (priority, then the order in which they are given), each with those
        before it in place. What the cluster knows already (a PodGroup, its other members) counts. `budget_s` bounds the
        search for groups of unlike pods; it is spent as work, so that the answer does not depend on the machine.
        `placement`: groups are decided exactly, or as a release of kube-scheduler would (`upstream-1.36`,
        `upstream-1.37`); what that does not place is `Undecided`, for it proves nothing. Raises `ManifestError`.
        """
        manifests = tuple(read(source))
        created, pods = self._create(manifests)
        assumed: list[str] = []
        try:
            if not pods:
                raise ManifestError(manifests[0].file if manifests else "<objects>", 0, "there is no pod to schedule")
            answers = [self._decide(entity, budget_s, assumed, placement) for entity in self._entities(pods)]
            standing = {key: node for key in pods if (node := self._objects.cache.pods[key].node)}
        finally:
            for key in assumed:
                self._objects.cache.forget(key)
            self._objects.remove(created)
        if not answers:
            return Result("Placed", standing, None, manifests)
        # Of equally bad answers the first one that has something to say.
        worst = max(answers, key=lambda answer: (_BADNESS.index(answer.state), answer.explanation is not None))
        assignments = {key: node for answer in answers for key, node in answer.assignments.items()}
        return Result(worst.state, assignments, worst.explanation, manifests)

    def explain(
        self, source: Source | None = None, *names: str, namespace: str = "default", effort: int = DEFAULT_EFFORT
    ) -> Objects:
        """Why what waits does so, and the smallest changes that help: an explanation for each group or plain pod.

        `source`: what is asked about besides what the cluster has; it is gone afterwards. `names`: what to explain, as
        `podgroup/NAME`, `job/NAME`, `pod/NAME` or `compositepodgroup/NAME` of the namespace; by default everything that
        waits. Each is explained as if it were next. `effort` bounds the search for changes, in units of work. The form
        is docs/explain-output.schema.json. Raises `ManifestError`, and `UnknownName` (a ValueError).
        """
        created = self._create(read(source))[0] if source is not None else []
        try:
            core = core_of(self._objects.all(), SchedulerOptions(), self._objects.now())
            explainer = Explainer(core, self._objects.now(), effort)
            chosen = [entity for name in names for entity in entities_of(core, name, namespace)]
            return [explainer.explain(entity) for entity in (chosen if names else explainer.entities())]
        finally:
            self._objects.remove(created)

    def apply(self, result: Result) -> None:
        """Take over a result: its objects exist and its pods have their nodes from now on.

        Raises `ManifestError` if the cluster is another one, which has no such node or lacks the room.
        """
        self._objects.create(result.manifests, [])
        cache = self._objects.cache
        for key, node in result.assignments.items():
            if node not in cache.nodes:
                raise ManifestError("result", 0, f"{key} has the node {node}, which this cluster does not have")
        new = [Placement(key, node) for key, node in result.assignments.items() if not cache.pods[key].node]
        cache.reserve_devices(new)
        for each in new:
            self._objects.allocate(each.pod)
            self._objects.bind(cache.pods[each.pod].pod, each.node)

    def _create(self, manifests: Sequence[Manifest]) -> tuple[list[tuple[Resource, str]], list[str]]:
        """As `_Objects.create`; with a warning, to whom called us, of each thing that is not used."""
        found: list[Notice] = []
        try:
            return self._objects.create(manifests, found)
        finally:
            for line in lines(found):
                warn(line, ManifestWarning, stacklevel=3)

    def _entities(self, pods: Iterable[str]) -> list[_Entity]:
        """The groups and plain pods that these pods stand for and that wait, in queue order."""
        cache = self._objects.cache
        found: dict[str, _Entity] = {}
        for key in pods:
            record = cache.pods[key]
            if record.node:
                continue
            if record.ref is None:
                found[key] = _Entity(key, record.priority, (record,))
            elif record.ref.key not in found:
                found[record.ref.key] = self._group_entity(record.ref)
        return sorted(found.values(), key=lambda entity: -entity.priority)

    def _group_entity(self, ref: GroupRef) -> _Entity:
        cache = self._objects.cache
        records, terms = tuple(cache.groups[ref.key].to_place()), cache.terms(ref)
        priority = max(record.priority for record in records)
        if terms is not None and terms.priority is not None:
            priority = terms.priority
        return _Entity(ref.key, priority, records, ref)

    def _decide(self, entity: _Entity, budget_s: float, assumed: list[str], placement: PlacementMode) -> Result:
        """The answer for one entity; its placements are assumed for those after it."""
        cache = self._objects.cache
        held = self._held(entity)
        if held:
            return Result("Infeasible", {}, _said(held))
        terms = (cache.terms(entity.ref) if entity.ref is not None else None) or GroupTerms()
        scheduled, domain = 0, None
        if entity.ref is not None:
            group = cache.groups[entity.key]
            scheduled, domain = len(group.scheduled), cache.one_domain(group, terms)
        if domain is not None and domain.fault:
            return Result("Infeasible", {}, _said(domain.fault))
        members = tuple(Member(record.key, cache.shape(record)) for record in entity.records)
        request = GroupRequest(entity.key, members, terms.min_count, scheduled)
        if entity.ref is not None and placement != "exact":
            return self._as_upstream(entity, replace(request, topology_key=terms.topology_key), placement, assumed)
        request = request if domain is None else domain.bind(request)
        snapshot = cache.state.snapshot()
        decision = decide(snapshot, request, budget=max(1, round(DEFAULT_BUDGET * budget_s)))
        explanation = None
        if not isinstance(decision, Placed) or decision.unplaced:
            explanation = explain(snapshot, request, decision, groups=self._running(entity.key))
        if not isinstance(decision, Placed):
            return Result("Infeasible" if isinstance(decision, Infeasible) else "Undecided", {}, explanation)
        return Result("Placed", self._assume(decision.placements, assumed), explanation)

    def _assume(self, placements: Sequence[Placement], assumed: list[str]) -> dict[str, str]:
        """Puts pods in their places for the questions after this one; the node of each."""
        self._objects.cache.reserve_volumes(placements)
        self._objects.cache.reserve_devices(placements)
        for each in placements:
            self._objects.cache.assume(each.pod, each.node)
            assumed.append(each.pod)
        return dict(placements)

    def _as_upstream(
        self, entity: _Entity, request: GroupRequest, placement: PlacementMode, assumed: list[str]
    ) -> Result:
        """What a release of kube-scheduler does with a group, evicting nobody."""
        cache, release = self._objects.cache, RELEASES[placement]
        nodes = {key: record.node for key, record in cache.groups[entity.key].scheduled.items()}
        found = greedy(cache.state.snapshot(), request, release=release, scheduled=nodes)
        if not found.placed:
            return Result("Undecided", {}, _said(found.message))
        left = next(iter(found.pods.values()), None)
        placements = self._assume(found.placements, assumed)
        return Result("Placed", placements, None if left is None else _said(left))

    def _running(self, asking: str) -> list[RunningGroup]:
        """The other groups that hold room, with the pods that do."""
        groups = sorted(self._objects.cache.groups.items())
        return [(key, sorted(group.scheduled)) for key, group in groups if group.scheduled and key != asking]

    def _held(self, entity: _Entity) -> str:
        """What holds the entity back before any attempt, "" if nothing does."""
        if entity.ref is None:
            return ""
        cache = self._objects.cache
        members, terms = cache.groups[entity.key], cache.terms(entity.ref)
        hold = hold_of_group(GroupFacts(entity.ref, terms, members.known, tuple(members.gated)))
        return hold.message if hold is not None else ""


class _Objects:
    """The objects of a cluster in an API server of its own, and the scheduler's cache of them."""

    def __init__(self, job_groups: JobGroupRules) -> None:
        self.cache = SchedulerCache(frozenset({OURS}))
        self._rules = GroupApi(job_groups)
        self._server = StandingServer(ServerOptions(job_groups=job_groups))
        self._store = self._server.store

    def create(self, manifests: Iterable[Manifest], said: list[Notice]) -> tuple[list[tuple[Resource, str]], list[str]]:
        """Create what does not exist yet, all or nothing. `said` gets what is to be said about the manifests.

        Returns what is new (resource and store key), and the keys of the pods that were meant, old or new, in order.
        """
        created: list[tuple[Resource, str]] = []
        pods: list[str] = []
        given = []
        for manifest in manifests:
            if manifest.left_out:
                said.append(Notice(manifest, manifest.left_out))
            else:
                given.append(self._known(manifest, said))
        owned = {owner.get("uid") for each in given if (owner := controller_of(each.object)) is not None}
        try:
            for manifest in creation_order(given):
                obj = self._create(manifest, manifest.object, created, said)
                stands_for_pods = obj["kind"] in (JOBS.kind, *SETS) and not _has_started(manifest.object, owned)
                made = self._expand(manifest, obj, created) if stands_for_pods else [obj]
                pods += [key_of(each) for each in made if each["kind"] == "Pod" and key_of(each) in self.cache.pods]
            self._make_claims(created)
        except ManifestError:
            self.remove(created)
            raise
        return created, pods

    def _known(self, manifest: Manifest, said: list[Notice]) -> Manifest:
        """A manifest with the fields that its kind has. Raises `ManifestError` for values of a wrong type."""
        if is_from_cluster(manifest.object):
            return manifest
        known, unknown = decoded(manifest)
        said += notices(known, unknown)
        return known

    def all(self) -> Objects:
        """All objects, in stored form."""
        return list(self._store.list("/").items)

    def now(self) -> float:
        """The time that stands still."""
        return SIMULATION_EPOCH_S

    def remove(self, created: Iterable[tuple[Resource, str]]) -> None:
        """Undo `create`."""
        for resource, key in reversed(list(created)):
            self._tell(resource, Change("DELETED", self._store.delete(key), None))

    def bind(self, pod: Object, node: str) -> None:
        """Give a pod its node."""
        bound = copy_object(pod)
        bound["spec"]["nodeName"] = node
        self._store.put(f"/{PODS.plural}/{key_of(pod)}", bound)
        self._tell(PODS, Change("MODIFIED", pod, bound))

    def allocate(self, pod: str) -> None:
        """Give the claims of a pod the devices that are reserved for it."""
        reserved = self.cache.state.device_reservation(pod)
        for each in () if reserved is None else reserved.claims:
            key = f"/{RESOURCE_CLAIMS.plural}/{each.key}"
            claim = self._store.get(key)
            if claim is not None and each.allocation is not None:
                given = {**claim, "status": {**(claim.get("status") or {}), "allocation": each.allocation}}
                self._store.put(key, given)
                self._tell(RESOURCE_CLAIMS, Change("MODIFIED", claim, given))

    def _expand(self, manifest: Manifest, owner: Object, created: list[tuple[Resource, str]]) -> Objects:
        """The pods that a Job or a set of replicas stands for, and the group of a Job before them."""
        if owner["kind"] in SETS:
            return [self._create(manifest, pod, created) for pod in _replicas(owner)]
        return self._expand_job(manifest, owner, created)

    def _expand_job(self, manifest: Manifest, job: Object, created: list[tuple[Resource, str]]) -> Objects:
        """The pods that a Job stands for, and its group before them, by the Job controller's own rules."""
        spec = JobSpec.of(job)
        if job["spec"].get("suspend"):
            return []
        workloads: Objects = []
        groups: Objects = []
        plan = plan_group(job, spec, (), workloads, groups, self._rules)
        while not plan.is_ready:
            for action in plan.actions:
                assert isinstance(action, Create), "a group is made of new objects"
                made = self._create(manifest, action.object, created)
                (workloads if made["kind"] == WORKLOADS.kind else groups).append(made)
            plan = plan_group(job, spec, (), workloads, groups, self._rules)
        return [self._create(manifest, pod, created) for pod in _job_pods(job, spec, plan.group)]

    def _make_claims(self, created: list[tuple[Resource, str]]) -> None:
        """The claims that new groups and pods ask for by template, by the rules of the controller that makes them."""
        for kind in (POD_GROUPS, PODS):
            for key in [key for resource, key in created if resource == kind]:
                owner = self._store.get(key)
                if owner is not None and owner["spec"].get("resourceClaims") and not owner.get("status", {}).get(_MADE):
                    self._make_claims_of(kind, key, owner, created)

    def _make_claims_of(self, kind: Resource, key: str, owner: Object, created: list[tuple[Resource, str]]) -> None:
        group_name = (owner["spec"].get("schedulingGroup") or {}).get("podGroupName") if kind == PODS else None
        group = self._store.get(f"/{POD_GROUPS.plural}/{namespace_of(owner)}/{group_name}") if group_name else None
        names = {
            entry["name"]: name_in_group(group, entry)
            if is_shared(group, entry)
            else self._make_claim(kind, owner, entry, created)
            for entry in owner["spec"]["resourceClaims"]
            if entry.get("resourceClaimTemplateName")
        }
        made = [{"name": entry, "resourceClaimName": name} for entry, name in names.items() if name]
        told = {**owner, "status": {**(owner.get("status") or {}), _MADE: made}}
        self._store.put(key, told)
        self._tell(kind, Change("MODIFIED", owner, told))

    def _make_claim(self, kind: Resource, owner: Object, entry: Object, created: list[tuple[Resource, str]]) -> str:
        """The name of a new claim for an entry of the owner, or "" if there is no such template."""
        name = entry["resourceClaimTemplateName"]
        template = self._store.get(f"/{RESOURCE_CLAIM_TEMPLATES.plural}/{namespace_of(owner)}/{name}")
        if template is None:
            return ""
        claim = claim_of(kind, owner, entry, template)
        claim["metadata"]["name"] = f"{name_of(owner)}-{entry['name']}"
        self._create(Manifest("<claims>", 0, claim), claim, created)
        return name_of(claim)

    def _create(
        self,
        manifest: Manifest,
        obj: Object,
        created: list[tuple[Resource, str]],
        said: list[Notice] | None = None,
    ) -> Object:
        """Create one object, with its namespace; the stored object, which may have been there before."""
        resource = resource_of(obj)
        assert resource is not None, "the kinds of manifests are known"
        namespace = (namespace_of(obj) or "default") if resource.namespaced else ""
        if namespace and self._store.get(f"/{NAMESPACES.plural}/{namespace}") is None:
            plain = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self._create(manifest, plain, created)
        if is_from_cluster(obj):
            return self._take_over(resource, namespace, obj, created)
        try:
            response = self._server.handle(ApiRequest("POST", resource.path(namespace), body=_prepared(obj)))
            answer = object_of(response)
        except ApiError as error:
            if not error.is_already_exists:
                raise manifest.refused(refusal(manifest, error)) from error
            return self._stored(resource, namespace, name_of(obj))
        if said is not None:
            said += [Notice(manifest, text) for text in warnings_of(response)]
        stored = self._stored(resource, namespace, name_of(answer))
        created.append((resource, _store_key(resource, namespace, name_of(answer))))
        if not _has_ended(obj):
            self._tell(resource, Change("ADDED", None, stored))
        return stored

    def _take_over(
        self, resource: Resource, namespace: str, obj: Object, created: list[tuple[Resource, str]]
    ) -> Object:
        """An object of a real cluster, as it is there."""
        obj = in_stored_form(copy_object(obj))
        if obj["kind"] == "Pod":  # those that run too: the members of a group are of one scheduler
            obj["spec"]["schedulerName"] = OURS
        key = _store_key(resource, namespace, name_of(obj))
        known = self._store.get(key)
        if known is not None:
            return known
        self._store.put(key, obj)
        created.append((resource, key))
        if not _has_ended(obj):
            self._tell(resource, Change("ADDED", None, obj))
        return obj

    def _stored(self, resource: Resource, namespace: str, name: str) -> Object:
        stored = self._store.get(_store_key(resource, namespace, name))
        assert stored is not None, "the server said that it exists"
        return stored

    def _tell(self, resource: Resource, change: Change) -> None:
        if resource.kind in KINDS and is_of_kubernetes(resource.group):
            self.cache.apply_objects(resource.kind, [change])
            return
        known = _CACHED.get(resource.plural)
        if known is None or known.group != resource.group:
            return
        apply = {
            NODES.plural: self.cache.apply_nodes,
            PODS.plural: self.cache.apply_pods,
            POD_GROUPS.plural: self.cache.apply_pod_groups,
            WORKLOADS.plural: self.cache.apply_workloads,
        }
        apply[resource.plural]([change])


def read(source: Source) -> list[Manifest]:
    """The objects of a source. Raises `ManifestError`, which names the file and the line."""
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source):
        return load(source)
    if isinstance(source, str):
        return parse(source)
    objects: Sequence[Object | Manifest] = source
    return [
        each if isinstance(each, Manifest) else _written(Manifest("<objects>", number, each))
        for number, each in enumerate(objects, start=1)
    ]


def _written(manifest: Manifest) -> Manifest:
    """An object that a program made, as it would be written down. Raises `ManifestError`."""
    if is_from_cluster(checked(manifest).object):
        return manifest
    try:
        return checked(replace(manifest, object=loads(dumps(manifest.object))))
    except TypeError as error:
        raise manifest.error(f"this cannot be written as JSON: {error}") from error


def _replicas(owner: Object) -> Objects:
    """The pods that a Deployment or the like wants, named `<owner>-<index>`."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
    }
    pods = []
    for index in range(owner["spec"].get("replicas", 1)):
        pod = pod_from_template(owner["spec"]["template"], owner, reference)
        pod["metadata"]["name"] = f"{name_of(owner)}-{index}"
        del pod["metadata"]["generateName"]
        pods.append(pod)
    return pods


def _job_pods(job: Object, spec: JobSpec, group: str | None) -> Objects:
    """The pods that a Job that has not started wants, named `<job>-<index>`."""
    pods = []
    for index in range(wanted_active(spec, 0, 0)):
        pod = new_pod(job, spec, index if spec.is_indexed else None, None, group)
        pod["metadata"]["name"] = f"{name_of(job)}-{index}"
        del pod["metadata"]["generateName"]
        pods.append(pod)
    return pods


def _prepared(obj: Object) -> Object:
    """The object as it is sent: nodes as their kubelet would complete them, pods as ours."""
    if obj["kind"] == "Node":
        return completed(obj, SIMULATION_EPOCH_S)
    obj = copy_object(obj)
    for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        obj["metadata"].pop(name, None)
    if obj["kind"] == "Pod" and isinstance(obj.get("spec"), dict):
        obj["spec"]["schedulerName"] = OURS
    return obj


def _has_ended(obj: Object) -> bool:
    return obj["kind"] == "Pod" and (obj.get("status") or {}).get("phase") in _ENDED


def _has_started(job: Object, owned: Container[object]) -> bool:
    """Whether the pods of a Job are there already. `owned`: the uids of those that own something that was given."""
    status = job.get("status") or {}
    return bool(uid := job["metadata"].get("uid")) and (uid in owned or bool(status.get("conditions")))


def _store_key(resource: Resource, namespace: str, name: str) -> str:
    return f"/{resource.plural}/{namespace}/{name}" if resource.namespaced else f"/{resource.plural}/{name}"


def _said(summary: str) -> Object:
    return {"summary": summary, "reasons": [], "changes": []}
