"""The explanation of one entity (a pod, a group, a tree of groups): state, what binds, who holds the room, what helps.

Its form is docs/explain-output.schema.json. Nothing changes but what the core remembers of answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from muster.api.codec import Object, Objects
from muster.api.groups import COMPOSITE_INITIALLY_SCHEDULED, INITIALLY_SCHEDULED, GroupRef, terms_of
from muster.api.meta import has_condition
from muster.engine.decide import decide
from muster.engine.explanation.changes import smallest_changes
from muster.engine.explanation.explain import explain
from muster.engine.explanation.question import DEFAULT_EFFORT, Effort, Question
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Placed, Placement, Undecided
from muster.engine.preemption.model import Plan
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import DomainError, limited
from muster.engine.words import insufficient
from muster.scheduler.core import SchedulerCore
from muster.scheduler.cycle import Ask, request_of
from muster.scheduler.entities import GROUP, POD, TREE
from muster.scheduler.explaining.moves import moves_change
from muster.scheduler.explaining.room import domains_of_group, holders_of, nodes_of, running_groups, shapes_of
from muster.scheduler.explaining.trees import TreeTarget, domains_of_tree
from muster.scheduler.pre_enqueue import is_gated
from muster.scheduler.tree import Branch, TreeDecision, leaves_of
from muster.scheduler.tree_deciding import decide_tree

KINDS = {POD: "Pod", GROUP: "PodGroup", TREE: "CompositePodGroup"}


@dataclass(slots=True)
class Explainer:
    """Explains the entities of a core (see `core_of`). `effort`: units of work for the changes of one entity."""

    core: SchedulerCore
    now_s: float = 0.0
    effort: int = DEFAULT_EFFORT

    def entities(self) -> list[str]:
        """Everything that has pending pods of ours, and groups that wait for their first, by priority and age."""
        found: dict[str, None] = {}
        for key, record in self.core.cache.pods.items():
            if record.ours and not record.node:
                found[self.core.entities.of_pod(key)] = None
        found |= dict.fromkeys(self._without_pods())
        known = self.core.entities
        return sorted(found, key=lambda entity: (-known.priority(entity), known.created(entity), entity))

    def _without_pods(self) -> Iterator[str]:
        """Groups, and trees of them, that have no pods and never had enough."""
        hierarchy = self.core.cache.hierarchy
        found: dict[str, None] = {}
        for key, group in self.core.cache.pod_groups.items():
            root = self.core.entities.root_of(key)
            if not has_condition(group, INITIALLY_SCHEDULED):
                found[GROUP + key if root is None else TREE + root] = None
        for key, composite in hierarchy.composites.items():
            if not has_condition(composite, COMPOSITE_INITIALLY_SCHEDULED):
                found[TREE + (hierarchy.chain(key).root or key)] = None
        return (each for each in found if not any(members.known for members in self.core.entities.groups(each)))

    def explain(self, entity: str) -> Object:
        """The explanation. The entity may be one that has nothing pending, or is not known at all."""
        ask = self.core.entities.ask(entity)
        hold = self._hold(entity)
        if ask is None or hold:
            state = "Waiting" if hold or not self._has_nodes(entity) else "Placed"
            found = self._base(entity, state, hold or self._settled_text(entity))
            return found if ask is None else {**found, **self._if_it_were_tried(ask)}
        profile = self.core.entities.profiles[ask.profile]
        with self.core.preemptions.view(ask.priority, ask.entity) as snapshot:
            try:
                if ask.tree is not None:
                    return self._tree(ask, ask.tree, snapshot, profile)
                request = request_of([ask])
            except DomainError as error:
                return self._base(entity, "Infeasible", str(error))
            return self._group(ask, request, snapshot, profile)

    # -- groups and pods ---------------------------------------------------------------------------------------------

    def _group(self, ask: Ask, request: GroupRequest, snapshot: Snapshot, profile: Profile) -> Object:
        decision = decide(snapshot, request, profile=profile)
        said = explain(snapshot, request, decision, groups=self._running(ask), profile=profile, effort=self.effort)
        state = _state(decision, request)
        found = {**self._base(ask.entity, state, said["summary"]), **said}
        found["proof"] = _proof(decision)
        if isinstance(decision, Placed) and not decision.unplaced:
            return {**found, "placements": _placements(decision.placements)}
        if isinstance(decision, Placed):
            found["placements"] = _placements(decision.placements)
        else:
            found["changes"] = [*found["changes"], *moves_change(self.core, ask, self.now_s)]
        return {
            **found,
            **self._room(ask, snapshot, profile, decision.diagnosis, request),
            **self._preemption(ask, state),
        }

    def _room(
        self,
        ask: Ask,
        snapshot: Snapshot,
        profile: Profile,
        diagnosis: Diagnosis | None,
        request: GroupRequest | None = None,
    ) -> Object:
        blocked = next((each for each in ask.members if diagnosis and each.key == diagnosis.unplaced), ask.members[0])
        named = () if diagnosis is None else insufficient(diagnosis.reasons)
        wanted = named or tuple(name for name, _ in blocked.shape.usage.requests)
        asking = ask.ref.key if ask.ref is not None else ""
        open_to = profile
        if request is not None and request.topology_key is not None and request.topology_domain is not None:
            open_to = limited(profile, request.topology_key, request.topology_domain)
        return {
            "shapes": shapes_of(profile, snapshot, ask.members),
            "nodes": nodes_of(open_to, snapshot, blocked),
            "domains": [] if request is None else domains_of_group(profile, snapshot, request),
            "holders": holders_of(self.core.cache, snapshot, wanted, asking),
        }

    # -- trees -------------------------------------------------------------------------------------------------------

    def _tree(self, ask: Ask, tree: Branch, snapshot: Snapshot, profile: Profile) -> Object:
        decision = decide_tree(snapshot, tree, profile=profile)
        state = "WouldBePlaced" if decision.succeeded else "Infeasible" if decision.proved else "Undecided"
        found = self._base(ask.entity, state, _tree_summary(tree, decision))
        found["groups"] = [_leaf(leaf.ref.key, decision) for leaf in leaves_of(tree) if leaf.members]
        placed = [each for leaf in leaves_of(tree) for each in decision.placements(leaf)]
        found["placements"] = _placements(placed)
        if decision.succeeded and len(placed) == len(ask.members):
            return found
        diagnosis = _first_diagnosis(tree, decision)
        found["proof"] = "" if decision.succeeded else decision.reason
        if diagnosis is not None:
            found["reasons"] = [{"reason": text, "count": count} for text, count in diagnosis.reasons]
        if not decision.succeeded:
            changes = self._tree_changes(ask, tree, snapshot, profile, diagnosis, decision.proved)
            found["changes"] = [*changes, *moves_change(self.core, ask, self.now_s)]
        found = {**found, **self._room(ask, snapshot, profile, diagnosis), **self._preemption(ask, state)}
        return found if decision.succeeded else {**found, "domains": domains_of_tree(profile, snapshot, tree)}

    def _tree_changes(
        self, ask: Ask, tree: Branch, snapshot: Snapshot, profile: Profile, diagnosis: Diagnosis | None, proved: bool
    ) -> Objects:
        about = diagnosis or Diagnosis(ask.members[0].key, len(snapshot), ())
        question = Question(snapshot, TreeTarget(tree), profile, proved, about, effort=Effort(self.effort * 4))
        return smallest_changes(question, self._running(ask))

    # -- what holds it, what would be evicted ------------------------------------------------------------------------

    def _preemption(self, ask: Ask, state: str) -> Object:
        """Who would have to go for it, or why nobody does."""
        if state not in ("Infeasible", "Undecided"):
            return {}
        members = ask.members
        if ask.tree is not None:
            members = tuple(member for leaf in leaves_of(ask.tree) for member in leaf.need)
        outcome = self.core.post_filter.plan_for(ask, members, self.now_s)
        if not isinstance(outcome, Plan) and not self.core.cache.nodes:
            return {"preemption": {"helps": False, "text": "there are no nodes", "victims": [], "violations": 0}}
        if not isinstance(outcome, Plan):
            text = f"{outcome.text.rstrip('.')}; {self._lower_text(ask.priority)}"
            return {"preemption": {"helps": False, "text": text, "victims": [], "violations": 0}}
        pods = self.core.cache.pods
        victims = [
            {
                "pod": pod.key,
                "node": pod.node,
                "unit": unit.key.removeprefix(GROUP) if unit.is_group else "",
                "priority": unit.priority,
            }
            for unit in outcome.victims
            for pod in unit.evicted
            if pod.key in pods
        ]
        text = f"{len(victims)} pods of lower priority would be evicted" if victims else "nobody has to be evicted"
        text += f", {outcome.violations} against a disruption budget" if outcome.violations else ""
        return {"preemption": {"helps": True, "text": text, "victims": victims, "violations": outcome.violations}}

    def _lower_text(self, priority: int) -> str:
        of_group: dict[str, int | None] = {}
        running = [record for record in self.core.cache.pods.values() if record.node]
        lower = 0
        for record in running:
            if record.ref is not None and record.ref.key not in of_group:
                terms = self.core.cache.terms(record.ref)
                of_group[record.ref.key] = None if terms is None else terms.priority
            said = None if record.ref is None else of_group[record.ref.key]
            lower += (record.priority if said is None else said) < priority
        if not running:
            return "no pod runs"
        have = "has" if lower == 1 else "have"
        return f"{lower} of {_count(len(running), 'running pod')} {have} a priority below {priority}"

    def _if_it_were_tried(self, ask: Ask) -> Object:
        """Of a group that is held back: what would let it run all the same."""
        if ask.tree is not None or ask.ref is None:
            return {}
        try:
            request = request_of([ask])
        except DomainError:
            return {}
        if len(request.members) + request.scheduled >= request.min_count:
            return {}
        profile = self.core.entities.profiles[ask.profile]
        with self.core.preemptions.view(ask.priority, ask.entity) as snapshot:
            decision = decide(snapshot, request, profile=profile)
            said = explain(snapshot, request, decision, profile=profile, effort=self.effort)
        return {"changes": said["changes"], "proof": _proof(decision)}

    def _running(self, ask: Ask) -> list[tuple[str, list[str]]]:
        own = {ask.ref.key} if ask.ref is not None else set()
        own |= {leaf.ref.key for leaf in leaves_of(ask.tree)} if ask.tree is not None else set()
        return [(name, list(pods)) for name, pods in running_groups(self.core.cache, frozenset(own))]

    def _hold(self, entity: str) -> str:
        if entity.startswith(POD):
            record = self.core.cache.pods.get(entity.removeprefix(POD))
            if record is not None and not record.node and is_gated(record.pod):
                names = ", ".join(gate.get("name", "") for gate in record.pod["spec"]["schedulingGates"])
                return f"waiting until its scheduling gates are removed: {names}"
            return ""
        for members in self.core.entities.groups(entity):
            hold = self.core.gate.hold_of(members.ref.key)
            if hold is not None:
                return hold.message
        return ""

    def _has_nodes(self, entity: str) -> bool:
        if entity.startswith(POD):
            record = self.core.cache.pods.get(entity.removeprefix(POD))
            return record is not None and bool(record.node)
        return any(members.scheduled for members in self.core.entities.groups(entity))

    def _settled_text(self, entity: str) -> str:
        if entity.startswith(POD):
            record = self.core.cache.pods.get(entity.removeprefix(POD))
            return "it is not known" if record is None else f"runs on {record.node}"
        groups = self.core.entities.groups(entity)
        scheduled = sum(len(members.scheduled) for members in groups)
        if scheduled:
            nodes = {record.node for members in groups for record in members.scheduled.values()}
            return f"{_count(scheduled, 'pod')} placed on {_count(len(nodes), 'node')}, none waits"
        if not groups and entity.removeprefix(GROUP) not in self.core.cache.pod_groups and entity.startswith(GROUP):
            return "it is not known"
        group = self.core.cache.pod_groups.get(entity.removeprefix(GROUP)) if entity.startswith(GROUP) else None
        needed = 0 if group is None else terms_of(group["spec"]).min_count
        if needed and not any(members.known for members in groups):
            ref = f"spec.schedulingGroup.podGroupName: {entity.partition('/')[2]}"
            return (
                f"has no pods, and needs {_count(needed, 'pod')} that {'names' if needed == 1 else 'name'} it ({ref})"
            )
        if not any(members.known for members in groups):
            return "has no pods"
        return "has no pods that wait for a node"

    def _base(self, entity: str, state: str, summary: str) -> Object:
        """The fields that every explanation has."""
        prefix = next(prefix for prefix in KINDS if entity.startswith(prefix))
        namespace, _, name = entity.removeprefix(prefix).partition("/")
        groups = self.core.entities.groups(entity)
        scheduled = sum(len(members.scheduled) for members in groups)
        members = sum(members.known for members in groups)
        if prefix == POD:
            scheduled, members = int(self._has_nodes(entity)), 1
        kind = KINDS[prefix]
        if prefix == GROUP and groups and not groups[0].ref.is_pod_group:
            kind = "Workload"
        return {
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "state": state,
            "summary": summary,
            "minCount": self._min_count(entity),
            "members": members,
            "scheduled": scheduled,
            "proof": "",
            "placements": [],
            "reasons": [],
            "groups": [],
            "shapes": [],
            "nodes": [],
            "domains": [],
            "holders": [],
            "preemption": None,
            "changes": [],
        }

    def _min_count(self, entity: str) -> int:
        if entity.startswith(TREE):
            terms = self.core.cache.hierarchy.terms(entity.removeprefix(TREE))
            return 1 if terms is None else terms.min_groups
        if entity.startswith(POD):
            return 1
        groups = self.core.entities.groups(entity)
        namespace, _, name = entity.removeprefix(GROUP).partition("/")
        found = self.core.cache.terms(groups[0].ref if groups else GroupRef(namespace, name))
        return 1 if found is None else found.min_count


def _state(decision: Decision, request: GroupRequest) -> str:
    if isinstance(decision, Placed):
        return "WouldBePlaced" if decision.placements else "Placed"
    return "Infeasible" if isinstance(decision, Infeasible) else "Undecided"


def _proof(decision: Decision) -> str:
    if isinstance(decision, Infeasible):
        return decision.proof
    return decision.reason if isinstance(decision, Undecided) else ""


def _placements(placements: Iterable[Placement]) -> Objects:
    return [{"pod": each.pod, "node": each.node} for each in placements]


def _tree_summary(tree: Branch, decision: TreeDecision) -> str:
    if not decision.succeeded:
        return decision.reason
    placed = [leaf for leaf in leaves_of(tree) if decision.placements(leaf)]
    pods = sum(len(decision.placements(leaf)) for leaf in placed)
    return f"{_count(pods, 'pod')} of {_count(len(placed), 'group')} would be placed"


def _leaf(key: str, decision: TreeDecision) -> Object:
    outcome, dropped = decision.outcomes[key], decision.dropped.get(key)
    if isinstance(outcome, Placed):
        text = f"fits, but {dropped} has too few groups that do" if dropped is not None else "fits"
        return {"group": key, "state": "Fits", "text": text}
    return {
        "group": key,
        "state": "Infeasible" if isinstance(outcome, Infeasible) else "Undecided",
        "text": _proof(outcome),
    }


def _first_diagnosis(tree: Branch, decision: TreeDecision) -> Diagnosis | None:
    found = (decision.outcomes[leaf.ref.key].diagnosis for leaf in leaves_of(tree) if leaf.members)
    return next((each for each in found if each is not None), None)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
