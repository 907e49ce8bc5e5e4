"""ttl-controller: tells kubelets by an annotation how long they may keep Secrets and ConfigMaps, by cluster size.

Nothing of ours reads it; real servers show it, so it runs where a release is emulated.
Source of the rules: kube-controller-manager `pkg/controller/ttl`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.meta import name_of
from muster.api.resource import NODES, Resource
from muster.client.informer import Change
from muster.controllers.action import Patch, Result
from muster.controllers.runner import Request
from muster.controllers.state import State

ANNOTATION = "node.alpha.kubernetes.io/ttl"
_STEPS = ((100, 0), (500, 15), (1000, 30), (2000, 60))
"""The most nodes for which so many seconds hold."""
_MOST_S = 300


class NodeTtlController:
    """Keys are the names of nodes."""

    name = "ttl-controller"
    resources: tuple[Resource, ...] = (NODES,)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        return [Request(name_of(change.object))] if change.new is not None else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        node = state[NODES].get(key)
        wanted = str(ttl_s(len(state[NODES])))
        if node is None or (node["metadata"].get("annotations") or {}).get(ANNOTATION) == wanted:
            return Result()
        return Result((Patch(NODES, "", key, {"metadata": {"annotations": {ANNOTATION: wanted}}}),))


def ttl_s(nodes: int) -> int:
    """How long in a cluster of that many nodes."""
    return next((seconds for most, seconds in _STEPS if nodes <= most), _MOST_S)
