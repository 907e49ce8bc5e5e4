"""The members of a group one after the other on the nodes of one placement: the inner loop of the group cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from muster.engine.diagnose import diagnose, node_allowed
from muster.engine.in_order import InOrder
from muster.engine.model import Member
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.upstream.model import Choices, PodResult


def place_members(
    profile: Profile, snapshot: Snapshot, members: Sequence[Member], choices: Choices
) -> Iterator[PodResult]:
    """The result of each member, with those before it in place. The caller may stop early.

    A member goes to the node that was nominated for it, if it fits there; else to a node with the best score. Raises
    ScoreError if a shape cannot be scored.
    """
    with snapshot.trial() as trial:
        steps = InOrder(profile, trial, [member.shape for member in members])
        for member in members:
            row = _row(profile, trial, steps, member, choices)
            if row < 0:
                yield PodResult(member, diagnosis=diagnose(profile, trial, member.shape, member.key))
            else:
                steps.put(member.shape, row)
                yield PodResult(member, trial.table.records[row].name)


def _row(profile: Profile, trial: Trial, steps: InOrder, member: Member, choices: Choices) -> int:
    """The row of the member's node, -1 if it fits on none."""
    nominated = trial.table.index.get(member.nominated, -1)
    fits = nominated >= 0 and profile.count(member.shape, trial)[nominated] > 0
    if fits and node_allowed(profile, trial, member.shape, nominated):
        return nominated
    best = steps.best(member.shape)
    if not len(best):
        return -1
    if len(best) == 1 or type(choices) is Choices:
        return int(best[0])
    names = [trial.table.records[row].name for row in best.tolist()]
    return trial.table.index[choices.node(member.key, names)]


def put_pods(trial: Trial, pods: Sequence[PodResult]) -> None:
    """Puts members where they were placed into a trial."""
    for each in pods:
        if each.node:
            trial.place_many(
                each.member.shape.usage,
                np.array([trial.table.index[each.node]], dtype=np.int64),
                np.ones(1, dtype=np.int64),
            )
