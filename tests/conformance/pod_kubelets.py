"""Kubelets that a recording describes in a sentence: they run pods and finish deletions until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of
from muster.api.resource import PODS
from muster.client.client import Client
from muster.client.informer import Informer
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.clock import Clock, rfc3339

ROUND_S = 1.0
REQUEST_S = 0.05
"""What a kubelet's requests take: controllers see one pod change after the other."""

QUIET_ROUNDS = 3
SENTENCES = {
    "runs every pending pod and finishes every deletion until nothing changes": (False, True),
    "binds every pod to the node of its affinity and runs it": (True, False),
    "binds every pod to the node of its affinity, runs it, and finishes every deletion until nothing changes": (
        True,
        True,
    ),
}
"""Whether pods go to the node of their affinity, and whether deletions are finished."""


@dataclass(frozen=True, slots=True)
class PodKubelets:
    """The kubelets of all nodes."""

    client: Client
    clock: Clock
    pods: Informer
    addresses: dict[str, str]
    node: str
    order: Callable[[str], tuple[str, ...]]
    """Which pods come first, by their names."""

    async def play(self, sentence: str, *, once: bool) -> None:
        """Do what the sentence says, in rounds; `once`: one round only."""
        if sentence not in SENTENCES:
            raise NotImplementedError(sentence)
        pinned, finishes = SENTENCES[sentence]
        await self.clock.sleep(ROUND_S)
        quiet = 0
        while quiet < QUIET_ROUNDS:
            did = False
            for pod in sorted(self.pods.objects.values(), key=lambda pod: self.order(name_of(pod))):
                if await self._look(pod, pinned, finishes):
                    did = True
                    await self.clock.sleep(REQUEST_S)
            if once:
                return
            quiet = 0 if did else quiet + 1
            await self.clock.sleep(ROUND_S)

    async def _look(self, pod: Object, pinned: bool, finishes: bool) -> bool:
        if is_deleting(pod):
            if finishes:
                await self.client.delete(PODS, namespace_of(pod), name_of(pod), {"gracePeriodSeconds": 0})
            return finishes
        if (pod.get("status") or {}).get("phase", "Pending") != "Pending":
            return False
        await self.run_pod(pod, pinned=pinned)
        return True

    async def run_pod(self, pod: Object, *, pinned: bool = False) -> None:
        """Bind a pod that is not bound, and let it run; `pinned`: on the node of its affinity."""
        if not pod["spec"].get("nodeName"):
            target = {"kind": "Node", "name": _pinned_node(pod) if pinned else self.node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}, "target": target}
            await self.client.create(PODS, namespace_of(pod), body, name=name_of(pod), subresource="binding")
        patch = {"status": self._running(pod)}
        await self.client.patch(
            PODS, namespace_of(pod), name_of(pod), patch, type_=STRATEGIC_MERGE_PATCH, subresource="status"
        )

    def _running(self, pod: Object) -> Object:
        now = rfc3339(self.clock.now())
        address = self.addresses.setdefault(name_of(pod), f"10.1.0.{len(self.addresses) + 2}")
        types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        return {
            "phase": "Running",
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in types],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod["spec"]["containers"]
            ],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
        }


def _pinned_node(pod: Object) -> str:
    rules = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    name: str = rules["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return name
