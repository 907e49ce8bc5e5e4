"""decide: can this group run now, and where. A pure function of a snapshot and a request.

Order of work: quick no (too few members, totals for each shape and resource) → one shape: the exact closed rule →
several shapes: a few greedy passes → a short complete search, which settles small groups → exact placement, or a proof
that the members do not fit (`exact`) → Undecided, if the budget does not suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.diagnose import diagnose, node_allowed
from muster.engine.exact.placing import Exact, place_exactly
from muster.engine.exact.work import Remaining
from muster.engine.mixed import Attempt, Demand, apply, attempts, binding, demands_of, most_placeable
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Placed, Placement, Undecided
from muster.engine.profile import Profile
from muster.engine.search import STEPS_PER_PASS, search
from muster.engine.shared_claims import claims_in_common, decide_by_choices
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import decide_in_one_domain
from muster.engine.topology.levels import decide_laid_out

DEFAULT_BUDGET = 64

_PASSES_BEFORE_EXACT = 5
"""So many greedy passes are tried on groups for which there is an exact search: it costs no more than the others."""
_SEARCH_PASSES = 4
_SEARCH_MEMBERS = 24
"""The complete search is for groups of so many members; larger ones would only use up its steps."""
_SHARE_FOR_MORE = 4
"""Where enough members have a place, the search for places for more of them gets this part of the budget."""


def decide(
    snapshot: Snapshot,
    request: GroupRequest,
    *,
    budget: int | None = None,
    profile: Profile = DEFAULT_PROFILE,
    remaining: Remaining | None = None,
) -> Decision:
    """Places as many members as it can, or says why min_count of them do not fit.

    `budget` is a number of greedy passes, or of searches that cost as much (default DEFAULT_BUDGET). `remaining` gives
    the seconds that are left, for a caller with a clock who wants to stop earlier than that. `Infeasible` is only
    answered with a proof: for members of one shape always, for several shapes if bounds or a complete search give one.
    Of several placements of the most members, it takes one with the lowest positions. Identical members get nodes in
    NodeTable order, so that neighbours in the group are neighbours in the cluster; how many each node gets is what the
    sequential greedy gives (see `identical`). With a topology constraint all go to one domain (see `topology`).
    """
    needed = max(request.min_count - request.scheduled, 0)
    if not request.members:
        return _too_few(request, snapshot)
    if len(request.members) < needed:
        return Infeasible(_members_proof(request), _diagnosis(profile, snapshot, request, Attempt(())))
    snapshot = snapshot.facing(request.priority, (member.key for member in request.members))
    limit = DEFAULT_BUDGET if budget is None else budget
    if request.layout is not None:
        return decide_laid_out(profile, snapshot, request, limit, partial(_decide_part, remaining))
    inside = partial(_decide_inside, snapshot, request, remaining)
    if request.topology_key is None:
        return inside(profile, limit)
    return decide_in_one_domain(profile, snapshot, request, request.topology_key, limit, inside)


def _decide_part(
    remaining: Remaining | None, profile: Profile, snapshot: Snapshot, request: GroupRequest, limit: int
) -> Decision:
    return _decide_inside(snapshot, request, remaining, profile, limit)


def _decide_inside(
    snapshot: Snapshot, request: GroupRequest, remaining: Remaining | None, profile: Profile, limit: int
) -> Decision:
    """About enough members, on all nodes that the profile leaves open."""
    found = _decide_as_they_come(snapshot, request, remaining, profile, limit)
    if isinstance(found, Infeasible) or (isinstance(found, Placed) and not found.unplaced) or request.one_by_one:
        return found
    key = next(iter(claims_in_common(snapshot, request)), None)
    if key is None or len(request.members) == 1:
        return found

    def inside(trial: Snapshot, rest: GroupRequest, share: int) -> Decision:
        return _decide_inside(trial, rest, remaining, profile, share)

    chosen = decide_by_choices(profile, snapshot, request, key, limit, inside, found)
    if isinstance(found, Placed):
        is_better = isinstance(chosen, Placed) and len(chosen.unplaced) < len(found.unplaced)
        return chosen if is_better else found
    return chosen


def _decide_as_they_come(
    snapshot: Snapshot, request: GroupRequest, remaining: Remaining | None, profile: Profile, limit: int
) -> Decision:
    """As `_decide_inside`; the first pod that uses a claim chooses its devices, where it is not settled otherwise."""
    needed = max(request.min_count - request.scheduled, 0)
    first = _nominated(profile, snapshot, request)
    if first is not None:
        return first
    demands = demands_of(request.members)
    bound, proof = most_placeable(profile, snapshot, demands)
    coupled = binding(profile, snapshot, demands)
    several = len(demands) > 1 or coupled
    passes = min(limit, _PASSES_BEFORE_EXACT) if several else limit
    best, spent = _best_attempt(profile, snapshot, demands, len(request.members), bound, passes)
    if coupled and (len(request.members) == 1 or request.one_by_one):
        bound = len(best.rows)  # one pod at a time: who comes later does not matter, and what is there was looked at
    elif several and len(best.rows) < len(request.members) and bound >= max(needed, 1):
        known = Exact(best, bound, proof, spent)
        found = _exactly(profile, snapshot, demands, known, needed, limit, remaining, coupled)
        best, bound, proof, spent = found.attempt, found.most, found.proof, found.passes
    if len(best.rows) >= needed:
        return _placed(profile, snapshot, request, best)
    diagnosis = _diagnosis(profile, snapshot, request, best)
    if bound < needed:
        return Infeasible(proof or "no pod of the group fits on any node", diagnosis)
    reason = f"found no placement for {needed} pods within {spent} units of work, and no proof that there is none"
    return Undecided(spent, reason, diagnosis, _placements(snapshot, request, best))


def verdict(
    snapshot: Snapshot, request: GroupRequest, *, budget: int | None = None, profile: Profile = DEFAULT_PROFILE
) -> bool | None:
    """Whether `decide` would answer Placed (True), Infeasible (False) or Undecided (None), without saying where.

    Much cheaper than `decide` for members of one shape: counting room is enough.
    """
    demands = demands_of(request.members)
    anywhere = request.topology_key is None and (request.layout is None or not request.layout.has_units)
    if len(demands) == 1 and anywhere and not binding(profile, snapshot, demands):
        needed = request.min_count - request.scheduled
        snapshot = snapshot.facing(request.priority, (member.key for member in request.members))
        room = int(profile.count(demands[0].shape, snapshot).sum())
        return min(room, len(request.members)) >= needed
    decision = decide(snapshot, request, budget=budget, profile=profile)
    return None if isinstance(decision, Undecided) else isinstance(decision, Placed)


def _nominated(profile: Profile, snapshot: Snapshot, request: GroupRequest) -> Decision | None:
    """A single pod goes to the node that was cleared for it, if it fits there, whatever other nodes offer."""
    member = request.members[0]
    row = snapshot.table.index.get(member.nominated)
    if len(request.members) > 1 or row is None or profile.count(member.shape, snapshot)[row] == 0:
        return None
    if not node_allowed(profile, snapshot, member.shape, row):
        return None
    return Placed((Placement(member.key, member.nominated),))


def _best_attempt(
    profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], members: int, bound: int, limit: int
) -> tuple[Attempt, int]:
    """The best of the passes and how many were made; stops at one that places all that can be placed."""
    best, spent = Attempt(()), 0
    for attempt in attempts(profile, snapshot, demands):
        spent += 1
        best = min(best, attempt, key=lambda each: each.rank) if best.rows else attempt
        if len(best.rows) == members or spent >= limit or (len(best.rows) == bound and len(demands) == 1):
            break
    return best, spent


def _exactly(
    profile: Profile,
    snapshot: Snapshot,
    demands: Sequence[Demand],
    known: Exact,
    needed: int,
    limit: int,
    remaining: Remaining | None,
    coupled: bool,
) -> Exact:
    """Goes on where greedy passes ended: a short complete search, which settles small groups, then exact placement."""
    members = sum(len(demand.places) for demand in demands)
    best, most, proof, spent = known.attempt, known.most, known.proof, known.passes
    if len(best.rows) < most == members <= _SEARCH_MEMBERS and not coupled:
        found = search(profile, snapshot, demands, min(limit - spent, _SEARCH_PASSES) * STEPS_PER_PASS)
        spent += found.steps // STEPS_PER_PASS
        best = found.attempt or best
        if found.proved:
            most, proof = most - 1, f"all ways to place {most} pods on the nodes were tried, and none holds them all"
    if len(best.rows) == members or most < max(needed, 1) or spent >= limit:
        return Exact(best, most, proof, spent)
    enough = len(best.rows) >= needed
    passes = max(1, (limit - spent) // (_SHARE_FOR_MORE if enough else 1))
    exact = place_exactly(
        profile, snapshot, demands, best, needed=needed, most=most, passes=passes, remaining=remaining
    )
    return Exact(exact.attempt, exact.most, exact.proof or proof, spent + exact.passes)


def _placed(profile: Profile, snapshot: Snapshot, request: GroupRequest, best: Attempt) -> Placed:
    placements = _placements(snapshot, request, best)
    if len(placements) == len(request.members):
        return Placed(placements)
    taken = {place for place, _ in best.rows}
    unplaced = tuple(member.key for place, member in enumerate(request.members) if place not in taken)
    return Placed(placements, unplaced, _diagnosis(profile, snapshot, request, best))


def _placements(snapshot: Snapshot, request: GroupRequest, attempt: Attempt) -> tuple[Placement, ...]:
    members, records = request.members, snapshot.table.records
    keys = [members[place].key for place, _ in attempt.rows]
    names = [records[row].name for _, row in attempt.rows]
    return tuple(map(Placement, keys, names))


def _diagnosis(profile: Profile, snapshot: Snapshot, request: GroupRequest, attempt: Attempt) -> Diagnosis:
    """Why the first member without a node has none, with the others of the attempt in their places."""
    taken = {place for place, _ in attempt.rows}
    place = next((place for place in range(len(request.members)) if place not in taken), 0)
    member = request.members[place]
    with snapshot.trial() as trial:
        apply(trial, request.members, attempt)
        return diagnose(profile, trial, member.shape, member.key)


def _too_few(request: GroupRequest, snapshot: Snapshot) -> Decision:
    if request.scheduled >= request.min_count:
        return Placed(())
    return Infeasible(_members_proof(request), Diagnosis(request.key, len(snapshot), ()))


def _members_proof(request: GroupRequest) -> str:
    known = len(request.members) + request.scheduled
    return f"the group has {known} of the {request.min_count} pods that it needs"
