"""Whether a placement that was planned before can be carried out now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.engine.between import rules_between
from muster.engine.exact.placing import holds_in_order
from muster.engine.mixed import Attempt, demands_of
from muster.engine.model import Member
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot


def holds(profile: Profile, snapshot: Snapshot, members: Sequence[Member], places: Mapping[str, str]) -> bool:
    """Whether every member (by key) fits on the node planned for it: one after the other, in some order, where members
    have rules about each other."""
    rows = [snapshot.table.index.get(places[member.key]) for member in members]
    found = tuple((place, row) for place, row in enumerate(rows) if row is not None)
    if len(found) < len(members):
        return False
    demands = demands_of(members)
    rules = rules_between(profile, [demand.shape for demand in demands], snapshot)
    return holds_in_order(profile, snapshot, demands, rules, Attempt(found))
