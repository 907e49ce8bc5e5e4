"""Which verdicts mean that an entity lacks room and asks for nodes, and in whose name. Pure but for what it tells.

Who asks: a group, or a whole tree of groups, of which it is proved that it does not fit for lack of room, with all its
pending pods. Who does not: plain pods (their condition says enough), groups that are held by a gate or for members,
that wait for victims of a preemption, or of which nothing was proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.api.meta import name_of, uid_of
from muster.scheduler.core import SchedulerCore
from muster.scheduler.cycle import Verdict
from muster.scheduler.entities import POD, TREE
from muster.scheduler.gate import Held
from muster.scheduler.members import PodRecord
from muster.scheduler.provisioning.objects import PodSet, pod_sets

NO_MARKS: Mapping[str, str] = {}


class Requests(Protocol):
    """Where requests are made."""

    def lacks_room(self, entity: str, owner: Object, pods: list[Object], sets: tuple[PodSet, ...]) -> None: ...
    def needs_none(self, entity: str) -> None: ...
    def marks_of(self, entity: str) -> Mapping[str, str]: ...


class Asking:
    """Passes on what verdicts and holds say. `served`: the apiVersion of each kind of the group API, as it is found."""

    def __init__(self, core: SchedulerCore, requests: Requests | None, served: Mapping[str, str]) -> None:
        self._core = core
        self._requests = requests
        self._served = served

    def verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Take note of what was decided, before anybody is told."""
        for verdict in verdicts if self._requests is not None else ():
            if not verdict.ask.entity.startswith(POD):
                self._note(verdict)

    def marks(self, verdict: Verdict) -> Mapping[str, str]:
        """The annotations that the pods of a verdict are to have before they say that they wait."""
        return NO_MARKS if self._requests is None else self._requests.marks_of(verdict.ask.entity)

    def _note(self, verdict: Verdict) -> None:
        assert self._requests is not None, "asked with requests only"
        entity, rejection = verdict.ask.entity, verdict.rejection
        is_tree = entity.startswith(TREE)  # where the verdict about another group may say more
        if verdict.plan is not None or (rejection is None and not is_tree):
            self._requests.needs_none(entity)
        elif rejection is None or verdict.placements:
            pass  # what is left over is tried again at once
        elif rejection.lacks_room:
            self._lacks_room(entity)
        elif not is_tree:
            self._requests.needs_none(entity)

    def held(self, held: list[Held]) -> None:
        """Groups that are held do not ask."""
        if self._requests is not None:
            for each in held:
                self._requests.needs_none(self._core.entity_of(each.ref.key))

    def is_waiting(self, entity: str) -> bool:
        """Whether pods of the entity wait for a node."""
        return bool(self._core.entities.pods(entity))

    def _lacks_room(self, entity: str) -> None:
        assert self._requests is not None, "asked with requests only"
        cache = self._core.cache
        records: list[PodRecord] = [cache.pods[key] for key in self._core.entities.pods(entity)]
        owner = self._owner(entity)
        if owner is None or not records:
            self._requests.needs_none(entity)
            return
        sets = pod_sets((cache.shape(record), record.pod) for record in records)
        self._requests.lacks_room(entity, owner, [record.pod for record in records], sets)

    def _owner(self, entity: str) -> Object | None:
        """The object that says what the entity is, as an owner reference; None if it is not known (any more)."""
        cache = self._core.cache
        if entity.startswith(TREE):
            return self._reference("CompositePodGroup", cache.hierarchy.composites.get(entity.removeprefix(TREE)))
        groups = self._core.entities.groups(entity)
        return self._owner_of_group(groups[0].ref) if groups else None

    def _owner_of_group(self, ref: GroupRef) -> Object | None:
        cache, grouping = self._core.cache, self._core.options.grouping
        group = cache.pod_groups.get(ref.object_key) if ref.is_pod_group else None
        if group is not None:
            return self._reference("PodGroup", group)
        workload = cache.stand_in(ref) or cache.workloads.get(ref.object_key)
        implied = None if grouping is None or workload is None else grouping.owner_reference(workload)
        return implied or self._reference("Workload", workload)

    def _reference(self, kind: str, obj: Object | None) -> Object | None:
        if obj is None or kind not in self._served:
            return None
        return {"apiVersion": self._served[kind], "kind": kind, "name": name_of(obj), "uid": uid_of(obj)}
