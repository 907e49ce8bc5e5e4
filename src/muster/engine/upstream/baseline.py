"""What kube-scheduler's greedy group cycle would do with a group on a snapshot: one call, for benches and checks.

The rules of a release are those of `cycle`: 1.36.3 or 1.37.2. Nothing is evicted; see `preemption` for that.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.model import GroupRequest, Placement
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.upstream.batching import batched
from muster.engine.upstream.cycle import Cycle, complete
from muster.engine.upstream.model import PodGroup, PodResult, Release, Trace


class Greedy(Struct, frozen=True):
    """What the cycle gives. `placed`: at least min_count members have a node, and at least one got it now.

    `placements`: where members would go (empty if not placed). `unplaced`: members that stay pending. `message`: what
    the PodGroup's condition would say ("" if placed). `pods`: what each member left over would be told, by key.
    """

    placed: bool
    placements: tuple[Placement, ...]
    unplaced: tuple[str, ...]
    message: str
    pods: Mapping[str, str]
    trace: Trace


def greedy(
    snapshot: Snapshot,
    request: GroupRequest,
    *,
    release: Release = "1.37",
    profile: Profile = DEFAULT_PROFILE,
    scheduled: Mapping[str, str] | None = None,
) -> Greedy:
    """Tries the members in their order, each on the best node left, as the release does; without preemption.

    `request`: as for `decide`; its min_count, scheduled members and topology key are obeyed. With a topology key, give
    the nodes of the `scheduled` members (pod key → node name) instead of `request.topology_domain`. Ties go to the
    first node in NodeTable order and to the first domain. The snapshot is not changed.
    """
    nodes = scheduled or {}
    members = batched(request.members) if release == "1.37" else request.members
    group = PodGroup(
        request.key, members, request.min_count, nodes, request.topology_key, max(0, request.scheduled - len(nodes))
    )
    cycle = Cycle(profile, release)
    seen = snapshot.facing(request.priority, (member.key for member in request.members))
    result = complete(group, cycle.run(seen, group))[group.key]
    placed = result.word.is_success
    left = [each for each in result.pods if not (placed and each.node)]
    return Greedy(
        placed,
        result.placements if placed else (),
        tuple(each.member.key for each in left),
        "" if placed else result.word.message,
        {each.member.key: _text(each, result.word.message) for each in left},
        cycle.trace,
    )


def _text(pod: PodResult, group: str) -> str:
    """Why the member stays pending, in short."""
    if pod.diagnosis is not None:
        return pod.diagnosis.text()
    return pod.word.message if pod.word is not None else group
