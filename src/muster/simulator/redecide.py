"""Asks the engine once more about the groups that do not run, on the cluster as the simulation left it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.groups import GroupTerms, group_of
from muster.api.meta import key_of, name_of
from muster.engine.decide import decide
from muster.engine.explanation.explain import explain
from muster.engine.explanation.waiting import RunningGroup
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.objects import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.scheduler.core import SchedulerCore
from muster.scheduler.domains import OneDomain, one_domain
from muster.scheduler.entities import TREE
from muster.scheduler.explaining.explainer import Explainer
from muster.scheduler.explaining.feed import core_of
from muster.scheduler.layouts import layout_of
from muster.scheduler.members import Members, PodRecord
from muster.scheduler.options import SchedulerOptions
from muster.simulator.groups import ENDED, GroupView, first_reason, is_pending, phase_of, scheduler_of

_Question: TypeAlias = tuple[tuple[Shape, ...], int, int, OneDomain | None, str]
"""What a group asks for, whoever it is: shapes of its pending members, min_count, members that run, what it asks of the
topology, and the schedulerName."""

_STATES = {"Unschedulable": "Unschedulable", "SchedulingGated": "Gated"}
"""What the reason of a pod says of its group."""
_REFUSED = {"Infeasible": "Unschedulable", "Undecided": "Undecided"}
"""The states of explanations in the words of reports."""


_DEVICES = {"deviceclasses": DEVICE_CLASS, "resourceslices": RESOURCE_SLICE, "resourceclaims": RESOURCE_CLAIM}
"""Collections of objects that decisions about devices look at, with their kinds."""


class Judge:
    """Decides about groups on the final objects (by plural, in stored form), each as if it were alone."""

    def __init__(self, objects: Mapping[str, Objects], options: SchedulerOptions) -> None:
        self._objects = objects
        self._options = options
        self._judged: dict[_Question, tuple[str, Object | None]] = {}
        self._trees: dict[str, Object] = {}

    def state_of(self, group: GroupView) -> tuple[str, Object | None]:
        """`Undecided`, `Unschedulable` or `Pending` (it could run now), and the explanation if it has one.

        One that was decided by the rules of a release is not judged, since these may leave waiting what could run:
        what its pods say holds. A group of a tree is judged with its tree, unless enough of that runs without it.
        """
        said = _STATES.get(first_reason(group.pending)[0], "Pending")
        if self._options.release is not None:
            return said, None
        if group.terms is not None and group.terms.parent:
            return self._in_tree(group, said)
        return self._alone(group)

    def _in_tree(self, group: GroupView, said: str) -> tuple[str, Object | None]:
        root = self._core.entities.root_of(group.ref.key)
        if root is None:
            return said, None
        if root not in self._trees:
            self._trees[root] = Explainer(self._core).explain(TREE + root)
        found = self._trees[root]
        if found["state"] not in _REFUSED:
            return said, None
        return _REFUSED[found["state"]], {name: found[name] for name in ("summary", "reasons", "changes")}

    def _alone(self, group: GroupView) -> tuple[str, Object | None]:
        known = _members(group)
        records = list(known.to_place())
        shapes = self._state.shapes_of([record.pod for record in records])
        members = tuple(Member(record.key, shape) for record, shape in zip(records, shapes, strict=True))
        running, domain = len(known.scheduled), self._domain(known, group.terms)
        if domain is not None and domain.fault:
            return "Unschedulable", None
        request = GroupRequest(group.ref.key, members, group.min_count, running)
        request = request if domain is None else domain.bind(request)
        scheduler = scheduler_of(group.pods[0]) if group.pods else ""
        profile = self._options.profile_of(scheduler)
        question = (tuple(member.shape for member in members), group.min_count, running, domain, scheduler)
        if running:  # what it holds itself is part of the question
            return self._judge(request, profile)
        if question not in self._judged:
            self._judged[question] = self._judge(request, profile)
        return self._judged[question]

    def _judge(self, request: GroupRequest, profile: Profile) -> tuple[str, Object | None]:
        decision = decide(self._snapshot, request, profile=profile)
        if isinstance(decision, Placed) and decision.placements:
            return "Pending", None
        name = "Unschedulable" if isinstance(decision, Infeasible | Placed) else "Undecided"
        return name, explain(self._snapshot, request, decision, groups=self._running, profile=profile)

    def topology_of(self, group: GroupView) -> dict[str, str]:
        """The domain of each topology key that the group asks for, where its members are in one."""
        keys = [
            *(self._keys_above(group) if group.terms is not None and group.terms.parent else ()),
            *group.topology_keys,
        ]
        nodes = {pod["spec"]["nodeName"] for pod in group.pods if pod["spec"].get("nodeName")}
        found = {}
        for key in dict.fromkeys(keys):
            values = {self._labels.get(node, {}).get(key) for node in nodes}
            value = values.pop() if len(values) == 1 else None
            if value:
                found[key] = value
        return found

    def _keys_above(self, group: GroupView) -> list[str]:
        """The topology labels of the composite groups above a group."""
        above = (self._core.cache.composite_terms(key) for key in self._core.entities.composites_above(group.ref.key))
        return [key for terms in above if terms is not None for key in (terms.topology_key, *terms.preferred) if key]

    def _domain(self, members: Members, terms: GroupTerms | None) -> OneDomain | None:
        """What the group asks of the topology."""
        if terms is None or (terms.topology_key is None and terms.topology is None):
            return None
        table, layout = self._snapshot.table, None
        if terms.topology is not None:
            layout = layout_of(members, terms.topology, table, ())
        placed = {key: record.node for key, record in members.scheduled.items()}
        return one_domain(table, terms.topology_key, placed, layout)

    @cached_property
    def _core(self) -> SchedulerCore:
        """A scheduler that has seen the final objects."""
        return core_of((obj for objects in self._objects.values() for obj in objects), self._options, 0.0)

    @cached_property
    def _running(self) -> list[RunningGroup]:
        """Groups that hold room, with the pods that do."""
        holders: dict[str, list[str]] = {}
        for pod in self._objects["pods"]:
            ref = group_of(pod)
            if ref is not None and pod["spec"].get("nodeName") and phase_of(pod) not in ENDED:
                holders.setdefault(ref.key, []).append(key_of(pod))
        return sorted(holders.items())

    @cached_property
    def _labels(self) -> dict[str, dict[str, str]]:
        return {name_of(node): node["metadata"].get("labels") or {} for node in self._objects["nodes"]}

    @cached_property
    def _state(self) -> ClusterState:
        state = ClusterState()
        for plural, kind in _DEVICES.items():
            for obj in self._objects.get(plural, ()):
                state.set_object(kind, obj)
        for node in self._objects["nodes"]:
            state.set_node(node)
        for pod in self._objects["pods"]:
            node_name = pod["spec"].get("nodeName")
            if node_name and phase_of(pod) not in ENDED:
                state.add_pod(key_of(pod), pod, node_name)
        return state

    @cached_property
    def _snapshot(self) -> Snapshot:
        return self._state.snapshot()


def _members(group: GroupView) -> Members:
    """The members that wait, and those that run."""
    found = Members(group.ref)
    for pod in group.pods:
        node = str(pod["spec"].get("nodeName") or "")
        record = PodRecord(key_of(pod), pod, group.ref, True, node)
        if is_pending(pod):
            found.pending[record.key] = record
        elif node and phase_of(pod) not in ENDED:
            found.scheduled[record.key] = record
    return found
