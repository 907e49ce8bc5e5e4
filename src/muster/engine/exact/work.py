"""How much work a search may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Remaining: TypeAlias = Callable[[], float]
"""How many seconds are left, for those who have a clock."""


@dataclass(slots=True)
class Budget:
    """Work that may still be done; one unit is about a state of pricing, half a microsecond.

    `remaining` says the seconds that are left, where somebody has a clock; without it equal questions have equal
    answers on every machine.
    """

    work: int
    remaining: Remaining | None = None
    spent: int = 0

    @property
    def is_used_up(self) -> bool:
        """Whether to stop."""
        return self.spent >= self.work or (self.remaining is not None and self.remaining() <= 0)

    def share(self, parts: int) -> Budget:
        """One of so many equal parts of what is left, as a budget of its own; `take` counts what it spent."""
        return Budget(max(0, self.work - self.spent) // parts, self.remaining)

    def take(self, share: Budget) -> None:
        """What was spent of a share is spent."""
        self.spent += share.spent
