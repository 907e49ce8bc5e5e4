"""The group cycle itself: placements, members one by one, the choice of a placement, and trees of groups. Pure.

The releases differ in when a group counts as feasible: 1.36 asks the gang plugin's Permit for each placed member and
tries all members; 1.37 asks PlacementFeasible before the first and after each, and stops where min_count is out of
reach. Trees are 1.37's; in 1.36 there are none, and they are treated as in 1.37.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.engine.model import Code, ScoreError
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.topology.domains import DomainError
from muster.engine.upstream.model import (
    UNSCHEDULABLE_GROUP,
    Choices,
    CompositeGroup,
    Group,
    GroupResult,
    PodGroup,
    PodResult,
    Release,
    Results,
    Trace,
    Word,
    leaves,
    unschedulable,
)
from muster.engine.upstream.placements import NO_PLACEMENTS, Area, areas, best_domains, scores_of
from muster.engine.upstream.placing import place_members, put_pods

GROUP, COMPOSITE = "podgroup", "compositepodgroup"


@dataclass(slots=True)
class Cycle:
    """One attempt. `run` may be called again on other snapshots (with victims gone); `trace` adds up."""

    profile: Profile
    release: Release
    choices: Choices = field(default_factory=Choices)
    trace: Trace = field(default_factory=Trace)

    def run(self, snapshot: Snapshot, root: Group) -> Results:
        """The results of the root and of all groups that were tried. The snapshot is left as it was."""
        results: Results = {}
        with snapshot.trial() as trial:
            result = self._group(trial, root, results)
        if result.word.is_success and not result.any_scheduled:
            result.word = unschedulable()
        return results

    # -- one group or composite group, in all its placements

    def _group(self, trial: Trial, group: Group, results: Results) -> GroupResult:
        """Tries a group. What it chose stays in the trial for its siblings."""
        if isinstance(group, PodGroup):
            self.trace.tree.append((GROUP, group.key))
        else:
            self.trace.tree.append((COMPOSITE, group.key))
        found = self._in_areas(trial, group)
        results.update(found)
        put_pods(trial, [pod for leaf in _successful(group, found) for pod in found[leaf.key].pods])
        return found[group.key]

    def _in_areas(self, trial: Trial, group: Group) -> Results:
        try:
            tried = areas(trial, group, self.choices)
        except DomainError as error:
            return {group.key: GroupResult(group, Word(Code.ERROR, str(error)))}
        if not tried:
            return {group.key: GroupResult(group, Word(Code.UNSCHEDULABLE, reasons=[NO_PLACEMENTS]))}
        first: Results | None = None
        feasible: dict[str, Results] = {}
        for area in tried:
            found = self._in_area(area, group)
            word = found[group.key].word
            if word.code is Code.ERROR:
                return found
            first = first or found
            if word.is_success:
                feasible[area.name or ""] = found
        self.trace.placements += [area.name for area in tried if area.name is not None]
        assert first is not None
        if not feasible:
            self._refuse(first[group.key], len(tried))
            return first
        return self._chosen(trial, group, [area.name or "" for area in tried], feasible)

    def _refuse(self, result: GroupResult, number: int) -> None:
        why = f"0/{number} placements are available, first placement status: {result.word.as_error}"
        result.word = Word(Code.UNSCHEDULABLE, reasons=[why]) if self.release == "1.36" else unschedulable(why)

    def _chosen(self, trial: Trial, group: Group, names: list[str], feasible: dict[str, Results]) -> Results:
        """The results in the placement with the highest score; with only one nothing is scored."""
        if len(feasible) == 1:
            return next(iter(feasible.values()))
        pods = {
            name: [pod for leaf in _successful(group, found) for pod in found[leaf.key].pods]
            for name, found in feasible.items()
        }
        scores = scores_of(self.profile, trial, group, pods)
        self.trace.scores.update(scores)
        return feasible[self.choices.domain(group.key, best_domains(scores, names))]

    def _in_area(self, area: Area, group: Group) -> Results:
        if isinstance(group, CompositeGroup):
            return self._composite(area.nodes, group)
        self.trace.runs += 1
        return {group.key: self._members_1_36(area, group) if self.release == "1.36" else self._members(area, group)}

    # -- the members of a group in one placement

    def _members_1_36(self, area: Area, group: PodGroup) -> GroupResult:
        """All members are tried; the group succeeds once a placed one makes enough."""
        result = GroupResult(group, unschedulable())
        members = self.choices.order(group.key, group.members)
        self._note_order([member.key for member in members])
        placed = 0
        try:
            for each in place_members(self.profile, area.nodes, members, self.choices):
                result.pods.append(each)
                placed += bool(each.node)
                if each.node and group.number_scheduled + placed >= group.min_count:
                    result.word = Word(Code.SUCCESS)
        except ScoreError as error:
            result.word = Word(Code.ERROR, f"failed to schedule other pod from a pod group: {error}")
        result.any_scheduled = result.word.is_success
        return result

    def _members(self, area: Area, group: PodGroup) -> GroupResult:
        """Members are tried while enough of them can still be placed."""
        members = self.choices.order(group.key, group.members)
        remaining, scheduled = len(members), group.number_scheduled
        result = GroupResult(group, _feasible(group.min_count, scheduled, remaining))
        if result.word.code is Code.UNSCHEDULABLE:
            result.word.error = UNSCHEDULABLE_GROUP
            return result
        any_placed = False
        try:
            for each in place_members(self.profile, area.nodes, members, self.choices):
                result.pods.append(each)
                remaining -= 1
                scheduled += bool(each.node)
                any_placed = any_placed or bool(each.node)
                result.word = _feasible(group.min_count, scheduled, remaining)
                if result.word.code is Code.UNSCHEDULABLE:
                    break
        except ScoreError as error:
            result.word = Word(Code.ERROR, f"failed to schedule other pod from a pod group: {error}")
        self._note_order([each.member.key for each in result.pods])
        result.any_scheduled = any_placed and result.word.is_success
        return result

    def _note_order(self, pods: list[str]) -> None:
        if self.trace.order is None:
            self.trace.order = pods

    # -- the children of a composite group in one placement

    def _composite(self, snapshot: Snapshot, group: CompositeGroup) -> Results:
        """Children are tried in order while enough of them can still succeed; each sees those before it in place."""
        results: Results = {}
        result = self._children(snapshot, group, results)
        self.trace.tree.append(("succeeded" if result.word.is_success else "failed", group.key))
        if not result.word.is_success:
            result.any_scheduled = False
        return {**results, group.key: result}

    def _children(self, snapshot: Snapshot, group: CompositeGroup, results: Results) -> GroupResult:
        remaining, scheduled, any_scheduled = len(group.children), 0, False
        word = _feasible(group.min_groups, scheduled, remaining)
        if word.code is Code.UNSCHEDULABLE:
            return GroupResult(group, word)
        with snapshot.trial() as trial:
            for child in group.children:
                result = self._group(trial, child, results)
                if result.word.code is Code.ERROR:
                    why = f"composite pod group evaluation failed due to child error: {result.word.as_error}"
                    return GroupResult(group, Word(Code.ERROR, why))
                any_scheduled = any_scheduled or result.any_scheduled
                remaining -= 1
                scheduled += result.word.is_success
                word = _feasible(group.min_groups, scheduled, remaining)
                if word.code is Code.UNSCHEDULABLE:
                    break
        return GroupResult(group, word, any_scheduled=any_scheduled)


def _feasible(minimum: int, scheduled: int, remaining: int) -> Word:
    """What the gang plugin's PlacementFeasible says (1.37); SUCCESS also stands for "wait" while some remain."""
    if remaining + scheduled < minimum:
        why = f"minCount ({minimum}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
        return Word(Code.UNSCHEDULABLE, reasons=[why])
    return Word(Code.SUCCESS)


def _successful(group: Group, results: Results) -> list[PodGroup]:
    """The groups that succeeded and all composite groups above them as well."""
    result = results.get(group.key)
    if result is None or not result.word.is_success:
        return []
    if isinstance(group, PodGroup):
        return [group]
    return [leaf for child in group.children for leaf in _successful(child, results)]


def complete(root: Group, results: Results) -> Results:
    """The results of all groups below the root, and of all members: what was not tried, or cannot stand since a group
    above failed, has the status of the group above, and shares it."""
    found = dict(results)
    _pass_down(root, found, Word(Code.SUCCESS))
    for leaf in leaves(root):
        result = found[leaf.key]
        tried = {each.member.key for each in result.pods}
        word = result.word.copy()
        result.pods += [PodResult(member, word=word) for member in leaf.members if member.key not in tried]
    return found


def _pass_down(group: Group, results: Results, above: Word) -> None:
    result = results.get(group.key)
    if result is None or (not above.is_success and result.word.is_success):
        result = results[group.key] = GroupResult(group, above)
    if isinstance(group, CompositeGroup):
        for child in group.children:
            _pass_down(child, results, result.word)
