"""Follow a recorded run of groups: what upstream left to chance is taken from the recording, if it is one of ours."""

from __future__ import annotations

from collections.abc import Sequence

from group_states import SUCCEEDED, popped_early, root_name

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.engine.model import Member
from muster.engine.preemption.model import Unit
from muster.engine.upstream.model import Choices


class Follower(Choices):
    """Choices out of a recording. `variant`: which of several placements is tried first."""

    def __init__(self, scenario: Object, variant: int) -> None:
        self._results = scenario["results"]
        self._variant = variant
        objects = [obj for step in scenario["steps"] for obj in step if "metadata" in obj]
        self._labels = {
            name_of(obj): set((obj["metadata"].get("labels") or {}).values())
            for obj in objects
            if obj["kind"] == "Node"
        }
        self._groups: dict[str, list[str]] = {}
        for pod in objects:
            if pod["kind"] == "Pod" and "schedulingGroup" in pod["spec"]:
                self._groups.setdefault(pod["spec"]["schedulingGroup"]["podGroupName"], []).append(name_of(pod))
        self._parents = {
            name_of(obj): obj["spec"].get("parentCompositePodGroupName")
            for obj in objects
            if obj["kind"] in ("PodGroup", "CompositePodGroup")
        }
        self._nodes: dict[str, str] = {}
        self._evicted: set[str] = set()
        for result in self._results:
            self._evicted |= set(result["evicted"])
            self._nodes |= {pod: state["nodeName"] for pod, state in result["pods"].items() if "nodeName" in state}
        self._cycles: list[Object] = []
        self._at: dict[str, int] = {}

    def begin(self, step: int) -> None:
        """A step begins."""
        self._cycles = [cycle for cycle in self._results[step].get("cycles") or () if "result" in cycle]
        while (popped := popped_early(self._cycles)) is not None:
            self._cycles.remove(popped)
        self._at = {}

    def next_cycle(self, root: str) -> None:
        """A cycle of a root (`podgroup namespace/name`) is over."""
        name = root.rpartition("/")[2]
        self._at[name] = self._at.get(name, 0) + 1

    def order(self, group: str, members: Sequence[Member]) -> Sequence[Member]:
        wanted = self._order(group.partition("/")[2])
        places = {pod: place for place, pod in enumerate(wanted)}
        return sorted(members, key=lambda member: places.get(member.key.partition("/")[2], len(places)))

    def _order(self, group: str) -> list[str]:
        """The recorded order of the cycle that is under way."""
        own = [cycle for cycle in self._cycles if cycle["podGroup"].rpartition("/")[2] == group]
        if not own:
            return []
        cycle = own[min(self._at.get(group, 0), len(own) - 1)]
        order: list[str] = cycle.get("order") or []
        return order

    def node(self, pod: str, nodes: Sequence[str]) -> str:
        recorded = self._nodes.get(pod.partition("/")[2])
        return recorded if recorded is not None and recorded in nodes else nodes[0]

    def domains(self, group: str, names: Sequence[str]) -> Sequence[str]:
        at = self._variant % len(names) if names else 0
        return [*names[at:], *names[:at]]

    def domain(self, group: str, names: Sequence[str]) -> str:
        pods = self._pods_below(group.partition("/")[2])
        values = set().union(*(self._labels.get(self._nodes.get(pod, ""), set()) for pod in pods))
        return next((name for name in names if name in values), names[0])

    def _pods_below(self, group: str) -> list[str]:
        found = list(self._groups.get(group, ()))
        for child, parent in self._parents.items():
            if parent == group:
                found += self._pods_below(child)
        return found

    def equally_important(self, units: Sequence[Unit]) -> Sequence[Unit]:
        return sorted(units, key=lambda unit: any(pod.key.partition("/")[2] in self._evicted for pod in unit.pods))


def phases(step: list[Object], result: Object, release: str) -> list[list[Object]]:
    """The objects of a step in the portions in which the recorded scheduler saw them.

    Members that a group's first cycle did not have, though it says which it had, come after that cycle: how many
    members a scheduler has seen when it pops a group is chance.
    """
    late = _late(step, result, release)
    found: list[list[Object]] = [[]]
    for obj in step:
        at = late.get(name_of(obj), 0) if obj.get("kind") == "Pod" else 0
        while len(found) <= at:
            found.append([])
        found[at].append(obj)
    return [phase for phase in found if phase]


def _late(step: list[Object], result: Object, release: str) -> dict[str, int]:
    """The portion of each pod that came after the first cycle of its group."""
    orders: dict[str, list[list[str]]] = {}
    first_tells_all: dict[str, bool] = {}
    for cycle in result.get("cycles") or ():
        root = cycle["podGroup"].rpartition("/")[2]
        if cycle["podGroup"].startswith("composite") or not cycle.get("order"):
            continue
        first_tells_all.setdefault(root, release == "1.36" or cycle.get("result") == SUCCEEDED)
        orders.setdefault(root, []).append(cycle["order"])
    late: dict[str, int] = {}
    overtaken = _overtaken(result.get("cycles") or ())
    for pod in step:
        if pod.get("kind") != "Pod" or pod["spec"].get("schedulingGates"):
            continue
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        name = name_of(pod)
        if group and group == overtaken:
            late[name] = 1
        elif first_tells_all.get(group) and not pod["spec"].get("nodeName"):
            late[name] = next((at for at, order in enumerate(orders[group]) if name in order), 1)
    return late


def _overtaken(cycles: Sequence[Object]) -> str:
    """The group that was popped too early and had to wait, so that another came first; "" without one."""
    popped = popped_early(cycles)
    if popped is None:
        return ""
    rest = [root_name(cycle) for cycle in cycles if cycle is not popped]
    return root_name(popped) if rest and rest[0] != root_name(popped) else ""
