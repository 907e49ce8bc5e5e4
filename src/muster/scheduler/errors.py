"""What the scheduler raises.

SchedulerFault
└── UnsupportedOption  an option asks for what is not there yet; not retryable
"""

from __future__ import annotations


class SchedulerFault(Exception):
    """Root of what the scheduler raises."""


class UnsupportedOption(SchedulerFault):
    """An option asks for what is not there yet; the message says what to use instead. Not retryable."""
