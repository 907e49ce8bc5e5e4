"""Why a shape fits on no node: the first failing rule of each node, counted as kube-scheduler's FitError counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from muster.engine.arrays import Bools, Ints
from muster.engine.model import Diagnosis, Status
from muster.engine.profile import Profile, acting, beside_nominated, looks_first
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


def diagnose(profile: Profile, snapshot: Snapshot, shape: Shape, unplaced: str) -> Diagnosis:
    """The diagnosis of a pod (`unplaced` is its key) for the snapshot, on whose nodes no further pod of the shape fits.

    Nodes on which it would fit are not counted.
    """
    nodes = len(snapshot)
    verdict = shape_verdict(profile, snapshot, shape)
    if verdict is not None:
        counted = tuple((reason, nodes) for reason in verdict.reasons)
        return Diagnosis(unplaced, nodes, counted, frozenset({verdict.plugin}), verdict=" ".join(verdict.reasons))
    reasons: Counter[str] = Counter()
    plugins = set()
    for _, statuses in _failing(profile, snapshot, shape):
        # Plugins share the status of equal nodes, so that counting objects is enough and hashes nothing.
        identities = list(map(id, statuses))
        distinct = dict(zip(identities, statuses, strict=True))
        for identity, count in Counter(identities).items():
            status = distinct[identity]
            plugins.add(status.plugin)
            for reason in status.reasons:
                reasons[reason] += count
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return Diagnosis(unplaced, nodes, tuple(ranked), frozenset(plugins))


def node_statuses(profile: Profile, snapshot: Snapshot, shape: Shape) -> dict[str, Status]:
    """Why not, for each node on which no pod of the shape fits, by node name in NodeTable order."""
    verdict = shape_verdict(profile, snapshot, shape)
    if verdict is not None:
        return dict.fromkeys(snapshot.table.names, verdict)
    found: dict[int, Status] = {}
    for rows, statuses in _failing(profile, snapshot, shape):
        found.update(zip(rows.tolist(), statuses, strict=True))
    return {snapshot.table.records[row].name: found[row] for row in sorted(found)}


def shape_verdict(profile: Profile, snapshot: Snapshot, shape: Shape) -> Status | None:
    """The first rule that rejects the shape as such, whatever the nodes."""
    for plugin in profile.filters:
        if looks_first(plugin):
            verdict = plugin.verdict(shape, snapshot)
            if verdict is not None:
                return verdict
    return None


def node_allowed(profile: Profile, snapshot: Snapshot, shape: Shape, row: int) -> bool:
    """Whether a node is among those that the rules let be looked at for the shape."""
    for plugin in profile.filters:
        if looks_first(plugin):
            allowed = plugin.node_set(shape, snapshot)
            if plugin.verdict(shape, snapshot) is not None or (allowed is not None and not allowed[row]):
                return False
    return True


def _failing(profile: Profile, snapshot: Snapshot, shape: Shape) -> Iterator[tuple[Ints, list[Status]]]:
    """The rows that each rule is the first to reject, with their statuses.

    A node with nominated pods is tried with them there first, then without.
    """
    open_: Bools = np.ones(len(snapshot), dtype=np.bool_)
    excluding = []
    for plugin in profile.filters:
        allowed = plugin.node_set(shape, snapshot) if looks_first(plugin) else None
        if allowed is not None:
            open_ &= allowed
            excluding.append(plugin.name)
    if excluding:
        rows = np.flatnonzero(~open_)
        text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(excluding))}]"
        yield rows, [Status(excluding[0], (text,), resolvable=False)] * len(rows)
    plugins = acting(profile, shape, snapshot) if snapshot.reserved else []
    for row, beside in beside_nominated(profile, shape, snapshot):
        one = np.array([row], dtype=np.int64)
        rejecting = next((each for each in plugins if each.count(shape, beside)[row] == 0), None)
        if open_[row] and rejecting is not None:
            yield one, rejecting.reasons(shape, beside, one)
            open_[row] = False
    for plugin in profile.filters:
        rows = np.flatnonzero(open_ & (plugin.count(shape, snapshot) == 0))
        if len(rows):
            yield rows, plugin.reasons(shape, snapshot, rows)
            open_[rows] = False
