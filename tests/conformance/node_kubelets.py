"""The kubelets of a scenario's nodes: they renew leases every second, or not, and report conditions."""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.api.meta import name_of, uid_of
from muster.api.resource import LEASES, NODES
from muster.client.client import Client
from muster.client.transport import STRATEGIC_MERGE_PATCH, ApiError
from muster.clock import Clock, rfc3339, rfc3339_micro

LEASE_NAMESPACE = "kube-node-lease"

READY = {"True": "KubeletReady", "False": "KubeletNotReady"}
"""The reason of a Ready condition where an action names none."""


class NodeKubelets:
    """Plays `{"nodes": […], "heartbeat": …, "status": …}`."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._alive: dict[str, None] = {}

    async def run(self) -> None:
        """Renew leases until cancelled."""
        while True:
            for name in list(self._alive):
                await self._renew(name)
            await self._clock.sleep(1.0, periodic=True)

    async def live(self, name: str) -> None:
        """Renew that node's lease from now on."""
        self._alive[name] = None
        await self._renew(name)

    async def play(self, nodes: list[str], action: Object, recorded: Object) -> None:
        """Do what the action says; reasons and messages that it leaves out are those of the recorded state."""
        heartbeat = action.get("heartbeat", "")
        for name in nodes:
            if heartbeat == "stops":
                self._alive.pop(name, None)
            elif heartbeat:
                await self.live(name)
            conditions = _conditions(action.get("status", {"Ready": "True"} if "status Ready" in heartbeat else {}))
            if conditions:
                await self._report(name, conditions, recorded)

    async def _report(self, name: str, conditions: list[Object], recorded: Object) -> None:
        now = rfc3339(self._clock.now())
        shown = {
            entry["type"]: entry
            for node in recorded.get("Node") or ()
            if node["name"] == name
            for entry in node["conditions"]
        }
        old = {entry["type"]: entry for entry in (await self._client.get(NODES, None, name))["status"]["conditions"]}
        written = []
        for entry in conditions:
            known = shown.get(entry["type"], {})
            texts = known if known.get("status") == entry["status"] else {}
            before = old.get(entry["type"], {})
            since = before.get("lastTransitionTime") if before.get("status") == entry["status"] else now
            text = {"reason": texts.get("reason", READY.get(entry["status"], "")), "message": texts.get("message", "")}
            written.append({**text, **entry, "lastHeartbeatTime": now, "lastTransitionTime": since or now})
        patch = {"status": {"conditions": written}}
        await self._client.patch(NODES, None, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")

    async def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(self._clock.now())}
        try:
            await self._client.patch(LEASES, LEASE_NAMESPACE, name, {"spec": spec})
        except ApiError:
            await self._make(name, spec)

    async def _make(self, name: str, spec: Object) -> None:
        try:
            node = await self._client.get(NODES, None, name)
        except ApiError:
            self._alive.pop(name, None)  # a deleted node has no kubelet
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name_of(node), "uid": uid_of(node)}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        await self._client.create(LEASES, LEASE_NAMESPACE, lease)


def _conditions(status: JSON) -> list[Object]:
    """`{"Ready": "False", "reason": …}`, or `MemoryPressure, DiskPressure True` as conditions."""
    if isinstance(status, str):
        *types, last = status.replace(",", "").split()
        return [{"type": type_, "status": last} for type_ in types]
    rest = {key: value for key, value in status.items() if key in ("reason", "message")}
    return [{"type": type_, "status": value, **rest} for type_, value in status.items() if type_ not in rest]
