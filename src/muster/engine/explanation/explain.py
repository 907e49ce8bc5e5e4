"""explain: a decision in words, with the smallest changes that would let the group run, each tried by `decide`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.api.codec import Object
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.explanation.changes import smallest_changes
from muster.engine.explanation.question import DEFAULT_EFFORT, Effort, GroupTarget, Question
from muster.engine.explanation.waiting import RunningGroup
from muster.engine.mixed import Demand, demands_of
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Placed
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.words import demand_text, insufficient, nodes, pods


def explain(
    snapshot: Snapshot,
    request: GroupRequest,
    decision: Decision,
    *,
    groups: Sequence[RunningGroup] = (),
    profile: Profile = DEFAULT_PROFILE,
    effort: int = DEFAULT_EFFORT,
) -> Object:
    """`{"summary", "reasons", "changes"}` for a decision that `decide` took on this snapshot and request.

    `groups`: running groups and the keys of their pods, candidates for "wait until these end". Each change was tried:
    with it `decide` places the group. `minimal` is true only if the next smaller change was proved not to be enough.
    Of a placed group with members left over, it explains what all members would need.
    """
    enough = isinstance(decision, Placed)
    if isinstance(decision, Placed):
        if not decision.unplaced:
            return _explanation(_placed_text(decision), None, [])
        placed = len(decision.placements)
        request = replace(request, min_count=request.scheduled + len(request.members))
        decision = decide(snapshot, request, profile=profile)
        if isinstance(decision, Placed):
            return _explanation(_placed_text(decision), None, [])
        all_of_them = _summary(snapshot, request, decision, profile)
        summary = f"placed {placed} of {len(request.members)} pods, which is enough; in all it {all_of_them}"
        if not placed:
            summary = f"has enough pods; for the others it {all_of_them}"
    else:
        summary = _summary(snapshot, request, decision, profile)
    if not request.members:
        return _explanation(summary, decision.diagnosis, [])
    question = Question(
        snapshot,
        GroupTarget(request),
        profile,
        isinstance(decision, Infeasible),
        decision.diagnosis,
        not enough,
        Effort(effort),
    )
    return _explanation(summary, decision.diagnosis, smallest_changes(question, groups))


def _explanation(summary: str, diagnosis: Diagnosis | None, changes: list[Object]) -> Object:
    reasons = [] if diagnosis is None else [{"reason": text, "count": count} for text, count in diagnosis.reasons]
    return {"summary": summary, "reasons": reasons, "changes": changes}


def _placed_text(decision: Placed) -> str:
    used = len({placement.node for placement in decision.placements})
    return f"{pods(len(decision.placements))} placed on {nodes(used)}"


def _summary(snapshot: Snapshot, request: GroupRequest, decision: Decision, profile: Profile) -> str:
    if isinstance(decision, Placed):
        return _placed_text(decision)
    diagnosis = decision.diagnosis
    if len(request.members) + request.scheduled < request.min_count:
        return f"has {len(request.members) + request.scheduled} of the {request.min_count} pods that it needs"
    demands = demands_of(request.members)
    needed = max(request.min_count - request.scheduled, 1)
    need = demand_text(demands, needed, insufficient(diagnosis.reasons))
    if diagnosis.verdict:
        return f"needs {pods(needed)}; {diagnosis.verdict}"
    if request.topology_key is not None:
        why = decision.proof if isinstance(decision, Infeasible) else decision.reason
        return f"needs {need} in one domain of {request.topology_key}; {why}"
    return f"needs {need}; {_room_text(snapshot, demands, needed, decision, profile)}{_other_reasons(diagnosis)}"


def _room_text(snapshot: Snapshot, demands: list[Demand], needed: int, decision: Decision, profile: Profile) -> str:
    if not len(snapshot):
        return "there are no nodes"
    if len(demands) > 1:
        if isinstance(decision, Infeasible):
            return decision.proof
        return "no placement was found, and none was proved impossible"
    counts = profile.count(demands[0].shape, snapshot)
    room, usable = int(counts.sum()), int((counts > 0).sum())
    if room == 0:
        one = "even one of them" if needed > 1 else "it"
        return (
            f"none of the {len(snapshot)} nodes takes {one}"
            if len(snapshot) > 1
            else f"the only node cannot take {one}"
        )
    them = f"{room} of them" if needed > 1 else "it"
    return f"room for {them} on {nodes(usable)}"


def _other_reasons(diagnosis: Diagnosis) -> str:
    """What else keeps nodes out, beyond resources: taints, selectors, cordons."""
    other = [f"{count} {text}" for text, count in diagnosis.reasons if not text.startswith("Insufficient ")]
    return f" ({', '.join(other)})" if other else ""
