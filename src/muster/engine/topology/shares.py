"""How many of equal parts go to each of several domains: over as few as possible, or evenly over these few. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.api.topology import Policy
from muster.engine.arrays import Ints
from muster.engine.topology.partition import Partition


def shares(room: Ints, number: int, policy: Policy) -> Ints:
    """int64[D]: how many of `number` parts each domain receives, at most its room; all that there is room for.

    `packed`: as few domains as possible, the last one the smallest that holds the rest. `balanced`: as few, and the
    fewest of them as many as possible. At a tie the first domain.
    """
    number = min(number, int(room.sum()))
    return _packed(room, number) if policy == "packed" else _balanced(room, number)


def nested_shares(
    room: Ints, number: int, inner: Partition, levels: Sequence[Partition], policies: Sequence[Policy]
) -> Ints:
    """int64[D]: shares of the inner domains, dealt level by level: `levels` from the widest on, a policy for each.

    `room` int64[D] is that of the inner domains, the last of the policies theirs.
    """
    received = np.zeros(len(room), dtype=np.int64)

    def deal(number: int, inside: Ints, depth: int) -> None:
        if depth == len(levels):
            received[inside] = shares(room[inside], number, policies[depth])
            return
        of = levels[depth].ids[inner.firsts[inside]]
        distinct, first, place = np.unique(of, return_index=True, return_inverse=True)
        order = np.argsort(first)
        sums = np.bincount(place.reshape(-1), room[inside], minlength=len(distinct)).astype(np.int64)
        for at, share in zip(order.tolist(), shares(sums[order], number, policies[depth]).tolist(), strict=True):
            if share:
                deal(share, inside[of == distinct[at]], depth + 1)

    deal(min(number, int(room.sum())), np.flatnonzero(room > 0), 0)
    return received


def _packed(room: Ints, number: int) -> Ints:
    received = np.zeros(len(room), dtype=np.int64)
    left = room.copy()
    while number > 0:
        enough = np.flatnonzero(left >= number)
        at = int(enough[left[enough].argmin()]) if len(enough) else int(left.argmax())
        received[at] = min(number, int(left[at]))
        number -= int(received[at])
        left[at] = 0
    return received


def _balanced(room: Ints, number: int) -> Ints:
    received = np.zeros(len(room), dtype=np.int64)
    if number <= 0:
        return received
    largest = np.argsort(-room, kind="stable")
    few = int(np.searchsorted(np.cumsum(room[largest]), number)) + 1
    even = -(-number // few)
    enough = np.flatnonzero(room >= even)
    chosen = enough[np.argsort(room[enough], kind="stable")][:few] if len(enough) >= few else largest[:few]
    for place, at in enumerate(sorted(chosen.tolist(), key=lambda at: (int(room[at]), at))):
        received[at] = min(int(room[at]), number // (few - place))
        number -= int(received[at])
    return received
