"""Asks the engine once more about the groups that do not run, on the cluster as the simulation left it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.groups import group_of
from muster.api.meta import key_of, name_of
from muster.engine.changes import RunningGroup
from muster.engine.decide import decide
from muster.engine.explain import explain
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.scheduler.domains import one_domain
from muster.scheduler.options import SchedulerOptions
from muster.simulator.groups import ENDED, GroupView, first_reason, phase_of, scheduler_of

_Question: TypeAlias = tuple[tuple[Shape, ...], int, int, str | None, str]
"""What a group asks for, whoever it is: shapes of its pending members, min_count, members that run, topology key, and
the schedulerName."""


class Judge:
    """Decides about groups on the final objects (by plural, in stored form), each as if it were alone."""

    def __init__(self, objects: Mapping[str, Objects], options: SchedulerOptions) -> None:
        self._objects = objects
        self._options = options
        self._judged: dict[_Question, tuple[str, Object | None]] = {}

    def state_of(self, group: GroupView) -> tuple[str, Object | None]:
        """`Undecided`, `Unschedulable` or `Pending` (it could run now), and the explanation if it has one.

        A group of a tree is not judged alone: what its pods say holds.
        """
        if group.terms is not None and group.terms.parent:
            states = {"Unschedulable": "Unschedulable", "SchedulingGated": "Gated"}
            return states.get(first_reason(group.pending)[0], "Pending"), None
        members = tuple(Member(key_of(pod), self._state.shape_of(pod)) for pod in group.pending)
        placed = {
            key_of(pod): str(pod["spec"]["nodeName"])
            for pod in group.pods
            if pod["spec"].get("nodeName") and phase_of(pod) not in ENDED
        }
        running, domain = len(placed), None
        topology_key = group.terms.topology_key if group.terms is not None else None
        if topology_key is not None:
            domain = one_domain(self._snapshot.table, topology_key, placed)
            if domain.fault:
                return "Unschedulable", None
        pinned = None if domain is None else domain.pinned
        request = GroupRequest(group.ref.key, members, group.min_count, running, topology_key, topology_domain=pinned)
        scheduler = scheduler_of(group.pods[0]) if group.pods else ""
        profile = self._options.profile_of(scheduler)
        question = (tuple(member.shape for member in members), group.min_count, running, topology_key, scheduler)
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
        key = group.terms.topology_key if group.terms is not None else None
        if key is None:
            return {}
        nodes = {pod["spec"]["nodeName"] for pod in group.pods if pod["spec"].get("nodeName")}
        values = {self._labels.get(node, {}).get(key) for node in nodes}
        value = values.pop() if len(values) == 1 else None
        return {key: value} if value else {}

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
