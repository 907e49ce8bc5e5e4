"""Whether what was reserved for a pod has happened: volumes refer to its claims, and the claims are bound. Pure.

Source of the rules and texts: kube-scheduler `volumebinding/binder.go` (bindAPIUpdate, checkBindings).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.storage import SELECTED_NODE, bound_volume, is_bound, is_bound_to
from muster.engine.nodes import NodeTable
from muster.engine.objects import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from muster.engine.state import ClusterState
from muster.engine.storage.finding import Nodes
from muster.engine.storage.reserving import Reservation, placed_claim


class BindingFailed(Exception):
    """The volumes of a pod will not be bound for its node. Retryable by scheduling it anew; the text is upstream's."""


@dataclass(slots=True)
class Progress:
    """A reservation on its way. `written`: the version that each object, by kind and key, had after our write."""

    reservation: Reservation
    written: dict[tuple[str, str], int] = field(default_factory=dict)

    def is_shown(self, kind: str, key: str, obj: Object) -> bool:
        """Whether the object is at least as new as our write of it."""
        version = obj["metadata"].get("resourceVersion") or ""
        return not version.isdecimal() or int(version) >= self.written.get((kind, key), 0)


def writes(progress: Progress, state: ClusterState) -> Iterator[tuple[str, str, Object]]:
    """(kind, key, object) of what has to be written and was not yet. Raises BindingFailed."""
    reservation = progress.reservation
    if reservation.missing:
        raise BindingFailed("the volumes that were found are not available any more")
    for match in reservation.matched:
        if (PERSISTENT_VOLUME, match.volume) in progress.written:
            continue
        volume, claim = _get(state, PERSISTENT_VOLUME, match.volume), _get(state, PERSISTENT_VOLUME_CLAIM, match.claim)
        _check_reference(volume, claim)
        bound = bound_volume(volume, claim)
        if bound is not volume:
            yield PERSISTENT_VOLUME, match.volume, bound
    for key in reservation.provisioned:
        claim = _get(state, PERSISTENT_VOLUME_CLAIM, key)
        if (PERSISTENT_VOLUME_CLAIM, key) not in progress.written and _selected_node(claim) != reservation.node:
            yield PERSISTENT_VOLUME_CLAIM, key, placed_claim(claim, reservation.node)


def is_complete(progress: Progress, state: ClusterState) -> bool:
    """Whether all claims are bound to volumes that the node reaches. Raises BindingFailed if they will not be."""
    table, reservation = state.table, progress.reservation
    if reservation.node not in table.index:
        raise BindingFailed(f'failed to get node "{reservation.node}": node "{reservation.node}" not found')
    # All are looked at: one that failed ends the wait for the others.
    done = [_is_matched(progress, state, claim, volume) for claim, volume in reservation.matched]
    done += [_is_provisioned(progress, state, key) for key in reservation.provisioned]
    return all(done)


def _is_matched(progress: Progress, state: ClusterState, claim_key: str, volume_name: str) -> bool:
    volume = _get(state, PERSISTENT_VOLUME, volume_name)
    claim = _get(state, PERSISTENT_VOLUME_CLAIM, claim_key)
    if not progress.is_shown(PERSISTENT_VOLUME, volume_name, volume):
        return False
    _check_reached(volume, progress.reservation.node, state.table)
    if not (volume["spec"].get("claimRef") or {}).get("uid"):
        raise BindingFailed(f'ClaimRef got reset for pv "{volume_name}"')
    _check_reference(volume, claim)
    return is_bound(claim)


def _is_provisioned(progress: Progress, state: ClusterState, key: str) -> bool:
    claim = _get(state, PERSISTENT_VOLUME_CLAIM, key)
    if not progress.is_shown(PERSISTENT_VOLUME_CLAIM, key, claim):
        return False
    if _selected_node(claim) != progress.reservation.node:
        raise BindingFailed(f'provisioning failed for PVC "{name_of(claim)}"')
    name = claim["spec"].get("volumeName")
    if name:
        volume = state.own_object(PERSISTENT_VOLUME, name)
        if volume is None:
            return False  # it will be seen a moment later
        _check_reached(volume, progress.reservation.node, state.table)
    return is_bound(claim)


def _selected_node(claim: Object) -> str:
    annotations: Mapping[str, str] = claim["metadata"].get("annotations") or {}
    return annotations.get(SELECTED_NODE, "")


def _get(state: ClusterState, kind: str, key: str) -> Object:
    found = state.own_object(kind, key)
    if found is None:
        what = "pv" if kind == PERSISTENT_VOLUME else "pvc"
        raise BindingFailed(f'failed to check binding: could not find {what} "{key}"')
    return found


def _check_reference(volume: Object, claim: Object) -> None:
    """The volume must not refer to another claim."""
    if volume["spec"].get("claimRef") and not is_bound_to(volume, claim):
        raise BindingFailed(f'pv "{name_of(volume)}" is bound to another claim')


def _check_reached(volume: Object, node: str, table: NodeTable) -> None:
    rows = np.array([table.index[node]], dtype=np.int64)
    if not Nodes(table, rows).reached(volume)[0]:
        raise BindingFailed(
            f'pv "{name_of(volume)}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'
        )
