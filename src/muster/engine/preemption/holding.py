"""Whether a placement that was planned before can be carried out now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.engine.model import Member
from muster.engine.preemption.coupling import couples_nodes
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


def holds(profile: Profile, snapshot: Snapshot, members: Sequence[Member], places: Mapping[str, str]) -> bool:
    """Whether every member (by key) fits on the node planned for it, with those before it in their places."""
    by_shape: dict[Shape, dict[int, int]] = {}
    for member in members:
        row = snapshot.table.index.get(places[member.key])
        if row is None:
            return False
        counts = by_shape.setdefault(member.shape, {})
        counts[row] = counts.get(row, 0) + 1
    with snapshot.trial() as trial:
        for shape, counts in by_shape.items():
            one_by_one = couples_nodes(profile, shape, snapshot)
            steps = [{row: 1} for row, number in counts.items() for _ in range(number)] if one_by_one else [counts]
            for step in steps:
                rows = np.array(list(step), dtype=np.int64)
                numbers = np.array(list(step.values()), dtype=np.int64)
                if (profile.count(shape, trial)[rows] < numbers).any():
                    return False
                trial.place_many(shape.usage, rows, numbers)
    return True
