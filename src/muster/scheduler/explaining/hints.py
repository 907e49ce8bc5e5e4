"""The smallest change for a group that waits, where it is cheap to find: for the condition of its PodGroup. Pure.

The same what-if as in an explanation, but only for groups whose room is a matter of counting.
"""

from __future__ import annotations

from muster.engine.explanation.adding_nodes import added_nodes
from muster.engine.explanation.asking_less import lowered_quotas
from muster.engine.explanation.question import Effort, GroupTarget, Question
from muster.engine.model import Diagnosis, GroupRequest
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot

MOST_NODES = 1000
"""On larger clusters, trying further nodes takes too long for a message."""
_EFFORT = 64


def cheap_change(snapshot: Snapshot, request: GroupRequest, profile: Profile) -> str:
    """One change with which a group that was proved not to fit would run, in words; "" if it is not cheap to find."""
    target = GroupTarget(request)
    if not request.members or not target.is_complete or target.cost(snapshot, profile) > 1:
        return ""
    about = Diagnosis(request.members[0].key, len(snapshot), ())
    question = Question(snapshot, target, profile, True, about, effort=Effort(_EFFORT))
    for find in (added_nodes, lowered_quotas) if len(snapshot) <= MOST_NODES else (lowered_quotas,):
        for found in find(question):
            return str(found["text"])
    return ""
