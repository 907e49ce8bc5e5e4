"""What the scheduler raises.

SchedulerFault
└── ConfigurationError  a configuration file is wrong; not retryable
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.engine.model import ScoreError

if TYPE_CHECKING:
    from muster.scheduler.configuration.fields import Fault


class SchedulerFault(Exception):
    """Root of what the scheduler raises."""


class ConfigurationError(SchedulerFault):
    """A KubeSchedulerConfiguration that cannot be used: every fault, in the order of the file. Not retryable."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


def error_text(error: Exception) -> str:
    """What a pod's condition says about an error: upstream's words where pods cannot be scored, else what broke."""
    return str(error) if isinstance(error, ScoreError) else f"{type(error).__name__}: {error}"
