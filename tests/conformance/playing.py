"""Play the actions of a recorded scenario: those of a person who creates, patches, deletes, and of the kubelets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from naming import Names
from node_kubelets import NodeKubelets
from outcome import Difference
from pod_kubelets import REQUEST_S, PodKubelets
from states import POD_GROUPS_1_36, WORKLOADS_1_36, sort_key

from muster.api.codec import JSON, Object
from muster.api.meta import is_deleting, name_of
from muster.api.resource import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from muster.client.client import Client
from muster.client.informer import Change, Informer
from muster.client.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiError
from muster.clock import Clock, rfc3339

RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        CONFIG_MAPS,
        CRON_JOBS,
        DAEMON_SETS,
        DEPLOYMENTS,
        ENDPOINT_SLICES,
        JOBS,
        LEASES,
        LIMIT_RANGES,
        NAMESPACES,
        NODES,
        PODS,
        POD_DISRUPTION_BUDGETS,
        POD_GROUPS_1_36,
        REPLICA_SETS,
        RESOURCE_QUOTAS,
        SERVICES,
        STATEFUL_SETS,
        WORKLOADS_1_36,
    )
}
PATCH_TYPES = {"merge": MERGE_PATCH, "strategic": STRATEGIC_MERGE_PATCH, "json": JSON_PATCH}

POD_WAIT_S = 400.0
"""A kubelet action names pods that controllers are still to make; so long it waits for them."""


@dataclass(slots=True)
class Player:
    """Plays actions; `differences` collects answers that are not as recorded (paths without the step)."""

    client: Client
    clock: Clock
    names: Names
    pods: Informer
    differences: list[Difference]
    addresses: dict[str, str]
    appeared: dict[str, float]
    """When each pod was first seen."""
    named: list[Informer]
    """Of other kinds whose names have random parts."""
    node_objects: Informer
    nodes: NodeKubelets
    recorded: Object
    """The recorded state after the step that is played: it tells what an action does not say."""
    default_node: str = "n1"
    """Where pods run that may run anywhere."""
    note: str = ""
    """What the recording notes about the step that is played."""

    @classmethod
    def of(cls, client: Client, clock: Clock, names: Names) -> Player:
        """A player for one namespace."""
        pods = Informer(client, clock, PODS, namespace=names.namespace)
        nodes = Informer(client, clock, NODES)
        named = [Informer(client, clock, kind, namespace=names.namespace) for kind in _NAMED]
        player = cls(client, clock, names, pods, [], {}, {}, named, nodes, NodeKubelets(client, clock), {})
        for informer in (*named, pods):
            informer.add_handler(player.watch)
        return player

    def watch(self, changes: list[Change]) -> None:
        """Give names to new pods."""
        for change in changes:
            if change.type == "ADDED":
                self.names.see(change.object)
                if change.object["kind"] != "Pod":
                    continue
                self.appeared.setdefault(name_of(change.object), self.clock.now())

    async def play(self, action: JSON) -> None:
        """Play one action of a step."""
        if isinstance(action, str):
            raise NotImplementedError(action)
        for name, play in _PLAYS.items():
            if name in action:
                try:
                    await play(self, action[name])
                    if action.get("note") == _WITHOUT_TAINT:
                        made = action["create"]
                        await self.client.patch(
                            NODES, None, name_of(made), {"spec": {"taints": made["spec"]["taints"]}}
                        )
                except ApiError as error:
                    self._refused(action, error)
                else:
                    if "refused" in action:
                        self.differences.append(Difference("refused", action["refused"], None))
                return
        raise NotImplementedError(str(action))

    def _refused(self, action: Object, error: ApiError) -> None:
        want = action.get("refused")
        message = self.names.write_text(str(error.status.get("message")))
        got = {"code": error.code, "reason": error.reason or None, "message": message}
        if want is None or _comparable(want) != _comparable(got):
            self.differences.append(Difference("refused", want, got))

    async def create(self, obj: Object) -> None:
        """Create an object as given."""
        if isinstance(obj, str):
            await self._create_many(obj)
            return
        resource = _resource(obj["kind"])
        filled = self._fill(obj)
        metadata = filled["metadata"]
        stays = self._is_recorded(obj["kind"], name_of(obj))
        owners = metadata.pop("ownerReferences", None) or ()
        if owners:
            metadata["ownerReferences"] = [await self._owner(owner, stays, len(owners)) for owner in owners]
        namespace = metadata.get("namespace", self._namespace(obj)) if resource.namespaced else None
        await self.client.create(resource, namespace, filled)
        if resource is NODES and "status" in filled:
            await self.client.patch(NODES, None, name_of(filled), {"status": filled["status"]}, subresource="status")

    async def _create_many(self, sentence: str) -> None:
        """Create the pods of a Service that a sentence tells of, and run them."""
        match = _MANY_PODS.fullmatch(sentence)
        if match is None:
            raise NotImplementedError(sentence)
        nodes = match["nodes"].split(", ")
        (service,) = (await self.client.list(SERVICES, self.names.namespace)).items
        for index in range(int(match["count"])):
            name = f"{match['base']}{index}"
            labels = dict(service["spec"]["selector"])
            (written,) = (each for each in self.recorded["Pod"] if each["name"] == name)
            spec = {"containers": written["containers"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
            created = await self.client.create(PODS, self.names.namespace, pod)
            kubelets = PodKubelets(
                self.client, self.clock, self.pods, self.addresses, nodes[index % len(nodes)], self._written_order
            )
            await kubelets.run_pod(created)
            await self.clock.sleep(REQUEST_S)

    def _is_recorded(self, kind: str, name: str) -> bool:
        """Whether the recorded state shows an object of that name in the scenario's namespace."""
        return name in (obj["name"] for obj in self.recorded.get(kind) or ())

    def _namespace(self, obj: Object) -> str:
        """The scenario's namespace, or the other one if only there the recorded state shows the object."""
        name = name_of(obj)
        elsewhere = self.recorded.get(f"other namespace: {obj['kind']}") or ()
        is_there = name in (other["name"] for other in elsewhere)
        other = is_there and not self._is_recorded(obj["kind"], name)
        return f"{self.names.namespace}-other" if other else self.names.namespace

    async def _owner(self, owner: Object, stays: bool, count: int) -> Object:
        """An owner reference with the uid that `<uid>` stands for: that of the object so named, if there is one.

        If the recorded dependent is gone at once although its only owner is there, the uid was another one.
        """
        if owner.get("uid") != "<uid>":
            return owner
        resource = RESOURCES[owner["kind"]]
        found = []
        for namespace in (self.names.namespace, f"{self.names.namespace}-other") if resource.namespaced else (None,):
            try:
                found.append(await self.client.get(resource, namespace, owner["name"]))
            except ApiError:
                continue
        was_other = count == 1 and not stays and self._is_recorded(owner["kind"], owner["name"])
        return {**owner, "uid": self.names.owner_uid([] if was_other else found)}

    def _fill(self, obj: JSON) -> JSON:
        """A deep copy with the names of this run."""
        if isinstance(obj, dict):
            return {self._fill(key): self._fill(value) for key, value in obj.items()}
        if isinstance(obj, list):
            return [self._fill(item) for item in obj]
        if obj == "<time>":
            return rfc3339(self.clock.now())
        return obj.replace("<ns>", self.names.namespace) if isinstance(obj, str) else obj

    async def patch(self, action: Object) -> None:
        """Patch an object or a subresource of it."""
        resource = _resource(action["kind"])
        namespace = self.names.namespace if resource.namespaced else None
        await self.client.patch(
            resource,
            namespace,
            self._name(action["name"]),
            self._fill(action["patch"]),
            type_=PATCH_TYPES[action["type"]],
            subresource=action.get("subresource", ""),
        )

    async def put(self, action: Object) -> None:
        """Replace the finalizers of the namespace through its finalize subresource."""
        resource = _resource(action["kind"])
        current = await self.client.get(resource, None, self.names.namespace)
        wanted = {**current, "spec": self._fill(action["spec"])}
        await self.client.update(resource, wanted, subresource=action["subresource"])

    async def delete(self, action: Object) -> None:
        """Delete an object."""
        if isinstance(action, str):
            match = _AT_ONCE.fullmatch(action)
            if match is None:
                raise NotImplementedError(action)
            for index in range(int(match["first"]), int(match["last"]) + 1):
                name = f"{match['base']}{index}"
                await self.client.delete(PODS, self.names.namespace, name, {"gracePeriodSeconds": 0})
            return
        resource = _resource(action["kind"])
        keys = ("propagationPolicy", "gracePeriodSeconds")
        options = {key: action[key] for key in keys if action.get(key) is not None}
        namespace = self.names.namespace if resource.namespaced else None
        await self.client.delete(resource, namespace, self._name(action["name"]), options)

    async def evict(self, pod: str) -> None:
        """Ask for the eviction of a pod."""
        name, namespace = self._name(pod), self.names.namespace
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        await self.client.create(PODS, namespace, body, name=name, subresource="eviction")

    async def wait(self, seconds: float) -> None:
        """Do nothing for a while."""
        await self.clock.sleep(seconds)

    async def finish_what_is_gone(self, actions: list[JSON]) -> None:
        """Finish deletions that a recording does not mention, where one pod after the other is given up.

        That is so if a step only resizes a ReplicaSet and a pod that was terminating before is not there any more.
        """
        if not actions or any(action.get("patch", {}).get("kind") != "ReplicaSet" for action in actions):
            return
        left = {pod["name"] for pod in self.recorded.get("Pod") or ()}
        for pod in list(self.pods.objects.values()):
            if left and is_deleting(pod) and self.names.write_text(name_of(pod)) not in left:
                await self.client.delete(PODS, self.names.namespace, name_of(pod), {"gracePeriodSeconds": 0})

    async def kubelet(self, action: JSON) -> None:
        """What kubelets do: bind pods, write their status, finish deletions."""
        if isinstance(action, str):
            kubelets = PodKubelets(
                self.client, self.clock, self.pods, self.addresses, self.default_node, self._written_order
            )
            await kubelets.play(action, once="one round" in self.note)
            return
        if "nodes" in action:
            await self.kubelet_of_nodes(action)
            return
        for written in action["pods"]:
            name = await self._existing(written, may_be_missing="missing" in action)
            if name is not None:
                await self._kubelet_pod(name, action)
                await self.clock.sleep(REQUEST_S)

    def _written_order(self, name: str) -> tuple[str, ...]:
        return sort_key({"name": self.names.write_text(name)})

    async def kubelet_of_nodes(self, action: Object) -> None:
        """What kubelets do to nodes."""
        await self.nodes.play([self._name(name) for name in action["nodes"]], action, self.recorded)

    async def _kubelet_pod(self, name: str, action: Object) -> None:
        namespace = self.names.namespace
        if "bind" in action and not self.pods.objects[f"{namespace}/{name}"]["spec"].get("nodeName"):
            target = {"kind": "Node", "name": action["bind"]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self.client.create(PODS, namespace, body, name=name, subresource="binding")
        if "status" in action:
            status = self._status(name, action["status"])
            patch = {"status": status}
            await self.client.patch(PODS, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")
        if action.get("finish_deletion"):
            await self.client.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})

    def _status(self, pod: str, status: JSON) -> JSON:
        if isinstance(status, dict):
            return {key: self._status(pod, value) for key, value in status.items()}
        if isinstance(status, list):
            return [self._status(pod, item) for item in status]
        if status == "<now>":
            return rfc3339(self.clock.now())
        if status == "<ip>":
            return self.addresses.setdefault(pod, f"10.1.0.{len(self.addresses) + 2}")
        return status

    async def _existing(self, written: str, *, may_be_missing: bool) -> str | None:
        """The name of a pod that is there, or comes soon; None if it does not."""
        until = self.clock.now() + (0.0 if may_be_missing else POD_WAIT_S)
        while True:
            name = self.names.real(written)
            if name is not None and f"{self.names.namespace}/{name}" in self.pods.objects:
                return name
            if self.clock.now() >= until:
                if not may_be_missing:
                    self.differences.append(Difference(f"kubelet[{written}]", "there", "missing"))
                return None
            await self.clock.sleep(0.25)

    def _name(self, written: str) -> str:
        return self.names.real(written) or written


_MANY_PODS = re.compile(
    r"(?P<count>\d+) pods (?P<base>\w+?)0\.\.\. as in the scenario [\w-]+, on (?P<nodes>.+) in turn"
)
_AT_ONCE = re.compile(r"(?P<base>\w+?)(?P<first>\d+) to (?P=base)(?P<last>\d+), at once")

_NAMED = (REPLICA_SETS, CONTROLLER_REVISIONS, JOBS, ENDPOINT_SLICES)
_WITHOUT_TAINT = "the not-ready taint set by admission was removed at once"


def _resource(kind: str) -> Resource:
    if kind not in RESOURCES:
        raise NotImplementedError(f"objects of kind {kind}")
    return RESOURCES[kind]


def _comparable(refusal: Object) -> Object:
    """A refusal without what shows the inner life of the server's language."""
    message = str(refusal["message"]).split('Invalid value: {"', 1)[0]
    return {"code": refusal["code"], "reason": refusal["reason"], "message": message}


_PLAYS: dict[str, Callable[[Player, JSON], Awaitable[None]]] = {
    "create": Player.create,
    "patch": Player.patch,
    "put": Player.put,
    "delete": Player.delete,
    "evict": Player.evict,
    "wait_s": Player.wait,
    "kubelet": Player.kubelet,
}
