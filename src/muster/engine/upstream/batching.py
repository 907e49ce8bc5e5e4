"""The order of members in 1.37: those that are alike stand together, so that work for one serves the next.

Source: workload-scheduling.md 1.2, 5.1 (opportunistic batching in group cycles).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from muster.engine.model import Member
from muster.engine.shape import Shape


def batched(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members of one signature stand where the first of them stood; those without a signature keep their places."""
    groups: dict[Hashable, list[Member]] = {}
    for at, member in enumerate(members):
        key: Hashable = member.shape if has_signature(member.shape) else at
        groups.setdefault(key, []).append(member)
    return tuple(member for group in groups.values() for member in group)


def has_signature(shape: Shape) -> bool:
    """Whether pods of the shape can share work: not with rules about other pods, which each placement changes."""
    identity = shape.usage.identity
    return not shape.spread and shape.owner is None and not (identity is not None and identity.terms)
