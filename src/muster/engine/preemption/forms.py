"""What else must hold of the pods that fit, beyond their number: whole parts in domains, enough groups of a tree.

A problem with a form is exact for members of one shape in parts, and for trees without domains of their own. For all
else that a preemptor asks, the form says less than it does, and the check of the finished plan says the rest.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from muster.engine.arrays import Ints


class Parts(Struct, frozen=True):
    """Pods come in whole parts, each in one domain: `full` parts of `size` pods and, if not 0, one of `rest` pods.

    `ids` int64[N]: the domain of each node, -1 where it is in none.
    """

    size: int
    full: int
    rest: int
    ids: Ints

    @property
    def smallest(self) -> int:
        """Pods of the smallest part."""
        return self.rest or self.size


class Enough(Struct, frozen=True):
    """A group that has enough with `need` pods, at most `most[g]` of each shape."""

    need: int
    most: tuple[int, ...]


class SomeOf(Struct, frozen=True):
    """A group of groups that has enough if `least` of its parts have."""

    parts: tuple[Choice, ...]
    least: int


Choice: TypeAlias = Enough | SomeOf
Form: TypeAlias = Parts | Enough | SomeOf


def fewest(choice: Choice) -> int:
    """The fewest pods with which it has enough."""
    if isinstance(choice, Enough):
        return choice.need
    return sum(sorted(map(fewest, choice.parts))[: choice.least])
