"""What groups ask of the topology by annotation, and what that refers to in the cluster. Pure.

The annotation `scheduling.muster-k8s.dev/topology` is looked up on the PodGroup, then on its Workload (by template
name), then on the Job that owns it, then on its pods; last, Kueue's annotations on the pods. That of a composite group
is looked up on the CompositePodGroup, then on its Workload.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.groups import CompositeTerms, GroupRef, GroupTerms
from muster.api.meta import controller_of, key_of, name_of, uid_of
from muster.api.topology import TOPOLOGY_KEY, TopologyError, TopologyTerms, kueue_terms, levels_of, parse_topology
from muster.engine.nodes import NodeTable
from muster.engine.topology.layout import Layout
from muster.scheduler.members import Members
from muster.scheduler.natural import natural

Terms = TypeVar("Terms", GroupTerms, CompositeTerms)

_NUMBERED = re.compile(r"(.*?)(\d+)\Z")


@dataclass(slots=True)
class TopologyObjects:
    """What the lookup needs besides groups: `jobs`: the annotations of Jobs by uid; `levels`: of Topology objects."""

    jobs: dict[str, str] = field(default_factory=dict)
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set_job(self, job: Object, *, exists: bool) -> bool:
        """A Job is there, changed or gone; whether what it says of the topology changed."""
        text = (job["metadata"].get("annotations") or {}).get(TOPOLOGY_KEY) if exists else None
        before = self.jobs.get(uid_of(job))
        if text is None:
            self.jobs.pop(uid_of(job), None)
        else:
            self.jobs[uid_of(job)] = text
        return text != before

    def set_topology(self, topology: Object, *, exists: bool) -> None:
        """A Topology object of Kueue is there, changed or gone."""
        if exists:
            self.levels[name_of(topology)] = levels_of(topology)
        else:
            self.levels.pop(name_of(topology), None)

    def with_topology(
        self, terms: GroupTerms, ref: GroupRef, group: Object | None, workload: Object | None, pods: Iterable[Object]
    ) -> GroupTerms:
        """The terms of a group with what an annotation adds; what is wrong with one becomes their `fault`.

        `group`: its PodGroup; `workload`: the Workload that it, or the group's pods, refer to.
        """
        return self._with_first(terms, self._places(ref, group, workload, pods))

    def composite_with_topology(
        self, terms: CompositeTerms, composite: Object, workload: Object | None
    ) -> CompositeTerms:
        """The same for a composite group."""
        places: list[tuple[str, str | None, str | None]] = [
            (f"CompositePodGroup {key_of(composite)}", _annotation(composite), None)
        ]
        if workload is not None:
            template = str((composite["spec"].get("workloadRef") or {}).get("templateName") or "")
            places.append((f"Workload {key_of(workload)}", _annotation(workload), template))
        readers = [
            (f"annotation {TOPOLOGY_KEY} of {where}", partial(_parsed, text, template))
            for where, text, template in places
            if text is not None
        ]
        return self._with_first(terms, readers)

    def _with_first(self, terms: Terms, places: Iterable[tuple[str, Callable[[], TopologyTerms | None]]]) -> Terms:
        """The terms with what the first of the places says that says something."""
        for where, read in places:
            try:
                found = read()
                if found is not None:
                    return terms.with_topology(self._on_levels(found))
            except TopologyError as error:
                return replace(terms, fault=f"{where}: {error}")
        return terms

    def _places(
        self, ref: GroupRef, group: Object | None, workload: Object | None, pods: Iterable[Object]
    ) -> Iterable[tuple[str, Callable[[], TopologyTerms | None]]]:
        """Where terms may be, in words, and what reads them there."""
        text = _annotation(group)
        if text is not None:
            yield f"annotation {TOPOLOGY_KEY} of PodGroup {ref.key}", lambda: _parsed(text)
        of_workload, template = _annotation(workload), template_name(ref, group)
        if of_workload is not None:
            place = f"annotation {TOPOLOGY_KEY} of Workload {ref.namespace}/{name_of(workload or {})}"
            yield place, lambda: _parsed(of_workload, template)
        pod = next(iter(pods), None)
        of_job = self.jobs.get(_owner(group)) or self.jobs.get(_owner(pod))
        if of_job is not None:
            yield f"annotation {TOPOLOGY_KEY} of the Job", lambda: _parsed(of_job)
        of_pod = _annotation(pod)
        if pod is not None and of_pod is not None:
            yield f"annotation {TOPOLOGY_KEY} of pod {name_of(pod)}", lambda: _parsed(of_pod)
        elif pod is not None and pod["metadata"].get("annotations"):
            annotations: Mapping[str, str] = pod["metadata"]["annotations"]
            yield f"annotation of pod {name_of(pod)}", lambda: kueue_terms(annotations)

    def _on_levels(self, terms: TopologyTerms) -> TopologyTerms:
        """With the levels of the Topology object that is named, or, for one preferred label alone, that has it."""
        if terms.topology:
            if terms.topology not in self.levels:
                raise TopologyError(f"topology: there is no Topology object {terms.topology!r}")
            return terms.with_levels(self.levels[terms.topology])
        if len(terms.preferred) == 1 and not terms.levels and terms.distribution is None and terms.spread_over is None:
            for _, levels in sorted(self.levels.items()):
                if terms.preferred[0] in levels and set(terms.tree) <= set(levels):
                    return terms.with_levels(levels)
        return terms


def template_name(ref: GroupRef, group: Object | None) -> str:
    """The name of the Workload's template that a group was made from, "" if it has none."""
    if not ref.is_pod_group:
        return ref.template
    return str(((group or {}).get("spec", {}).get("workloadRef") or {}).get("templateName") or "")


def workload_key(ref: GroupRef, group: Object | None) -> str:
    """The key of the Workload that a group was made from, "" if it has none."""
    if not ref.is_pod_group:
        return ref.object_key
    name = ((group or {}).get("spec", {}).get("workloadRef") or {}).get("workloadName")
    return f"{ref.namespace}/{name}" if name else ""


def layout_of(members: Members, terms: TopologyTerms, table: NodeTable, siblings: Iterable[Members]) -> Layout:
    """What the group asks, in terms of its pending members (in the order of `to_place`) and those that run.

    `siblings`: the other groups of its template.
    """
    ranks = ranks_of(members)
    running = sorted((ranks[key], record.node) for key, record in members.scheduled.items())
    others: Counter[str] = Counter()
    if terms.spread_over is not None:
        for sibling in siblings:
            value = _domain_of(sibling, terms.spread_over, table)
            if value is not None:
                others[value] += 1
    pending = tuple(ranks[record.key] for record in members.to_place())
    return Layout(terms, pending, tuple(running), tuple(sorted(others.items())))


def ranks_of(members: Members) -> dict[str, int]:
    """The place of each live member among all pods of the group.

    Their completion indexes, else the numbers at the end of their names, if these tell them apart; else their order.
    """
    records = {**members.scheduled, **members.pending}
    indexes = {key: record.order[2] for key, record in records.items()}
    if all(index >= 0 for index in indexes.values()) and len(set(indexes.values())) == len(indexes):
        return indexes
    found = {key: _NUMBERED.match(key) for key in records}
    if all(found.values()):
        numbers = {key: (match[1], int(match[2])) for key, match in found.items() if match is not None}
        is_distinct = len({number for _, number in numbers.values()}) == len(numbers)
        if is_distinct and len({prefix for prefix, _ in numbers.values()}) == 1:
            return {key: number for key, (_, number) in numbers.items()}
    return {key: place for place, key in enumerate(sorted(records, key=lambda key: (natural(key), key)))}


def _domain_of(members: Members, key: str, table: NodeTable) -> str | None:
    """The domain in which most pods of a group run, None while none does."""
    rows = [table.index[record.node] for record in members.scheduled.values() if record.node in table.index]
    values = Counter(table.records[row].labels.get(key) for row in rows)
    named = {value: number for value, number in values.items() if value is not None}
    return min(named, key=lambda value: (-named[value], value), default=None)


@lru_cache(maxsize=4096)
def _parsed(text: str, template: str | None = None) -> TopologyTerms | None:
    return parse_topology(text, template)


def _annotation(obj: Object | None) -> str | None:
    text = None if obj is None else (obj["metadata"].get("annotations") or {}).get(TOPOLOGY_KEY)
    return None if text is None else str(text)


def _owner(obj: Object | None) -> str:
    """The uid of an object's controller, "" without one."""
    owner = None if obj is None else controller_of(obj)
    return "" if owner is None else str(owner.get("uid") or "")
